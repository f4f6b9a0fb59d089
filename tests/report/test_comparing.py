"""Two runs side by side: what told them apart, when, and by how much at each layer."""

import base64

import numpy as np
import pytest

from netvitals.capture import Measurement
from netvitals.findings import table
from netvitals.report.live.comparing import common_metrics, difference, separated, settings
from netvitals.report.live.series import Numbers


def _run(parts, seed, steps=40):
    """Noise around 1; site ``b`` leaves at the step that ``parts`` names, ``a`` ten steps later."""
    rng = np.random.default_rng(seed)
    rows = []
    for step in range(steps):
        for site, start in (("b", parts), ("a", parts + 10)):
            rows.append(
                Measurement(step, "gates", site, "density@0.1", 1 + 0.01 * rng.normal() - 0.5 * (step >= start))
            )
        rows.append(Measurement(step, "loss", "model", "loss", 1 + 0.01 * rng.normal() + (step >= parts + 20)))
    return table(rows)


@pytest.mark.parametrize("seed", range(6))
def test_the_vital_sign_that_parted_first_is_named_with_its_site_and_step(seed):
    found = separated(_run(12, seed), _run(10**6, seed + 100))
    assert [(f["vital"], f["site"], f["step"]) for f in found] == [("gates", "b", 12), ("loss", "model", 32)]
    assert found[0]["sites"] == 2 and found[0]["values"][0] == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("seed", range(20))
def test_two_runs_that_differ_by_noise_have_not_parted(seed):
    assert separated(_run(10**6, seed), _run(10**6, seed + 50)) == []


def test_what_differs_in_settings_and_not_when_they_ran():
    one = {"optimizer": [{"name": "AdamW", "lr": 1e-3}], "started": "a", "model": "GPT"}
    two = {"optimizer": [{"name": "AdamW", "lr": 3e-1}], "started": "b", "model": "GPT"}
    assert settings({"x": one, "y": two}) == [{"name": "optimizer[0].lr", "values": {"x": "0.001", "y": "0.3"}}]


def test_the_map_of_differences():
    one, two = Numbers(_run(12, 0)), Numbers(_run(10**6, 1))
    found = difference(one, two, "gates", "density@0.1")
    gap = np.frombuffer(base64.b64decode(found["mean"]), "<f4").reshape(2, -1)
    assert found["sites"] == ["b", "a"] and gap[0, 20:].mean() == pytest.approx(-0.5, abs=0.02)
    assert abs(gap[:, :10].mean()) < 0.02
    with pytest.raises(LookupError, match="no site has"):
        difference(one, two, "gates", "none")
    assert [m["metric"] for m in common_metrics([one.table, two.table])] == ["density@0.1", "loss"]
