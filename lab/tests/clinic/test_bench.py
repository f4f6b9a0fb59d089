"""The clinic's bench runs, keeps its rows, and writes tables that say what the rows say."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench" / "bugs"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    spec = importlib.util.spec_from_file_location("clinic_bench", BENCH / "planted.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "clinic_bench", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_trials_and_treatments_are_run_once_and_told(bench, tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    chosen = ["--rows", str(rows), "--seeds", "1", "--only", "softmax at"]
    bench.main(chosen)
    assert "sensitivity: 1 of 1" in capsys.readouterr().out
    before = rows.read_text()
    bench.main(chosen)
    assert rows.read_text() == before, "what was done is not done again"
    bench.main([*chosen, "--treat"])
    cured = [json.loads(line) for line in rows.read_text().splitlines()][-1]
    assert cured["remedy"] == "one_softmax" and cured["mended"] and not cured["harmed"], cured


def test_the_tables_say_what_the_rows_say(bench, tmp_path):
    import clinic_tables

    trial = lambda name, seed, **more: {
        "key": f"trial|{name}|moderate|{seed}", "set": "disease", "name": name, "family": "data", "grade": "moderate",
        "seed": seed, "caught": True, "cause": True, "place": True, "delay": 8.0, "first": "same batch", "alarm": True,
        "rules": ["same batch"], "ever": True, **more,
    }  # fmt: skip
    rows = (
        [trial("a", i) for i in range(7)]
        + [trial("a", i, cause=False, first="spikes") for i in (7, 8)]
        + [trial("a", 9, caught=False, cause=False, delay=None, rules=[], first="")]
    )
    rows += [{**trial("c", 0, alarm=True, rules=["spikes"]), "set": "control", "grade": "", "key": "trial|c||0"}]
    cure = {"key": "cure|a|moderate|0", "set": "disease", "name": "a", "rule": "same batch", "remedy": "repair_data"}
    rows.append({**cure, "curable": True, "mended": True, "harmed": False})
    rows.append({"key": "rival|other|c||0", "rival": "other", "set": "control", "name": "c", "alarm": True})
    for folder in ("src/netvitals/findings", "docs/images"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "README.md").write_text("<!-- clinic -->\nold\n<!-- /clinic -->\n")
    clinic_tables.write(rows, tmp_path)
    text = (tmp_path / "docs" / "clinic.md").read_text()
    assert "90.0 % (60–98), 9 of 10" in text and "- missed: a, seed 9" in text and "- false: c, seed 0: spikes" in text
    assert "70.0 % (40–89), 7 of 10 | ≥ 85 %, **missed** |" in text and "9 of 10 | ≥ 95 %, **missed** |" in text
    assert "- not the cause: a, seed 8: spikes stood first" in text and "9 of 9 | ≥ 90 % |" in text
    record = json.loads((tmp_path / "src/netvitals/findings/clinic.json").read_text())
    assert record["advice"]["same batch"]["repair_data"] == {"tried": 1, "mended": 1, "harmed": 0}
    assert "<svg" in (tmp_path / "docs/images/clinic.svg").read_text()
    assert "old" not in (tmp_path / "README.md").read_text() and "| other |" in (tmp_path / "README.md").read_text()


def test_a_finding_prints_how_often_its_advice_helped(monkeypatch):
    from netvitals.findings import Finding, Remedy, record
    from netvitals.findings.explanation import explain

    known = {
        "advice": {"clipping": {"clip": {"tried": 10, "mended": 9, "harmed": 0}}},
        "rules": {"clipping": {"spoke": 5, "right": 4, "healthy": 100, "false": 1}},
    }
    monkeypatch.setattr(record, "measured", lambda: known)
    monkeypatch.setattr("netvitals.findings.explanation.measured", lambda: known)
    finding = Finding("warning", "", "x", rule="clipping", remedy=Remedy("clip", 1.0))
    assert record.of_advice(finding) == "This advice mended 9 of 10 such runs in our clinic."
    text = explain("clipping")
    assert "right in 4 of the 5 sick runs" in text and "1 of 100 healthy" in text and "mended 9 of 10" in text


def test_the_record_that_is_shipped_is_what_findings_read():
    from netvitals.findings.record import measured

    found = measured()
    assert found["overall"]["sensitivity"]["n"] >= 100 and found["overall"]["specificity"]["n"] >= 100
    assert set(found) >= {"advice", "cures", "grades", "overall", "rivals", "rules"}
