"""Vital signs of dead directions while a model trains, and the findings they lead to."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import netvitals as nv
from netvitals.capture import Measurement
from netvitals.findings import diagnose
from netvitals.singular import kfac
from netvitals.singular.checkpoint.stream import sigma_stream
from netvitals.singular.checkpoint.tracker import change_points, condition_jumps, phase
from netvitals.vitals import REGISTRY, KFACFloor, Orders, StreamFloor
from netvitals_lab import models


def train(model, x, y, vitals, *, steps=4, every=1, lr=1e-3, change=None):
    opt = torch.optim.SGD(model.parameters(), lr=lr)
    with nv.watch(model, optimizer=opt, every=every, vitals=vitals) as seen:
        for i in range(steps):
            if change is not None:
                change(i)
            opt.zero_grad()
            out = model(x)
            loss = F.cross_entropy(out.flatten(0, -2), y.flatten()) if y.dtype == torch.long else F.mse_loss(out, y)
            loss.backward()
            opt.step()
            seen.step(loss)
    return seen


def values(seen, metric, site=None):
    return [r.value for r in seen.measurements if r.metric == metric and (site is None or r.site == site)]


def test_stream_floor_reads_the_smallest_singular_value():
    model = models.build("gpt-micro,depth=3,width=32,heads=2", seed=0)
    x, y = torch.randint(0, 256, (2, 8, 32), generator=torch.Generator().manual_seed(0))
    exact = sigma_stream(model, x, rows=10**6)
    seen = train(model, x, y, [StreamFloor()], steps=2)
    sites = sorted({r.site for r in seen.measurements if r.vital == "stream_floor"})
    assert sites == ["blocks.0", "blocks.1", "blocks.2"]  # and not the rotations inside
    first = [values(seen, "sigma_r", s)[0] for s in sites]
    assert first == pytest.approx(exact.sigma[1:], rel=1e-3)
    assert values(seen, "ratio", "blocks.0")[0] == 1 and len(values(seen, "rank", "blocks.2")) == 2


def test_kfac_floor_is_the_empirical_factor():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))
    x, y = torch.randn(64, 6), torch.randint(0, 4, (64,))
    g = {n: kfac(model, "ce", (x, y), fisher="empirical")[n].G for n in ("0", "2")}
    seen = train(model, x, y, [KFACFloor(min_steps=1)], steps=1)
    spectrum = torch.linalg.eigvalsh(g["2"])
    assert values(seen, "zeros", "2") == [1]  # the logit shift
    assert values(seen, "lambda_min", "2")[0] == pytest.approx(float(spectrum[1]), rel=1e-3)
    assert values(seen, "condition", "2")[0] == pytest.approx(float(spectrum[-1] / spectrum[1]), rel=1e-3)
    assert values(seen, "trace", "0")[0] == pytest.approx(float(g["0"].trace()), rel=1e-4)


def test_a_layer_with_too_few_rows_is_left_out():
    model = nn.Sequential(nn.Linear(4, 50), nn.ReLU(), nn.Linear(50, 3))
    seen = train(model, torch.randn(10, 4), torch.randint(0, 3, (10,)), [KFACFloor(min_steps=1)], steps=1)
    assert {r.site for r in seen.measurements if r.vital == "kfac_floor"} == {"2"}


def test_watching_changes_nothing():
    def run(vitals):
        torch.manual_seed(0)
        model = models.build("gpt-micro,depth=2,width=16,heads=2", seed=0)
        x, y = torch.randint(0, 256, (2, 4, 16))
        train(model, x, y, vitals, steps=3)
        return [p.detach().clone() for p in model.parameters()], torch.get_rng_state()

    plain, state = run(["gates"])
    watched, other = run([StreamFloor(), KFACFloor(min_steps=1)])
    assert torch.equal(state, other) and all(torch.equal(p, q) for p, q in zip(plain, watched))


def test_orders_follow_a_unit_that_dies():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5, bias=False), nn.Tanh(), nn.Linear(5, 3, bias=False))
    x, y = torch.randn(40, 4), torch.randn(40, 3)

    def change(step):
        if step == 2:
            with torch.no_grad():
                model[0].weight[2], model[2].weight[:, 2] = 0, 0

    seen = train(model, x, y, [Orders(model, "mse", (x, y), min_steps=1, units=1)], steps=5, lr=0.0, change=change)
    assert values(seen, "order") == [1, 1, 2, 2, 2]
    assert values(seen, "limit")[-1] == 14 + 1.5  # four live units of 7 weights, and the crossing of the dead one
    found = [f for f in seen.findings() if f.rule == "order change"]
    assert len(found) == 1 and "from 1 to 2" in found[0].what and "step 2" in found[0].what


@pytest.mark.parametrize("seed", range(8))
def test_task_expansion_is_flagged_at_the_head(seed):
    """A head of 5 classes is trained, then 5 new classes arrive with random rows (Algorithm 1, X30)."""
    torch.manual_seed(seed)
    centres = 1.5 * torch.randn(10, 8)  # they overlap: on a memorised head κ(G) is a poor witness
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 5))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    with nv.watch(model, every=25, vitals=[KFACFloor(min_steps=25)]) as seen:
        for i in range(176):
            if i == 150:
                new = nn.Linear(32, 10)
                with torch.no_grad():
                    new.weight[:5], new.bias[:5] = model[2].weight, model[2].bias
                model[2].weight, model[2].bias = new.weight, new.bias
                opt = torch.optim.Adam(model.parameters(), lr=1e-2)
            y = torch.randint(0, 5 if i < 150 else 10, (512,))
            opt.zero_grad()
            loss = F.cross_entropy(model(centres[y] + torch.randn(512, 8)), y)
            loss.backward()
            opt.step()
            seen.step(loss)
    found = [f for f in seen.findings() if f.rule == "task expansion"]
    kappa = values(seen, "condition", "2")
    assert len(found) == 1 and "2" in found[0].sites, (kappa, values(seen, "lambda_max", "2"))
    assert {e.step for e in found[0].evidence if e.site == "2"} == {150}


def measurements(vital, site, metric, series):
    return [Measurement(10 * i, vital, site, metric, float(v)) for i, v in enumerate(series)]


def rules(found):
    return {f.rule: f for f in found}


def test_findings_from_made_up_measurements():
    found = rules(
        diagnose(
            [
                *measurements("stream_floor", "blocks.3", "ratio", [0.9, 0.4, 1e-4]),
                *measurements("kfac_floor", "head", "lambda_min", np.geomspace(1, 1e-4, 12)),
                *measurements("kfac_floor", "fc", "lambda_min", np.geomspace(1e-4, 1, 12)),
                *measurements("gauge_charges", "logit shift", "orbit_moved", [0, 0.2, 0.37]),
            ]
        )
    )
    assert "loses its weakest direction in blocks.3" in found["stream floor"].what
    assert "0.37" in found["gauge drift"].what
    both = [
        f
        for f in diagnose(measurements("kfac_floor", "head", "lambda_min", np.geomspace(1, 1e-4, 12)))
        if f.rule == "phase"
    ]
    assert "compress" in both[0].what


def test_healthy_measurements_give_no_finding():
    found = rules(
        diagnose(
            [
                *measurements("stream_floor", "blocks.3", "ratio", [0.9, 0.8, 1.1]),
                *measurements("kfac_floor", "head", "lambda_min", [1, 1.2, 0.9, 1, 1.1, 1.0, 0.95]),
                *measurements("kfac_floor", "head", "condition", [10, 12, 9, 11, 10, 13]),
                *measurements("orders", "model", "order", [1, 1, 1, 1]),
                *measurements("gauge_charges", "logit shift", "orbit_moved", [0, 1e-6, 1e-6]),
            ]
        )
    )
    assert not {"stream floor", "phase", "task expansion", "order change", "gauge drift"} & set(found)


def test_trackers():
    assert phase(range(8), np.geomspace(1, 0.01, 8)).name == "compression"
    assert "no rate" in str(phase(range(8), np.geomspace(0.01, 1, 8)))
    assert not change_points([0, 1, 2, 3], [1, 2, 1, 1])
    assert [c.after for c in change_points(range(6), [1, 1, 3, 3, 2, 2])] == [3, 2]
    assert not condition_jumps(range(5), [10, 10, 10, 10, 100], [5, 5, 5, 5, 1])  # λ_max fell: no new task
    assert condition_jumps(range(5), [10, 10, math.nan, 10, 100])[0].condition == pytest.approx(10)
    for bad in (lambda: phase([0, 1], [1, 2]), lambda: change_points([0], []), lambda: KFACFloor(0)):
        with pytest.raises(ValueError, match=r"at least four|one value for each|at least 1"):
            bad()


def test_the_metrics_that_optional_rules_ask_for_are_the_ones_that_vital_signs_write():
    from netvitals.findings import RULES

    written = {(name, metric) for name, vital in REGISTRY.items() for metric in vital.metrics}
    assert {need for r in RULES if r.optional for need in r.needs if need[0] != "loss"} <= written
