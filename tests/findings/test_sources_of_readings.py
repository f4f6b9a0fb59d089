"""Measurements may be few, broken or of the wrong kind: that is said, and no rule stumbles."""

from __future__ import annotations

import polars as pl
import pytest

from netvitals.capture import Measurement
from netvitals.findings import RULES, Findings, diagnose

ACT = ("a.act", "b.act", "c.act")


def test_missing_measurements_are_said_and_nothing_breaks():
    found = diagnose([Measurement(0, "gates", "a", "density@0.01", 0.5)])
    assert isinstance(found, Findings) and not found.alarming
    assert "Not enough data for: " in str(found)
    assert len(diagnose([])) == 0


def test_no_rule_stumbles_over_series_of_one_point_or_of_nothing_but_nan():
    names = {(v, m) for r in RULES for v, m in r.needs}
    for value in (0.5, float("nan"), float("inf"), 0.0):
        measurements = [
            Measurement(0, v, s, m + "0.01" if m.endswith("@") else m, value) for v, m in names for s in (*ACT, "model")
        ]
        assert [c.trouble for c in diagnose(measurements).checked if c.trouble] == []


def test_sources_that_cannot_be_read_get_a_sentence():
    with pytest.raises(TypeError, match="open a run with"):
        diagnose("runs/first")
    with pytest.raises(TypeError, match="expected Measurement"):
        diagnose([1, 2, 3])
    with pytest.raises(ValueError, match="has no value"):
        diagnose(pl.DataFrame({"step": [1], "vital": ["a"], "site": ["b"], "metric": ["c"]}))


def test_a_frame_is_a_source():
    frame = pl.DataFrame(
        [{"step": i, "vital": "sparsity", "site": "a", "metric": "hard", "value": 0.75} for i in range(30)]
    )
    assert [f.rule for f in diagnose(frame)] == ["sparsity cliff"]


def test_findings_print_in_colour_too():
    from rich.console import Console

    console = Console(width=100, record=True)
    console.print(diagnose([Measurement(step, "sparsity", "a.act", "hard", 0.86) for step in range(0, 1000, 10)]))
    assert "Activations are too sparse" in console.export_text()
