"""The studies of the DAG-Hessian paper: all run at smoke scale, and cheap ones give the paper's numbers."""

import numpy as np
import pytest
import torch
from torch import nn

from netvitals_lab import all_claims, all_studies, run
from netvitals_lab.papers.dag_hessian import attention, bottleneck, diamond, distance, gap, identities, remarks, resnet
from netvitals_lab.papers.dag_hessian._stand_ins import in_region, nearest_kronecker, secants
from netvitals_lab.papers.dag_hessian.decay_claims import curve
from netvitals_lab.papers.dag_hessian.gap_claims import SILU_SUMS
from netvitals_lab.papers.dag_hessian.tower_claims import TABLE

STUDIES = (identities, distance, bottleneck, gap, diamond, attention, resnet, remarks)
# claims that hold whatever the size of the net
ALWAYS = {
    "T7": "holds",
    "T2": "erratum",
    "T19": "erratum",
    "T20": "erratum",
    "T25": "holds",
    "T26": "holds",
    "T26s": "holds",
    "T17": "holds",
    "T67": "holds",
    "T33": "erratum",
    "T34": "erratum",
    "T10": "holds",
    "T83": "holds",
    "P85": "erratum",
    "T44": "erratum",
    "T28": "erratum",
    "H2.2": "holds",
    "H3.1": "holds",
    "H3.5": "holds",
    "H4.3": "holds",
    "H5.2": "holds",
    "H5.6": "erratum",
    "H6.3": "holds",
    "H6.5": "holds",
    "C73": "erratum",
    "P89": "holds",
    "R103a": "reproduced",  # the remarks print no set-up
    "C29": "reproduced",
    "K1": "reproduced",
    "K2": "holds",
}


def test_every_experiment_of_the_paper_has_a_study_and_every_claim_a_judge():
    names = {s.name for s in all_studies("dag-hessian")}
    assert names == {m.NAME for m in STUDIES}
    claims = [c for c in all_claims("dag-hessian") if c.id.startswith("dag-hessian/")]
    assert {c.study for c in claims} == names
    for start in ("H1", "H1b", "H2", "H3", "H4", "H5", "H6"):
        assert any(c.id.split("/")[1].startswith(start) for c in claims), start


@pytest.mark.slow
@pytest.mark.parametrize("module", STUDIES, ids=lambda m: m.NAME)
def test_smoke_run_reaches_verdicts(module, tmp_path):
    done = run(module.NAME, "smoke", "inline", results=tmp_path / "results.sqlite", progress=False)
    assert done.rows
    for name, verdict in done.verdicts.items():
        short = name.split("/")[1]
        assert not verdict.excluded, (name, verdict.excluded)
        assert verdict.status != "not-run" or "no trial at scale smoke" in verdict.note, (name, verdict.note)
        if short in ALWAYS:
            assert verdict.status == ALWAYS[short], f"{name}: {verdict}"
    for claim in all_claims("dag-hessian"):
        rows = [r for r in done.rows if claim.study == module.NAME and claim.rests_on(r)]
        assert claim.plot is None or not rows or claim.plot(rows).svg(), claim.id


def test_gauss_newton_sums_of_the_silu_net_are_those_of_the_published_table():
    """Same seeds and layer order as the paper: three digits, even on synthetic images."""
    rows = [
        gap.trial(c)[0]
        for c in gap.STUDIES[0].configs("small")
        if c["act"] == "silu" and c["norm"] == "none" and not c["epochs"]
    ]
    assert len(rows) == 5
    for d, value in SILU_SUMS.items():
        assert np.mean([r["gn_sums"][d] for r in rows]) == pytest.approx(value, rel=0.01)
    assert np.mean([r["gap"] for r in rows]) == pytest.approx(0.262, rel=0.25)
    assert max(r["t_sums"][5] for r in rows) < 2e-11


@pytest.mark.slow
def test_spectral_norm_net_decays_as_published():
    rows = [
        distance.trial(c)[0] for c in distance.STUDIES[0].configs("small") if c["net"] == "spectral" and c["depth"] == 8
    ][:3]
    assert np.mean([r["rate"] for r in rows]) == pytest.approx(0.769, rel=0.15)
    assert curve(rows)[0] == pytest.approx(0.0157, rel=0.15)
    assert np.mean([r["rho"] for r in rows]) == pytest.approx(0.90, rel=0.1)
    assert np.mean([r["lyapunov_qr"] for r in rows]) == pytest.approx(-1.016, rel=0.1)
    assert np.mean([r["lyapunov_eq8"] for r in rows]) == pytest.approx(-0.79, rel=0.1)
    assert max(r["gap"] for r in rows) <= 4e-8


@pytest.mark.slow
def test_attention_gap_at_initialisation_and_its_relu_control():
    configs = [{**c, "epochs": 0} for c in attention.STUDIES[0].configs("small")]
    by = {n: [attention.trial(c)[0] for c in configs if c["net"] == n] for n in attention.NODES}
    gaps = [r["gap"] for r in by["toy-attention"]]
    assert 30 <= np.mean(gaps) <= 100, f"mean gap {np.mean(gaps):.1f} over {len(gaps)} seeds"
    assert max(max(r["gap"], r["gap32"]) for r in by["position-mlp"]) <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("shortcut", [True, False])
def test_relu_resnet18_resonance_at_initialisation(shortcut):
    """Within 20 % of the published curve; three seeds, ten probes."""
    configs = [c for c in resnet.STUDIES[0].configs("small") if c["act"] == "relu" and c["shortcut"] == shortcut]
    rows = [resnet.trial(c)[0] for c in configs]
    assert all(r["gap"] < 1e-5 < 0.1 < r["train_mode_gap"] for r in rows)
    found = curve(rows)
    assert np.abs(found / TABLE["relu", shortcut] - 1).max() <= 0.2, found
    ratio = found[0] / found[-1]
    assert (ratio < 2) if shortcut else (300 < ratio < 1500)


def test_what_stands_in_the_place_of_a_hessian():
    """A Kronecker product is its own nearest one; secants of a quadratic follow it; a step has its bound."""
    torch.manual_seed(0)
    layer = nn.Linear(2, 3).double()
    draw = lambda n: (a := torch.randn(n, n, dtype=torch.float64)) @ a.mT
    exact = torch.block_diag(torch.kron(draw(3), draw(2)), draw(3))
    torch.testing.assert_close(nearest_kronecker(exact, layer), exact)
    h, at = draw(5), torch.randn(5, dtype=torch.float64)
    found = secants(lambda w: w @ h @ w / 2, at, 5)
    assert float((found - h).norm() / h.norm()) < 0.9 and float(torch.linalg.eigvalsh(found)[0]) > 0
    g = torch.randn(5, dtype=torch.float64)
    torch.testing.assert_close(in_region(h, g, 1e9), -torch.linalg.solve(h, g))
    for model in (h, -h):  # the constrained minimum: below every other step of that length
        step = in_region(model, g, 0.1)
        assert abs(float(step.norm()) - 0.1) < 1e-9
        value = lambda s, model=model: g @ s + s @ model @ s / 2
        others = torch.randn(200, 5, dtype=torch.float64)
        assert all(value(step) <= value(0.1 * o / o.norm()) + 1e-12 for o in others)


def test_autograd_at_a_kink_lies_in_the_hull_unless_two_units_share_it():
    row = remarks.trial({"question": "kinks", "seed": 7})[0]
    assert row["single"] < 1e-9 and row["difference"] > 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("net", "key"), [("dense", "far"), ("unet", "mirrored")])
def test_skips_keep_far_layers_coupled(net, key):
    seen = lambda kind: np.mean(
        [remarks.trial({"question": "shape", "net": kind, "depth": 8, "seed": s})[0][key] for s in range(3)]
    )
    assert seen(net) > 1.3 * seen("plain")
