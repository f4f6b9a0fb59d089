"""The judges of the exponents at He initialisation, on escape times that are known."""

import numpy as np
import pytest

import netvitals_lab as studies
from netvitals_lab.papers.saddle_escape import he_escape


def rows(slopes, by_threshold=(0.0, 0.0, 0.0), noise=0.02):
    """Escape times ε^slope of five scales and two seeds; a threshold adds its own to every slope."""
    rng, out = np.random.default_rng(0), []
    for r, slope in slopes.items():
        for eps in np.geomspace(*he_escape.WINDOWS[r], 5):
            for seed in range(2):
                times = {
                    f"s at {th}": float(eps ** (slope + more) * np.exp(noise * rng.normal()))
                    for th, more in zip(he_escape.THRESHOLDS, by_threshold)
                }
                out.append({"kind": "sgd", "r": r, "eps_run": float(eps), "seed": seed, **times})
    return out


def verdict(claim, given):
    (found,) = [c for c in he_escape.claim if c.id == f"saddle-escape/{claim}"]
    return found.judge(given)


PRINTED = {r: slope for r, (slope, _) in he_escape.TABLE.items()}


def test_the_papers_only_table_is_a_claim_that_can_fail():
    assert PRINTED == {3: -1.22, 5: -2.74, 8: -5.42}
    assert verdict("E4t", rows(PRINTED)).status == "holds"
    assert verdict("E4t", rows({**PRINTED, 8: -6.2})).status == "fails"
    assert "r = 8" in verdict("E4t", rows(PRINTED)).note


@pytest.mark.parametrize(
    ("shifts", "status"),
    [((0.02, 0.0, 0.03), "holds"), ((0.02, 0.0, 0.6), "not-reproduced"), ((-0.3, 0.0, 0.0), "not-reproduced")],
)
def test_the_shift_by_thresholds_is_judged(shifts, status):
    found = verdict("C31", rows(PRINTED, shifts, noise=0.002))
    assert found.status == status and found.measured == pytest.approx(max(abs(s) for s in shifts), abs=0.02)


@pytest.mark.parametrize(("noise", "status"), [(0.01, "fails"), (0.25, "not-reproduced")])
def test_a_gap_that_the_fit_cannot_tell_from_the_one_that_is_allowed_refutes_nothing(noise, status):
    found = verdict("C30", rows({3: -1.1, 5: -2.9, 8: -5.2}, noise=noise))
    assert found.status == status and found.measured == pytest.approx(0.8, abs=0.2) and found.uncertainty > 0


def test_a_lost_order_fails_whatever_the_shift():
    assert verdict("C31", rows({3: -2.8, 5: -2.7}, noise=0.002)).status == "fails"
    assert verdict("C30", rows({3: -1.5, 5: -2.5, 8: -2.4})).status == "fails"


def test_sgd_at_r_8_is_run_at_every_scale_that_is_more_than_smoke():
    study = studies.find_study("saddle-he")
    for scale in ("small", "medium", "paper"):
        assert {c["r"] for c in study.configs(scale) if c["kind"] == "sgd"} == {3, 5, 8}
    assert verdict("C30", rows({3: -1.1, 5: -2.9, 8: -5.7})).status == "holds"
