"""A traced pass keeps no more than it has room for: what a checkpoint lets go is let go."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import netvitals as nv
from netvitals.capture import Vital
from netvitals.capture.engine.planning import live_trace


class Height(Vital):
    name = "height"

    def activation(self, recorder, view):
        recorder.write(view.site, ("max",), view.a.max())


class Deep(nn.Module):
    """Many inline activations in checkpoints; notes how many of their tensors are alive at the end of the pass."""

    def __init__(self, depth=8):
        super().__init__()
        self.layers, self.alive = nn.ModuleList(nn.Linear(16, 16) for _ in range(depth)), 0

    def forward(self, x):
        made = []

        def block(layer, x):
            h = layer(x)
            made.append(weakref.ref(h))
            return h * torch.sigmoid(h)

        for layer in self.layers:
            x = checkpoint(block, layer, x, use_reentrant=False)
        gc.collect()
        self.alive = sum(ref() is not None for ref in made)
        return x


def train(model, steps=3):
    torch.manual_seed(0)
    with nv.watch(model, every=1, vitals=[Height()]) as watching:
        alive = []
        for _ in range(steps):
            model(torch.randn(32, 16)).square().mean().backward()
            alive.append(model.alive)
            watching.step()
    return alive, watching


def test_what_fits_is_kept_and_read_on_the_first_step():
    alive, watching = train(Deep())
    assert alive[0] == 8 and len({r.site for r in watching.measurements if r.step == 0}) == 8


@pytest.mark.parametrize("room", [0, 5_000])
def test_what_does_not_fit_is_let_go_said_and_read_on_the_next_step(room, monkeypatch):
    monkeypatch.setattr(live_trace, "ROOM", room)
    alive, watching = train(Deep())
    assert alive[0] <= 2
    read = {step: {r.site: r.value for r in watching.measurements if r.step == step} for step in range(3)}
    assert len(read[0]) < 8 and len(read[1]) == len(read[2]) == 8
    assert "not enough memory" in watching.skipped["silu()#8 (traced pass)"]


def test_names_and_numbers_are_the_same_with_and_without_room(monkeypatch):
    torch.manual_seed(1)
    model = Deep()
    with_room = {(r.step, r.site): r.value for r in train(model)[1].measurements}
    monkeypatch.setattr(live_trace, "ROOM", 0)
    without = {(r.step, r.site): r.value for r in train(model)[1].measurements}
    assert without == {key: value for key, value in with_room.items() if key[0] > 0}
