"""A step that goes into a CUDA graph is let alone: what we did there would be done again on every replay.

There is no such device here: torch is made to say that the stream is being captured.
"""

import torch
from torch import nn

import netvitals as nv


def test_nothing_is_done_while_a_step_is_captured_and_calls_of_step_count_afterwards(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    copied = []
    times = torch._foreach_mul
    monkeypatch.setattr(torch, "_foreach_mul", lambda *args: copied.append(1) or times(*args))
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    x = torch.randn(8, 3)
    with nv.watch(model, optimizer, every=1, forecasts=False) as vitals:
        vitals._hooks.on_cuda = True
        model(x).square().mean().backward()  # captured
        optimizer.step()
        assert not copied and not vitals.measurements
        assert "CUDA graph" in vitals.skipped["model"] and "probe=" in vitals.skipped["model"]
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        for replay in range(3):  # the graph moves the parameters without the optimizer
            vitals.step(1.0 + replay)
        losses = {r.step: r.value for r in vitals.measurements if r.vital == "loss"}
    assert losses == {0: 1.0, 1: 2.0, 2: 3.0}


def test_a_fixed_batch_is_looked_at_beside_a_captured_step(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    captured = [False]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: captured[0])
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    probe = (x, y, nn.functional.mse_loss)
    with nv.watch(model, optimizer, every=1, probe=probe, vitals=["gates"], forecasts=False) as vitals:
        vitals._hooks.on_cuda = True
        captured[0] = True
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        captured[0] = False
        for _ in range(3):
            vitals.step(1.0)
        steps = {r.step for r in vitals.measurements if r.vital == "gates"}
    assert steps >= {0, 1, 2}, steps
