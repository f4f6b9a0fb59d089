"""Convergence of the reconstruction: edges, norms, what judges make of known rows, and a run at smoke scale."""

import numpy as np
import pytest
import torch

import netvitals_lab as studies
from netvitals_lab.papers.gate_density import compounding, deep_claims, setups
from netvitals_lab.papers.gate_density import convergence as study
from netvitals_lab.papers.gate_density import convergence_claims as claims
from netvitals_lab.papers.gate_density import reconstruction as rec


def test_edges_touch_both_kinds_and_norms_are_those_of_the_matrix():
    y = rec.target("checkerboard", 16, 4)
    edge = study.edges(y)
    assert float(edge.double().mean()) == pytest.approx(1 - (10 / 16) ** 2) and not edge[1, 1]  # the rim has no edge
    k = rec.kernel("sobel_x")
    problem, _ = rec.grid([1.0], 1, [k], rec.target("stripes", 16, 4), padding="circular")
    dense = float(torch.linalg.matrix_norm(rec.dense_operator(problem), 2))
    assert setups.spectral_norm(k, 16) == pytest.approx(dense, rel=1e-6)


def test_the_curve_of_a_run_begins_at_its_start_and_ends_at_its_loss():
    config = {"check": "curves", "method": "pgd", "size": 12, "seeds": 2, "iterations": 30, "alphas": [2.0, 20.0]}
    config |= {"padding": "zero", "scale": 1.0, "block": 4, "reachable": False}
    rows = study.trial(config)
    problem, x0, _ = setups.problem_in(config)
    start = problem.loss(problem.forward(x0)).double().reshape(2, 2)
    for i, row in enumerate(rows):
        assert row["mean"][0] == pytest.approx(float(start[i].mean())) and row["at"][0] == 0 and row["at"][-1] == 30
        assert row["mean"][-1] == pytest.approx(np.mean(row["final"])) and min(row["settled"]) > 0
        assert row["deviation"][-1] == pytest.approx(np.std(row["final"], ddof=1))


def test_effective_stiffness_is_the_nominal_one_where_both_kernels_are_as_active():
    alphas = [2.0, 4.0, 8.0, 16.0, 32.0]
    rows = [
        {"check": "joint", "alpha": a, "fixed_active": [1 / a], "joint_active": [1 / (2 * a)], "norm_ratio": [2.0]}
        for a in alphas
    ]
    got = claims._effective(rows)[1]
    assert got[:-1] == pytest.approx([2.0] * 4, rel=0.05) and got[-1] == pytest.approx(1)  # beyond the grid
    assert claims.amplified.single(rows[:-1] + [{**rows[-1], "joint_active": [1 / 64]}]).status != "holds"


def test_judges_tell_edges_first_and_groups_apart():
    region = {"target": "disc", "alpha": 5.0, "moments": [5, 10], "edge": [1, 0.4, 0.2], "interior": [1, 0.6, 0.3]}
    assert claims.first_edges.single([region]).status == "holds"
    assert claims.first_edges.single([{**region, "interior": [1, 0.6, 0.1]}]).status == "fails"
    rng = np.random.default_rng(0)
    centre = {"sigmoid": 0.0, "tanh": 0.0, "relu": 0.5, "gelu": 1.0, "silu": 1.0, "mish": 1.0}
    make = lambda noise: [{"act": a, "active": (c + noise * rng.normal(size=400)).tolist()} for a, c in centre.items()]
    within = np.sqrt(np.var([0, 0.5, 1]) / 573)
    assert (
        claims.between_groups.single(make(within)).status == "holds"
        and claims.between_groups.single(make(4 * within)).status == "fails"
    )


def test_a_reachable_target_is_made_by_its_picture_and_an_input_is_held_against_it():
    base = {"size": 16, "seeds": 1, "alphas": [50.0], "padding": "circular", "scale": 0.5, "block": 4}
    plain, _, picture = setups.problem_in({**base, "reachable": False})
    assert torch.equal(plain.y, picture) and torch.equal(picture, rec.target("checkerboard", 16, 4))
    disc, _, round_one = setups.problem_in({**base, "reachable": True, "target": "disc"})
    assert float(disc.iou(disc.forward(round_one[None]))) == 1.0  # some pixels of A x lie between 0 and c
    made, _, same = setups.problem_in({**base, "reachable": True})
    assert torch.equal(same, picture) and not torch.equal(made.y, picture)
    assert float(made.iou(made.forward(picture[None]))) == 1.0 and float(setups.of_picture(picture[None], picture)) == 1
    assert torch.equal(made.kernels, rec.kernel("sobel_x", 0.5))  # the scale is Sobel's alone
    assert torch.equal(setups.kernel_of(base, "laplacian"), rec.kernel("laplacian"))
    assert torch.equal(setups.learned_from({"start": "fixed"}, made)[0], made.kernels)
    assert float(setups.learned_from({"start": "random", "seeds": 1}, made).norm()) == pytest.approx(1)


def test_every_set_up_is_asked_and_both_measurements():
    assert len(setups.SETUPS) == len(set(setups.SETUPS)) == 12
    assert {s[2:] for s in setups.SETUPS} == {(8, False), (4, False), (8, True)} and {s[1] for s in setups.SETUPS} == {
        1,
        0.5,
    }
    configs = setups.configs_in(setups.SETUPS, [{"check": "a"}, {"check": "b"}])
    assert len(configs) == 24 and len(setups.configs_in(setups.SETUPS, [{"check": "a"}], blocks=False)) == 8
    rows = [{**c, "iou": [1.0], "iou_input": [0.5], "act": "gelu", "way": w} for c in configs for w in rec.WAYS]
    assert len(setups.apart(rows)) == 16 and len(setups.apart(rows, operands=False)) == 12
    assert len(setups.by_way(rows)) == 48 and all(len(mine) == 2 for mine in setups.by_way(rows).values())
    assert len(setups.STIFFENED) == 2 + 3 * 4  # sigmoid and tanh have one way
    joint = [{**c, "start": s} for c in configs for s in setups.STARTS]
    assert len(setups.by_start(joint, operands=False)) == 24
    curve = {"alpha": 1.0, "settled": [3], "final": [1.0]}
    fast = [
        {**c, **curve, "method": m, "mean": [1.0 if m == "adam" else 2.0]} for c in configs[:1] for m in study.METHODS
    ]
    found = {setup[-1]: claims.faster.single(mine).status for setup, mine in claims.by_reading(fast).items()}
    assert (
        found.pop("mean loss over the iterations") == "holds" and set(found.values()) == {"fails"} and len(found) == 2
    )


@pytest.mark.slow
def test_smoke_run_judges_every_claim_and_draws(tmp_path):
    run = studies.run(study.NAME, "smoke", engine="inline", results=tmp_path / "results.sqlite", progress=False)
    assert run.failed == 0 and len(run.verdicts) == len(list(claims.claim))
    assert run.verdicts["gate-density/A94-edges"].measured is not None
    for claim in claims.claim:
        if claim.plot is not None:
            assert "<svg" in claim.plot(run.rows).svg()


@pytest.mark.parametrize(
    ("late", "status"), [((1.0, 0.0), "holds"), ((0.4, 0.0), "fails"), ((1.0, 0.3), "fails"), ((0.5, 0.02), "fails")]
)
def test_late_layers_of_both_networks_open_and_shut(late, status):
    rows = [
        {"network": n, "alpha": a, "layers": 9, "shares": [0.9] * 6 + [v] * 3, "weights": "He", "norm": "none"}
        | {"centre": c, "inputs": "gaussian", "r2": 0.6 if c else 0.4, "rate": 0.02}
        for n in compounding.NETWORKS
        for a, v in zip((10.0, 20.0), late)
        for c in (0.5, 0.0)
    ]
    assert deep_claims.front.single([r for r in rows if r["centre"]]).status == status
    whole = deep_claims.deep_law.judge(rows)
    assert whole.setups == (1, 2) and "centre 0.5 1 of 1" in whole.facts["as printed, by choice"]
    assert deep_claims.deep_law.single([{**r, "r2": None} for r in rows]).status == "not-run"


def test_default_weights_shut_the_late_layers_that_he_weights_leave_open():
    torch.manual_seed(0)
    he = (2 / 400) ** 0.5
    assert float(torch.nn.Linear(400, 400).weight.detach().std()) / he == pytest.approx(compounding.DEFAULT, rel=0.01)
    base = {"check": "deep", "network": "vgg11", "norm": "none", "centre": 0.5, "inputs": "gaussian", "alpha": 20.0}
    shares = [
        compounding.trial({**base, "weights": w, "width": 4, "side": 16, "nets": 1})[0]["shares"]
        for w in ("He", "default")
    ]
    assert max(shares[1][2:5]) < 0.02 < 0.1 < min(shares[0][2:5]), shares
