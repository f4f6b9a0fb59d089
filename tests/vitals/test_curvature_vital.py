"""Curvature as a vital sign: jumps, its budget of time, what it writes, and that training does not feel it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals import curvature
from netvitals.vitals import Curvature


def net_of(width=12, seed=0):
    torch.manual_seed(seed)
    parts = [nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3)]
    return nn.Sequential(*parts)


def batch(width=12, n=24):
    g = torch.Generator().manual_seed(7)
    return torch.randn(n, width, generator=g), torch.randint(0, 3, (n,), generator=g)


def test_it_sees_a_jump():
    net = net_of()
    seen = Curvature(net, F.cross_entropy, batch(), min_steps=10, share=1e9)
    for step in range(21):
        seen.step(step)
        if step == 15:
            with torch.no_grad():
                net[-1].weight.mul_(5)
    assert [s for s, _ in seen.history] == [0, 10, 20]
    assert any(j.step == 20 and j.metric == "resonance" for j in seen.jumps)
    assert not any(j.step == 10 for j in seen.jumps)
    where, values, errors = seen.series("resonance", "1", "3")
    assert where == [0, 10, 20] and values[2] > 2 * values[1] and len(errors) == 3
    assert "went from" in str(seen.jumps[0])


def test_it_keeps_its_budget():
    miser = Curvature(net_of(), F.cross_entropy, batch(), min_steps=1, share=0.0)
    for step in range(3):
        miser.step(step)
    assert len(miser.history) == 1 and miser.passed_over == [1, 2]


def train(vitals, probe, steps=7, **options):
    """A net with everything that could be disturbed: batch statistics, dropout, an in-place activation."""
    torch.manual_seed(3)
    net = nn.Sequential(
        nn.Linear(6, 8),
        nn.BatchNorm1d(8),
        nn.ReLU(inplace=True),
        nn.Dropout(0.3),
        nn.Linear(8, 8),
        nn.GELU(),
        nn.Linear(8, 3),
    )
    opt = torch.optim.Adam(net.parameters(), lr=0.05)
    x, y = torch.randn(32, 6), torch.randint(0, 3, (32,))
    watching = None if vitals is None else nv.watch(net, optimizer=opt, every=2, probe=probe, vitals=vitals, **options)
    for _ in range(steps):
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if watching is not None:
            watching.step(loss)
    if watching is not None:
        watching.close()
    state = [t.detach().clone() for t in (*net.state_dict().values(), *(p.grad for p in net.parameters()))]
    return state, torch.rand(3), watching


def probe():
    g = torch.Generator().manual_seed(1)
    return torch.randn(16, 6, generator=g), torch.randint(0, 3, (16,), generator=g), F.cross_entropy


def test_training_is_the_same_bit_for_bit():
    plain, draw, _ = train(None, None)
    watched, other, seen = train([Curvature(min_steps=2, share=1e9)], probe())
    assert {r.step for r in seen.measurements if r.vital == "curvature"} == {0, 2, 4, 6}
    assert all(torch.equal(a, b) for a, b in zip(plain, watched)) and torch.equal(draw, other)


def test_measurements_are_those_of_interlayer_at_every_node_and_pair():
    vital = Curvature(min_steps=1, share=1e9, mode="eval", probes=9, nodes=["0", "4", "5"], sharpness=False)
    _, _, seen = train([vital], probe(), steps=1)
    (_, found) = vital.history[0]
    read = {(r.site, r.metric): r.value for r in seen.measurements if r.vital == "curvature"}
    assert read.pop(("model", "cost")) == pytest.approx(found.cost)
    n = len(found.nodes)
    assert n == 3 and len(read) == 6 * n + 6 * n * (n - 1) // 2
    for i, v in enumerate(found.nodes):
        for metric in ("resonance", "gn_gap", "stable_rank"):
            assert read[v, metric] == getattr(found, metric)[i, i]
            assert read[v, f"{metric}_stderr"] == getattr(found, f"{metric}_stderr")[i, i]
        for j in range(i + 1, n):
            for metric in ("resonance", "coupling", "gn_gap"):
                assert read[f"{v}→{found.nodes[j]}", metric] == getattr(found, metric)[i, j]
    arrays = {a.metric: a.value for a in seen.arrays if a.vital == "curvature"}
    assert arrays["coupling"] == pytest.approx(found.coupling, rel=1e-6)
    assert {a.shape for a in arrays.values()} == {(n, n)} and np.isfinite(arrays["resonance"]).all()


def test_a_checkup_measures_it_once():
    net, (x, y) = net_of(), batch()
    found = nv.checkup(net, F.cross_entropy, (x, y), vitals=["curvature"])
    assert found.curvature is not None and "vital sign" in found.curvature_note
    series = [(r.site, r.metric) for r in found.measurements if r.vital == "curvature"]
    assert len(series) == len(set(series)) > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_steps": 0}, "at least 1"),
        ({"share": -0.1}, "must not be negative"),
        ({"alert": ["heat"]}, "got 'heat'"),
    ],
)
def test_wrong_options_get_a_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        Curvature(**options)


def test_without_a_model_it_says_what_to_give():
    with pytest.raises(ValueError, match="needs a model"):
        Curvature().measure(0)


def test_sharpness_and_traces_are_those_of_the_parameters_hessian():
    torch.manual_seed(0)
    net, (x, y) = net_of().double(), batch()
    x = x.double()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    vital = Curvature(min_steps=1, share=1e9, mode="eval", probes=400)
    with nv.watch(net, optimizer=opt, every=1, probe=(x, y, F.cross_entropy), vitals=[vital]) as watching:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        watching.step(loss)
    with curvature.operators(net, F.cross_entropy, (x, y)) as of:
        h, sizes = of.whole().dense(), [p.numel() for p in net.parameters()]
    read = {(r.site, r.metric): r.value for r in watching.measurements if r.vital == "curvature"}
    top = float(torch.linalg.eigvalsh(h)[-1])
    assert read["model", "sharpness"] == pytest.approx(top, rel=0.03)
    assert read["model", "sharpness_edge"] == pytest.approx(read["model", "sharpness"] / 20)
    first = float(h.diagonal()[: sizes[0] + sizes[1]].sum())
    assert abs(read["0", "trace"] - first) < 4 * read["0", "trace_stderr"]
    assert read["model", "cost"] > 0


def test_a_look_begins_where_the_last_one_ended():
    net = net_of(24)
    seen = Curvature(net, F.cross_entropy, batch(24), min_steps=1, share=1e9)
    seen.measure(0)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.001 * torch.randn_like(p))
    seen.measure(1)
    first, second = seen.looks
    assert second.steps < first.steps, (first.steps, second.steps)
    assert second.sharpness == pytest.approx(first.sharpness, rel=0.1)
    assert first.vector is None, "only the last vector is kept"
