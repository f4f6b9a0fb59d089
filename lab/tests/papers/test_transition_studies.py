"""The second part of the gate-density studies at smoke scale: transition, depth, pruning, privacy, fine-tuning."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from netvitals import gates
from netvitals_lab import all_claims, data, find_study, models, run
from netvitals_lab.papers.gate_density import (
    compounding_claims,
    fine_tuning,
    privacy,
    privacy_claims,
    reachable_claims,
    setups,
    transition_claims,
)

PREFIX = "gate-density-"
STUDIES = ("transition", "reachable", "compounding", "pruning", "privacy", "fine-tuning")


@pytest.mark.parametrize("name", STUDIES)
def test_every_trial_runs_and_every_claim_gets_a_verdict(whole, name):
    whole(name, excuse="")


def test_claims_17_to_24_and_experiments_18_to_31_are_there():
    names = {c.id.split("/")[1] for c in all_claims("gate-density")}
    assert {f"C{i}" for i in range(17, 25)} <= names
    elsewhere = {"E19": "C18", "E24": "C23"}
    for number in range(18, 32):
        assert any(n.split("-")[0] == elsewhere.get(f"E{number}", f"E{number}") for n in names), number


@pytest.mark.parametrize("claim", ["C19", "C20"])
def test_lemma_a1_and_theorem_a2_are_errata_with_a_counterexample(smoke, claim):
    name = f"gate-density/{claim}"
    found = run(PREFIX + "compounding", "smoke", "inline", results=smoke.results, claims=[name], progress=False)
    verdict = found.verdicts[name]
    assert verdict.status == "erratum", str(verdict)


def test_errata_can_fail():
    """Without a counterexample the lemma stands; with a violated correction it is no erratum."""
    row = {"printed_worst": 0.9, "printed_violations": 0.0, "corrected_worst": 0.8, "corrected_violations": 0.0}
    assert compounding_claims.lemma_a1.single([row]).status == "holds"
    assert (
        compounding_claims.lemma_a1.single([{**row, "printed_worst": 2.0, "corrected_violations": 0.1}]).status
        == "fails"
    )
    bound = {"alpha": 1.0, "active": [1.0], "bound": 0.98, "disagree": 1, "width": 1.0, "smallest": 0.02}
    assert compounding_claims.theorem_a2.single([bound]).status == "fails"


def test_adam_is_best_and_the_loss_has_its_minimum_already_at_smoke_scale(smoke):
    run = smoke("transition")
    ours = setups.first(run.rows)
    for claim in (transition_claims.best_at_20, transition_claims.loss_minimum, transition_claims.collinear):
        assert claim.single(ours).status == "holds", str(claim.single(ours))
    for claim in ("E21", "E22", "E29-size"):
        agree, count = run.verdicts[f"gate-density/{claim}"].setups
        assert 1 <= agree <= count == 3, (claim, agree)  # two set-ups, one of them with both operands of IoU


def test_set_ups_are_named_and_the_attacks_state_their_convergence(smoke):
    verdicts = smoke("reachable").verdicts
    levels = verdicts["gate-density/E22-levels"]
    assert levels.status in ("underspecified", "not-judged") and "sobel_x × 1, checkerboard" in levels.words, str(
        levels
    )


def _setups(curves, alphas=(1, 1.5, 2, 3, 5, 7, 10, 13, 16, 20, 25, 30, 40, 60), **more):
    """Rows of set-ups: name of the kernel, whether its target is reachable, and its IoU by stiffness."""
    rng = np.random.default_rng(0)
    base = {"scale": 1.0, "draw": 0, "picture": "checkerboard", "padding": "zero", "filled": 0.5, **more}
    return [
        {
            **base,
            "kernel": k,
            "reachable": r,
            "alpha": float(a),
            "iou": (c(float(a)) + rng.normal(0, 0.002, 5)).tolist(),
        }
        for k, r, c in curves
        for a in alphas
    ]


def _fall(at):
    return lambda a: float(transition_claims.rec.curve(np.array([a]), 0.782, at, 4.0)[0])


@pytest.mark.parametrize(
    ("midpoints", "status"), [((28.5, 29.5), "holds"), ((22.0, 44.0), "underspecified"), ((20.0, 22.0), "fails")]
)
def test_one_midpoint_is_judged_over_the_set_ups(midpoints, status):
    rows = _setups([("sobel_x", bool(i), _fall(at)) for i, at in enumerate(midpoints)])
    verdict = reachable_claims.transition.judge(rows)
    assert verdict.status == status, str(verdict)


@pytest.mark.parametrize(
    ("random", "last", "status"),
    [((0.7, 0.97), 0.5, "holds"), ((0.0, 0.97), 0.5, "underspecified"), ((0.7, 0.97), 0.9, "fails")],
)
def test_a_random_kernel_has_a_range_and_no_value(random, last, status):
    def flat(value):
        return lambda a: value

    named = {"identity": 1.0, "avg_blur": 1.0, "sobel_x": 0.83, "laplacian": last}
    rows = _setups([(k, False, flat(v)) for k, v in named.items()], alphas=(40,))
    rows += [{**r, "draw": i} for i, v in enumerate(random) for r in _setups([("random_norm", False, flat(v))], (40,))]
    verdict = reachable_claims.hardest.judge(rows)
    assert verdict.status == status, str(verdict)


def _attacked(errors, budgets=(600, 2400, 9600)):
    """Rows of twenty seeds: attack → stiffness → by budget how many pictures are recovered."""
    rows = [
        {"attack": a, "alpha": alpha, "iterations": n, "seed": s, "error": 0.0 if s < good else 0.5}
        for a, by in errors.items()
        for alpha, counts in by.items()
        for n, good in zip(budgets, counts)
        for s in range(20)
    ]
    sure = [{"attack": "closed form", "alpha": a, "iterations": 0, "seed": 0, "error": 1e-9} for a in (1.0, 40.0)]
    return rows + sure


def test_attacks_are_judged_over_budgets_until_they_have_converged():
    full = {1.0: (20, 20, 20), 40.0: (20, 20, 20)}
    falls = {**full, 40.0: (5, 5, 5)}
    settled = privacy_claims.privacy.judge(_attacked({"dlg": full, "idlg": falls, "inverting": full}))
    assert settled.status == "holds" and settled.setups == (3, 3), str(settled)  # the last budget, three criteria
    assert settled.measured == -0.75 and "the attacks have converged" in settled.note
    grows = {**full, 40.0: (5, 10, 20)}
    moving = privacy_claims.privacy.judge(_attacked({"dlg": full, "idlg": grows, "inverting": full}))
    assert moving.status == "underspecified" and moving.setups == (6, 9), str(moving)
    assert moving.span == (-0.75, 0.0) and "not converged" in moving.note
    assert moving.facts["idlg at α = 40, 2400 and 9600 iterations"] == [0.5, 1.0]
    assert moving.facts["closed form: largest squared error"] == 1e-9
    none = privacy_claims.privacy.judge(_attacked({"dlg": full, "idlg": falls, "inverting": falls}))
    assert none.status == "fails", str(none)
    ordered = privacy_claims.privacy.judge(
        _attacked({"dlg": full, "idlg": {**full, 40.0: (0, 0, 0)}, "inverting": full})
    )
    assert ordered.status == "holds"  # stiffness separates the outcomes: there is no finite slope
    raised = {1.0: (0, 0, 0), 40.0: (20, 20, 20)}
    assert privacy_claims.privacy.judge(_attacked({"dlg": full, "idlg": raised, "inverting": full})).status == "fails"


def test_what_counts_as_recovered_is_asked_too():
    rows = _attacked({a: {1.0: (20, 20), 40.0: (0, 0)} for a in privacy.ATTACKS}, budgets=(600, 2400))
    rows = [r if r["error"] == 0 or r["attack"] != "inverting" else {**r, "error": 0.02} for r in rows]
    verdict = privacy_claims.privacy.judge(rows)
    assert verdict.status == "underspecified" and verdict.setups == (1, 3), str(verdict)
    assert "squared error below 0.05 1 of 1" in verdict.facts["as printed, by choice"]
    assert [setup[1].split()[-1] for setup in privacy_claims.by_budget(rows)] == ["0.01", "0.05", "0.001"]


def test_the_slope_is_that_of_the_log_odds_on_log_stiffness():
    rows = privacy_claims.recovered(_attacked({"idlg": {1.0: (15,), 40.0: (5,)}}, budgets=(600,)))
    fit = privacy_claims.regression(rows, "idlg")
    assert fit is not None and fit.coefficients[1] == pytest.approx(-2 * np.log(3) / np.log(40), rel=1e-3)


def test_the_gradients_hold_the_picture_at_every_stiffness():
    victim = privacy.victims([1.0, 60.0], 3, 4)
    x = torch.rand(6, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shared = victim.gradients(x, torch.eye(10, dtype=torch.float64)[:6])
    assert float((privacy.closed_form(victim, shared) - x).abs().max()) < 1e-4


def test_a_longer_budget_goes_on_where_the_shorter_ended_and_leaves_what_is_solved(monkeypatch):
    monkeypatch.setattr(privacy, "SOLVED", 1e-4)
    victim = privacy.victims([1.0], 2, 4)
    x = torch.rand(2, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shared = victim.gradients(x, torch.eye(10, dtype=torch.float64)[:2])
    ends = privacy.attack(victim, shared, "idlg", [5, 150, 160], torch.arange(2))
    first, second, third = (float(o.max()) for _, o in ends)
    assert first > 1e-3 > 1e-4 > second == third
    assert not torch.equal(ends[0][0], ends[1][0]) and torch.equal(ends[1][0], ends[2][0])


@pytest.mark.parametrize("name", privacy.ATTACKS)
def test_objectives_are_those_of_the_whole_gradients(name):
    victim = privacy.victims([2.0, 20.0], 2, 4)
    g = torch.Generator().manual_seed(0)
    x, other = torch.rand(2, 4, 8, 8, generator=g, dtype=torch.float64)
    label = torch.eye(10, dtype=torch.float64)[:4]
    shared = victim.gradients(x, label)
    a, b = (torch.cat([t.flatten(1) for t in victim.gradients(v, label)], 1) for v in (other, x))
    size = b.square().sum(1)
    variation = other.diff(dim=-1).abs().mean((-1, -2)) + other.diff(dim=-2).abs().mean((-1, -2))
    exact = (a - b).square().sum(1) / size
    if name == "inverting":
        exact = 1 - torch.cosine_similarity(a, b, dim=1) + 1e-4 * variation
    assert torch.allclose(privacy._objective(name, victim.parts(other, label), shared, size, other), exact, atol=1e-12)


def test_judges_recognise_the_papers_own_numbers():
    rows = [{"check": "methods", "method": m, "alpha": 20.0, "iou": [v]} for m, v in transition_claims.TABLE_6.items()]
    assert transition_claims.levels_by_method(rows).status == "holds"
    assert transition_claims.best_at_20.single(rows).status == "holds"
    oracle = [
        {"check": "oracle", "method": m, "alpha": a, "iou": [v, v + 0.01], "active": [1 / a, 1 / a]}
        for m, v in (("adam", 0.9), ("oracle", 0.6), ("pgd", 0.7))
        for a in (1.0, 10.0, 16.0, 25.0)
    ]
    assert transition_claims.momentum.single(oracle).status == "holds"
    found = transition_claims.reversal.single(oracle)
    assert found.status == "holds" and found.measured == 1.0
    late = [{**r, "alpha": 40.0} if r["alpha"] == 1.0 else r for r in oracle]
    assert transition_claims.reversal.single(late).status == "holds"
    assert transition_claims.resolved.single(late).status == "fails"  # it is to be gone above 30
    even = [{**r, "iou": [0.8, 0.8]} if r["alpha"] == 40.0 else r for r in late]
    assert transition_claims.resolved.single(even).status == "holds"
    swapped = [{**r, "method": {"adam": "oracle", "oracle": "adam"}.get(r["method"], r["method"])} for r in oracle]
    assert transition_claims.momentum.single(swapped).status == "fails"
    assert transition_claims.momentum.single(swapped).measured == pytest.approx(-0.3)


def _levels(shift, padding):
    base = {"padding": padding, "scale": 1.0, "block": 8, "reachable": False, "check": "methods", "alpha": 20.0}
    return [{**base, "method": m, "iou": [v + shift]} for m, v in transition_claims.TABLE_6.items()]


@pytest.mark.parametrize(
    ("shifts", "status"),
    [((0.0, 0.01), "holds"), ((0.0, 0.3), "underspecified"), ((-0.3, 0.3), "underspecified"), ((0.1, 0.3), "fails")],
)
def test_printed_levels_within_the_range_of_the_set_ups_refute_nothing(shifts, status):
    rows = [row for shift, padding in zip(shifts, ("zero", "circular")) for row in _levels(shift, padding)]
    verdict = transition_claims.levels_anywhere.judge(rows)
    assert verdict.status == status, str(verdict)
    assert len(verdict.facts["pgd, least and most over the set-ups; printed"]) == 3


def test_the_channels_that_are_pruned_are_those_of_the_first_convolutions():
    net = models.build("resnet-mini,width=4", seed=0)
    scores = gates.channel_scores(net, torch.randn(8, 1, 8, 8), only="*.acts.0", mode="train")
    assert [len(s) for s in scores.sites.values()] == [4, 8, 16]
    assert all(layer == site.replace("acts.0", "convs.0") for site, layer in scores.layers.items())


def test_the_victims_gradients_are_autograds():
    v = privacy.victims([1.0, 30.0], 2, 4)
    g = torch.Generator().manual_seed(0)
    x, label = torch.rand(4, 8, 8, generator=g, dtype=torch.float64), torch.eye(10, dtype=torch.float64)[:4]
    w = [t.clone().requires_grad_() for t in (v.w, v.b, v.v, v.d)]
    patches = torch.nn.functional.unfold(x[:, None], 3, padding=1)
    s = torch.sigmoid(v.alpha[:, None, None] * (w[0] @ patches + w[1][..., None]))
    loss = -(label * torch.log_softmax((w[2] @ s.flatten(1)[..., None])[..., 0] + w[3], -1)).sum()
    for mine, auto in zip(v.gradients(x, label), torch.autograd.grad(loss, w)):
        assert torch.allclose(mine, auto, atol=1e-12)


@pytest.mark.parametrize("attack", privacy.ATTACKS)
def test_attacks_lower_their_objective(attack):
    v = privacy.victims([2.0], 2, 4)
    x = torch.rand(2, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shared = v.gradients(x, torch.eye(10, dtype=torch.float64)[:2])
    ((_, first),) = privacy.attack(v, shared, attack, [1], torch.arange(2))
    ((found, last),) = privacy.attack(v, shared, attack, [60], torch.arange(2))
    assert bool((last < 0.5 * first).all()), (first, last)
    assert float(found.min()) >= 0 and float(found.max()) <= 1


def test_stiffness_beats_idlg_already_at_smoke_scale(smoke):
    share = {
        a: np.mean(
            [r["error"] < privacy.CLOSE for r in smoke("privacy").rows if r["attack"] == "idlg" and r["alpha"] == a]
        )
        for a in (1.0, 60.0)
    }
    assert share[1.0] > share[60.0], share


def test_fine_tuning_keeps_examples_from_the_checkpoint():
    digits = data.load("digits")
    whole, seen, unseen = fine_tuning.parts(digits, 0.05)
    rows = {
        part: {tuple(x.flatten().tolist()) for x in d.train.x}
        for part, d in (("whole", whole), ("seen", seen), ("unseen", unseen))
    }
    assert len(seen.train) == len(unseen.train) == round(0.05 * len(digits.train))
    assert rows["seen"] <= rows["whole"] and not rows["unseen"] & rows["whole"]


def test_the_hypothesis_on_fine_tuning_is_registered_before_the_outcomes(smoke):
    from netvitals_lab import Results

    study = find_study("gate-density-fine-tuning")
    smoke("fine-tuning")
    with Results(smoke.results) as store:
        kept = store.hypothesis(study.name)
    assert kept is not None and kept.text == study.hypothesis and kept.trials_before == 0


def test_paper_scale_without_its_images_says_so():
    for name in ("pruning", "fine-tuning"):
        assert "NETVITALS_DATA" in find_study(f"gate-density-{name}").obstacle("paper")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: privacy.attack(privacy.victims([1.0], 1, 2), [], "phishing", [1], torch.arange(1)), "no attack"),
        (lambda: fine_tuning.parts(data.load("digits"), 1e-5), "none to fine-tune on"),
    ],
)
def test_wrong_input_gets_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()
