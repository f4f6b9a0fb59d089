"""Claims on the Hessian between layers are held against the printed tables, trained networks too."""

import pytest

from netvitals_lab import all_claims
from netvitals_lab.engine.statements import statements
from netvitals_lab.papers.dag_hessian import _printed, printed_claims
from netvitals_lab.papers.dag_hessian.decay_claims import COUPLING, RATES, RHO
from netvitals_lab.papers.gate_density import _pictures as pictures

CLAIMS = {c.id.split("/")[1]: c for c in all_claims("dag-hessian")}


def gap_rows(by, norm, phase, data, epochs):
    return [
        {"act": a, "norm": norm, "phase": phase, "gap": v, "data": data, "epochs": epochs, "depth": 6, "seed": 42}
        for a, v in by.items()
    ]


def test_expected_values_are_the_printed_ones():
    assert list(_printed.BARE.values()) == [0.122, 0.225, 0.358]  # Table 5
    assert list(_printed.NORMED.values()) == [0.618, 0.626, 0.459, 1.967, 2.296]  # Table 4
    assert COUPLING.value == 0.239 and {k: e.value for k, e in RATES.items()} == _printed.RATES
    assert RHO == {("plain", 8): 2.59, ("plain", 12): 2.69, ("residual", 8): 1.25, ("residual", 12): 1.20}
    assert "1.35, 1.33, 1.32" in CLAIMS["H4.4"].statement and ".122, .225, .358" in CLAIMS["H3.8"].statement


def test_our_own_earlier_numbers_are_no_longer_what_is_expected():
    table = gap_rows(_printed.BARE, "none", "init", "noise", 0)
    assert CLAIMS["H3.8"].judge(table).measured == 0
    far = gap_rows({a: 1.3 * v for a, v in _printed.BARE.items()}, "none", "init", "noise", 0)
    assert CLAIMS["H3.8"].judge(far).status == "fails"
    # two printed deviations are more than a quarter of the relu cell, .618 ± .160
    near = gap_rows({**_printed.NORMED, "relu": 0.618 + 0.31}, "layer", "init", "noise", 0)
    assert CLAIMS["H3.9"].judge(near).status == "holds"
    beyond = gap_rows({**_printed.NORMED, "relu": 0.618 + 0.33}, "layer", "init", "noise", 0)
    assert CLAIMS["H3.9"].judge(beyond).status == "fails"


@pytest.mark.parametrize(("name", "norm"), [("H3.11", "layer"), ("H3.12", "none")])
def test_trained_gaps_are_judged_on_trained_rows(name, norm):
    by = {"layer": _printed.NORMED_FINAL, "none": _printed.BARE_FINAL}[norm]
    claim = CLAIMS[name]
    assert claim.judge(gap_rows(by, norm, "final", "cifar10", 20)).status == "holds"
    assert claim.judge(gap_rows({a: 2 * v for a, v in by.items()}, norm, "final", "cifar10", 20)).measured == 1.0
    assert claim.judge(gap_rows(by, norm, "init", "noise", 0)).status == "not-judged"
    assert claim.rests_on({"epochs": 20, "norm": norm, "depth": 6})
    assert not claim.rests_on({"epochs": 0, "norm": norm, "depth": 6})


def test_every_table_with_a_trained_phase_has_a_claim_on_it():
    sections = " ".join(statements("dag-hessian")[c.id].place for c in printed_claims.claim)
    for table in ("Table 2", "Table 3", "Table 4", "Table 5", "Table 6", "Tables 8", "Table 9"):
        assert table in sections, table
    for table in ("N.1", "N.2", "N.3", "N.4", "N.7", "N.8"):
        assert table in sections, table
    towers = CLAIMS["H6.7"]
    rows = [
        {"act": a, "shortcut": s, "phase": "mid", "resonance": list(_printed.TOWER_RESONANCE[a, s, "mid"]),
         "coupling": list(_printed.TOWER_COUPLING[a, s, "mid"]), "stable_rank": list(_printed.TOWER_RANK[a, s, "mid"])}
        for a in ("relu", "silu") for s in (True, False)
    ]  # fmt: skip
    found = towers.judge(rows)
    assert found.status == "holds" and len(found.facts) == 60
    rows[0]["coupling"][4] = 0.1
    assert towers.judge(rows).status == "fails"
    assert towers.plot(rows).svg()


def initial_rows(resnet, convnext=(0.994,) * 3, vit=0.0):
    by = {"resnet50": resnet, "convnext-tiny": convnext, "vit-b16": (0.5, 0.5, 0.5)}
    return [
        {"network": n, "theta": 0.01, "element": e, "site": s, "channel": c, "valid": vit if n == "vit-b16" else 1.0}
        for n, (e, s, c) in by.items()
    ]


def test_the_other_rows_of_table_2_depend_on_a_pooling_that_is_not_named():
    claim = next(c for c in all_claims("gate-density") if c.id == "gate-density/E1-others")
    assert claim.judge(initial_rows((0.53, 0.52, 0.54))).status == "holds"
    found = claim.judge(initial_rows((0.59, 0.55, 0.60)))
    assert found.status == "underspecified" and found.span == (0.0, pytest.approx(0.071))
    assert claim.judge(initial_rows((0.59, 0.58, 0.60))).status == "fails"
    assert claim.judge(initial_rows((0.53, 0.52, 0.54), vit=0.2)).status == "fails"


def test_figures_1_and_2_have_intervals_and_a_second_quantity():
    rows = [
        {"quantity": "epoch", "act": "relu", "seed": s, "epoch": e, "D@0.1 element all": 0.5 - 0.01 * e + 0.01 * s,
         "rank_entropy": 10.0 + e, "accuracy": None if e < 0 else 0.5}
        for s in range(3) for e in (-1, 0, 1)
    ]  # fmt: skip
    plot = pictures.density_by_epoch(rows, beside="rank_entropy")
    density, rank = plot.series
    assert density.error == pytest.approx([0.02484] * 3, rel=1e-3) and not density.right
    assert list(rank.y) == [9.0, 10.0, 11.0] and rank.right and plot.right_label == "rank_entropy" and plot.svg()
    assert list(pictures.density_by_epoch(rows, beside="accuracy").series[1].x) == [0, 1]  # none before training
