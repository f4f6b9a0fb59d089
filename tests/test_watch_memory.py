"""Watching for ever costs no more memory than watching for a while."""

import gc
import tracemalloc

import pytest
import torch
from torch import nn

import netvitals as nv

OBSERVATION = ["gates", "gradients"]


def live_tensors():
    gc.collect()
    return sum(1 for o in gc.get_objects() if type(o) is torch.Tensor)


def traced():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.slow
def test_two_thousand_watched_steps():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(5, 3)
    # what forecasts remember is bounded too, and has a test of its own: it keeps old entries for long
    with nv.watch(model, optimizer=optimizer, every=1, vitals=OBSERVATION, forecasts=False) as watching:

        def train(steps):
            for _ in range(steps):
                loss = model(x).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                watching.step(loss)

        def most_tensors():
            """Of several steps: what is not written yet comes and goes."""
            counts = []
            for _ in range(20):
                train(7)
                counts.append(live_tensors())
            return max(counts)

        train(660)
        tensors, measurements = most_tensors(), len(watching.measurements)
        tracemalloc.start()
        train(600)  # from here on all that the history holds is known to the tracer
        before = traced()
        train(600)
        grown = traced() - before
        tracemalloc.stop()
        assert len(watching.measurements) <= measurements
        assert most_tensors() <= tensors + 3
    assert grown < 200_000, f"{grown} bytes more after 600 steps"
