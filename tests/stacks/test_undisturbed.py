"""Training is the same, bit for bit, however a watch is fed."""

import copy
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 3))


def train(begin, micro=3, steps=6, say=False, kind=torch.optim.Adam):
    net = model()
    optimizer = kind(net.parameters(), lr=0.01)
    random.seed(0), np.random.seed(0), torch.manual_seed(1)
    watching = begin(net, optimizer)
    for _ in range(steps):
        for _ in range(micro):
            loss = F.cross_entropy(net(torch.randn(5, 6)), torch.randint(0, 3, (5,)))
            (loss / micro).backward()
            if watching is not None and say:
                watching.step(loss)
        optimizer.step()
        optimizer.zero_grad()
    if watching is not None:
        watching.close()
        assert watching._step == steps
    hooks = [h for m in net.modules() for h in (*m._forward_hooks, *m._forward_pre_hooks)]
    assert hooks == []
    return copy.deepcopy((net.state_dict(), optimizer.state_dict())), torch.get_rng_state(), random.getstate()


def same(one, two):
    leaves = torch.utils._pytree.tree_leaves
    pairs = list(zip(leaves(one), leaves(two), strict=True))
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


WATCHES = {
    "given": lambda m, o: nv.watch(m, o, every=1),
    "noticed": lambda m, o: nv.watch(m, every=2),
    "logged": lambda m, o: nv.watch(m, o, every=1, log=lambda step, numbers: torch.rand(3)),
    "parts": lambda m, o: nv.watch(list(m.children()), o, every=1),
    "probe": lambda m, o: nv.watch(m, o, every=2, probe=(torch.ones(4, 6), torch.zeros(4).long(), F.cross_entropy)),
}


@pytest.mark.parametrize("say", [False, True])
@pytest.mark.parametrize("how", WATCHES)
def test_accumulated_steps_are_not_disturbed(how, say):
    assert same(train(lambda m, o: None), train(WATCHES[how], say=say))
