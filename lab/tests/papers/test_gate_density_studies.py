"""The studies of gate density at smoke scale: verdicts with their poolings, pictures, and the parts they rest on."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import netvitals_lab as lab
from netvitals import gates
from netvitals_lab import all_claims, all_studies, claims_of, find_study, models
from netvitals_lab import data as datasets
from netvitals_lab.engine.judging import fair
from netvitals_lab.engine.registry import find_claim
from netvitals_lab.papers.gate_density import _training as training
from netvitals_lab.papers.gate_density import arithmetic, arithmetic_claims, decay, sweep, table_claims
from netvitals_lab.papers.gate_density._recorder import TrajectoryRecorder, key
from netvitals_lab.training import train

PREFIX = "gate-density-"
MINE = ("foundations", "trajectories", "images", "sweep", "norms", "architectures", "decay", "forecast", "cnn")


def verdict_of(found, name):
    """What the judge says of the few seeds of a smoke run, of which no comparison may be made otherwise."""
    claim = find_claim(f"gate-density/{name}")
    verdict = claim.judge([r for r in found.rows if claim.rests_on(r)])
    few = replace(verdict, scale="smoke", seeds=verdict.seeds or 2)
    return fair(replace(claim, seeds=0), find_study(claim.study), few)


def status(found, **expected):
    got = {name: verdict_of(found, name.replace("_", "-")) for name in expected}
    assert {n: v.status for n, v in got.items()} == expected, {n: str(v) for n, v in got.items()}


def test_every_claim_from_c1_to_c16_has_a_study_that_decides_it():
    claims = {c.id: c for c in all_claims("gate-density")}
    names = {s.name for s in all_studies("gate-density")}
    assert not [i for i in range(1, 17) if f"gate-density/C{i}" not in claims]
    assert all(claims[f"gate-density/C{i}"].study in names for i in range(1, 17))


@pytest.mark.parametrize("name", MINE)
def test_the_three_scales_name_networks_and_data_that_exist(name):
    study = find_study(f"gate-density-{name}")
    for scale in ("smoke", "small", "paper"):
        for config in study.configs(scale):
            if "data" in config:
                models.parse(config["network"], act=config["act"])
                assert config["data"].split(",")[0] in datasets.names()


def test_before_training(smoke):
    found = smoke("foundations")
    status(
        found,
        C1="holds",
        C2="holds",
        C3="holds",
        C7="holds",
        C11="holds",
        C15="holds",
        E1="underspecified",
        E1_zero_head="holds",
    )
    vgg = [r for r in found.rows if r.get("network") == "vgg11" and r["theta"] == 0.01]
    assert all(r["ratio"] > 0.65 and abs(r["element"] - 0.5) < 0.02 and r["valid"] < 0.6 for r in vgg)
    heads = [r for r in found.rows if r["check"] == "zero head"]
    assert all(r["vanished"] == (r["head"] == "zero") and r["local"] > 0.9 for r in heads)


def test_the_split_of_perceptrons_and_what_explains_it(smoke):
    found = smoke("trajectories")
    status(found, **{f"{name}-perceptron": "holds" for name in ("C4", "C6", "C8", "C12")})
    runs = [r for r in found.rows if r["quantity"] == "run" and r["optimizer"] == "sgd"]
    assert {r["act"] for r in runs} == {"relu", "gelu", "silu", "mish"} and len(runs) == 8
    for r in runs:
        assert all(r[f"{key(t)} change"] * (1 if r["act"] != "relu" else -1) > 0 for t in (0.01, 0.1))
        assert -1 <= r[f"{key(0.1)} rho"] <= 1 and r["channels@0.1"] == 96
        assert r["defined@0.1"] + r["constant@0.1"] + r["dropped@0.1"] == 96
    # the same predictor is judged on Adam and AdamW without being refitted, whatever comes out
    for name in ("C13-perceptron", "X-law-perceptron"):
        assert verdict_of(found, name).status in ("holds", "reproduced", "fails", "not-reproduced")
        assert found.verdicts[f"gate-density/{name}"].status == "not-judged"  # 2 seeds
    assert "not refitted" in next(c.statement for c in all_claims() if c.id == "gate-density/C13-perceptron")


def test_images_are_read_under_three_poolings_and_two_kinds_of_site(smoke):
    found = smoke("images")
    run = next(r for r in found.rows if r["quantity"] == "run")
    for pooling in ("element", "site", "channel"):
        for kind in ("all", "bn_direct", "post_add"):
            for theta in (0.001, 0.005, 0.01, 0.05, 0.1):
                assert math.isfinite(run[f"{key(theta, pooling, kind)} change"])
    sites = [r for r in found.rows if r["quantity"] == "site" and r["when"] == "last" and r["theta"] == 0.1]
    assert {r["follows"] for r in sites} == {"bn_direct", "post_add"} and len(sites) == 2 * 17
    verdict = found.verdicts["gate-density/C4"]
    assert verdict.status != "not-run" and "split" in verdict.measured and "by channel" in verdict.note
    for name in (
        "C4",
        "X-pooling",
        "X-law",
        "C6",
        "C8",
        "C12",
    ):
        assert verdict_of(found, name).status in ("holds", "reproduced", "not-reproduced", "fails"), name


def test_printed_tables_are_asked_of_a_small_cnn(smoke):
    found = smoke("cnn")
    for name in ("T1", "C13", "E12-adam", "E12-adamw", "E5", "E8", "A2-mean", "A2-tails"):
        assert verdict_of(found, name).status in ("reproduced", "not-reproduced"), name
    for name in ("C9", "C10", "T4", "E9-distance", "A2-sizes"):  # asked in every pooling, or moment
        assert verdict_of(found, name).setups[1] in (3, 6), name
    assert "paper's own table gives 9 of 9" in verdict_of(found, "C10").note
    assert "GroupNorm" in found.verdicts["gate-density/A2-accuracy"].note


def test_a_table_beside_ours_says_the_largest_distance():
    rows = [
        {"quantity": "run", "act": act, "seed": 0, "optimizer": o, "sigma first": 1.0, "sigma last": 1 + v + 0.02}
        for o, by in table_claims.SIGMA.items()
        for act, v in by.items()
    ]
    near = table_claims.sigma.judge(rows)
    assert near.status == "holds" and near.measured == pytest.approx(0.02)
    far = table_claims.sigma.judge([{**r, "sigma last": 1.0} for r in rows])
    assert far.status == "fails" and far.measured == pytest.approx(0.77)


def test_accuracy_with_groupnorm_is_paired_by_seed():
    rows = [
        {"quantity": "run", "norm": n, "act": a, "seed": s, "accuracy": 0.5 + 0.1 * s - 0.03 * (n == "group")}
        for n in ("batch", "group")
        for a in ("relu", "gelu")
        for s in range(5)
    ]
    found = table_claims.accuracy.judge(rows)
    assert found.status == "holds" and found.measured == pytest.approx(3.0) and found.seeds == 5
    assert table_claims.accuracy.judge([{**r, "accuracy": 0.5} for r in rows]).status == "fails"
    unlearnt = [{**r, "accuracy": 0.1} if r["norm"] == "group" else r for r in rows]
    assert "did not learn" in table_claims.accuracy.judge(unlearnt).note


def test_the_papers_numbers_against_each_other(tmp_path):
    """What no rounding reconciles is an erratum, what the text leaves open is underspecified, the rest holds."""
    found = lab.run(
        "gate-density-arithmetic", scale="small", engine="inline", results=tmp_path / "a.sqlite", progress=False
    )
    by = {c.partition("/")[2]: v for c, v in found.verdicts.items()}
    assert {n for n, v in by.items() if v.status == "holds"} == {"N9", "N15", "N19", "N19-20"}
    assert by["N8"].status == "erratum" and by["N8"].facts["follows"] == [0.0, 0.140625]
    assert by["N10"].measured == 2 / 2**20 and by["N6"].measured == 90
    assert by["N13"].measured == pytest.approx(1.849, abs=1e-3)
    assert by["N17"].status == "underspecified" and by["N17"].span == (0.1465, 0.4705)
    assert all(v.correction for v in by.values() if v.status == "erratum")


@pytest.mark.parametrize(("name", "printed"), [("prelu", 0.14), ("widths", 1.85), ("exponent", -0.748)])
def test_a_number_that_follows_is_no_erratum(name, printed):
    """The judge can be satisfied: with the right number in the printed one's place it holds."""
    (row,) = arithmetic.trial({"check": name})
    right = {**row, "printed": [printed - 0.005, printed + 0.005]}
    assert arithmetic_claims.compared([row]).status == "erratum"
    assert arithmetic_claims.compared([right]).status == "holds"


def test_thirteen_conditions_by_smoothness(smoke):
    found = smoke("sweep")
    runs = [r for r in found.rows if r["quantity"] == "run"]
    assert {r["act"] for r in runs} == {*sweep.THIRTEEN, *sweep.LADDER} and len(sweep.THIRTEEN) == 13
    index = {r["act"]: r["variance"] for r in runs}
    assert index["relu"] == pytest.approx(0.25, abs=0.003)  # of a gate that is open half of the time
    assert index["prelu"] == pytest.approx(0.1406, abs=0.002)  # (1 − 0.25)²/4: not the paper's 0.261 (N8)
    assert index["relu"] > index["softplus:50"] > index["softplus:20"] > index["softplus:10"] > index["softplus:5"]
    status(found, C14="reproduced")


def test_norms_and_architectures_are_judged_with_their_poolings(smoke):
    norms, nets = smoke("norms"), smoke("architectures")
    assert {r["norm"] for r in norms.rows} == {"batch", "group"}
    assert "by element" in norms.verdicts["gate-density/C5"].note
    assert verdict_of(norms, "C5").status in ("holds", "not-reproduced")
    kinds = {r["network"].split(",")[0]: r["kinds"] for r in nets.rows if r["quantity"] == "run"}
    assert set(kinds) == {"resnet-mini", "vgg-mini", "mixer-mini", "vit-mini"}
    assert kinds["vgg-mini"] == ["bn_direct"] and "post_add" in kinds["resnet-mini"]
    for name in ("C16", "E2", "E17"):
        assert verdict_of(nets, name).status in ("holds", "not-reproduced")
    run = next(r for r in nets.rows if r["quantity"] == "run")
    ranks = [run[f"rank_{d} first"] for d in ("entropy", "stable", "participation")]
    assert len({round(r, 3) for r in ranks}) == 3 and all(1 <= r <= 64 for r in ranks)


def test_the_amount_of_decay_and_not_its_coupling(smoke):
    found = smoke("decay")
    status(found, X_decay="holds", X_decay_signs="holds", X_exempt="holds")
    felt = [r["realised S"] for r in found.rows if r["quantity"] == "run" and r["optimizer"] == "adam"]
    assert felt == pytest.approx([2.44] * len(felt), rel=2 * decay.CLOSE)


def test_the_forecast_is_compared_with_what_came(smoke):
    found = smoke("forecast")
    spoken = [r for r in found.rows if r["quantity"] == "site" and r["spoke"]]
    assert spoken
    for r in spoken:
        assert r["hit"] == (np.sign(r["later"] - r["now"]) == np.sign(r["end"] - r["asked_at"]))
        assert 0 <= r["confidence"] <= 1 and math.isfinite(r["margin"])
    assert "came true" in found.verdicts["gate-density/X-forecast"].note


@pytest.mark.parametrize("name", MINE)
def test_every_claim_with_a_picture_draws_it(smoke, name):
    found = smoke(name)
    drawn = 0
    for claim in claims_of(find_study(f"gate-density-{name}")):
        verdict = found.verdicts[claim.id]
        if claim.plot is not None and verdict.status != "not-run":
            picture = claim.plot([r for r in found.rows if claim.rests_on(r)])
            assert picture.svg().startswith("<svg") and len(picture.legend) >= 1
            drawn += 1
    assert drawn


def test_a_record_holds_what_measuring_gives():
    data = datasets.load("digits")
    net = models.build("resnet-mini,width=4", seed=0, data=data)
    recorder = TrajectoryRecorder(data.probe.x, "relu")
    for epoch in (-1, 0, 1, 2):
        recorder(epoch, net, 0.5)
    first, run = recorder.rows[0], next(r for r in recorder.finish() if r["quantity"] == "run")
    report = gates.measure(net, data.probe.x, mode="train")
    for pooling in ("element", "site", "channel"):
        for kind in ("bn_direct", "post_add"):
            assert first[key(0.01, pooling, kind)] == report.density(0.01, pooling, kind)
    assert run[f"{key(0.01)} change"] == 0 and run[f"{key(0.01)} rho"] is None
    assert run["constant@0.01"] == run["channels@0.01"]
    assert first["gamma"] == 1 and first["beta"] == 0


@pytest.mark.parametrize("coupling", ["coupled", "decoupled"])
def test_without_a_gradient_both_decays_shrink_by_the_integrated_decay(coupling):
    data = datasets.load("digits")
    config = training.condition(coupling=coupling, epochs=100)
    recipe, beside = training.prepared(config, data)
    p = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    net = SimpleNamespace(named_parameters=list, modules=list)
    hook = training.OnStep(recipe, data, beside, net, lambda moment: {"p": p}, 1)
    optimizer = torch.optim.SGD([p], lr=recipe.lr, momentum=0.9, nesterov=True, weight_decay=recipe.weight_decay)
    for step in range(hook.total):
        optimizer.param_groups[0]["lr"] = recipe.lr * training.multiplier(recipe, step, hook.total, hook.per_epoch)
        p.grad = torch.zeros_like(p)
        optimizer.step()
        hook(SimpleNamespace(step=step + 1))
    assert hook.realised == [pytest.approx(2.44)]
    assert -math.log(p.item()) == pytest.approx(2.44, rel=0.03)


def test_decay_felt_under_adam_is_that_of_its_own_second_moment():
    data = datasets.load("digits")
    config = training.condition(optimizer="adam", S=0.01, epochs=2, network="mlp:64-16-10")
    recipe, _ = training.prepared(config, data)
    net = training.build(config, data, 0)
    meter = training.OnStep(recipe, data, 0.0, net, lambda m: dict(m.model.named_parameters()), 1)
    felt = 0.0

    def on_step(moment):
        nonlocal felt
        meter(moment)
        p = net.blocks[0].norm.weight
        state, group = moment.optimizer.state[p], moment.optimizer.param_groups[0]
        size = (state["exp_avg_sq"] / (1 - 0.999**moment.step)).sqrt() + 1e-8
        felt += float((group["lr"] * recipe.weight_decay / size).mean())

    train(net, data, replace(recipe, evaluate_on=0), on_step=on_step)
    assert meter.realised[0] == pytest.approx(felt, rel=1e-4)
    assert felt > 0.01


def test_images_that_are_not_there_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("NETVITALS_DATA", str(tmp_path))
    assert "cifar10" in find_study("gate-density-images").obstacle("small")
    assert find_study("gate-density-images").obstacle("smoke") == ""
