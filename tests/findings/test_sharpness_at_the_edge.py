"""The sharpness that the curvature vital sign records, held against the edge of the optimizer in use."""

import torch
from torch import nn

import netvitals as nv
from netvitals.vitals.curvature import Curvature


def watched(optimizer_of, steps=34):
    """The quadratic (9 w₁² + w₂²)/2, whose largest eigenvalue is 9, looked at every twelve steps."""
    net = nn.Sequential(nn.Linear(2, 1, bias=False))
    x, y = torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    with torch.no_grad():
        net[0].weight.zero_()
    optimizer = optimizer_of(net.parameters())
    sign = Curvature(nodes=["0"], min_steps=12, share=10.0, probes=4)
    probe = (x, y, nn.functional.mse_loss)
    with nv.watch(net, optimizer=optimizer, every=1, probe=probe, vitals=["default", sign]) as vitals:
        for _ in range(steps):
            loss = nn.functional.mse_loss(net(x), y) + 1.0
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            vitals.step(loss)
    return [f for f in vitals.findings().all if f.rule == "edge of stability"]


def test_a_sharpness_beyond_the_edge_is_told_and_one_below_is_not():
    found = watched(lambda p: torch.optim.SGD(p, lr=0.3))  # the edge is 2 / 0.3 = 6.7
    assert len(found) == 1 and "1.3" in found[0].what and found[0].severity == "note"
    assert any(e.metric == "sharpness_edge" for e in found[0].evidence)
    assert not watched(lambda p: torch.optim.SGD(p, lr=0.2))  # the edge is 10


def test_momentum_moves_the_edge_and_an_adaptive_optimizer_has_none():
    assert not watched(lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9))  # 2 · 1.9 / 0.3 = 12.7
    assert not watched(lambda p: torch.optim.Adam(p, lr=0.3))
