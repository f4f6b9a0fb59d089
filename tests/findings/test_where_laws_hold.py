"""Rules that were wrong on the healthy, and laws that are stated only where they hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.capture import Measurement
from netvitals.findings import diagnose

READINGS = 120


class Source:
    """Measurements and metadata in memory, as a checkup carries them."""

    def __init__(self, meta: dict | None = None) -> None:
        self.measurements: list[Measurement] = []
        self.arrays: list = []
        self.meta = meta or {}

    def rules(self, name: str) -> list:
        found = diagnose(self)
        assert not [c for c in found.checked if c.trouble], [c.trouble for c in found.checked if c.trouble]
        return [f for f in found.all if f.rule == name]


def _with_loss(values, chance: float | None = None) -> Source:
    source = Source()
    source.measurements += [Measurement(i, "loss", "model", "loss", float(v)) for i, v in enumerate(values)]
    if chance is not None:
        source.measurements += [Measurement(i, "outputs", "head", "chance", chance) for i in range(0, len(values), 4)]
    return source


def _jump(usual: float, top: float, begun: float) -> np.ndarray:
    """A loss that has fallen, with 5 % of noise, and jumps for three measurements."""
    noise = 1 + 0.05 * np.random.default_rng(0).standard_normal(READINGS)
    values = np.where(np.arange(READINGS) < 30, begun, usual) * noise
    values[80:83] = top
    return values


def test_a_jump_of_a_converged_loss_is_no_spike():
    """0.007 to 0.07 is a thirtieth of the way back to guessing, ln 10."""
    assert not _with_loss(_jump(0.007, 0.07, 0.007), chance=np.log(10)).rules("loss spike")
    assert not _with_loss(_jump(0.007, 0.07, 2.3)).rules("loss spike")  # from where the run began
    (found,) = _with_loss(_jump(0.007, 0.2, 0.007), chance=np.log(10)).rules("loss spike")
    assert found.since == 80 and "0.2" in found.what


def test_a_converged_loss_that_doubles_does_not_rise_again():
    """0.007 to 0.02 is less than a hundredth of the way back to guessing."""
    rising = lambda end: np.r_[_jump(0.007, 0.007, 2.3)[:80], np.linspace(0.007, end, READINGS - 80)]
    assert not _with_loss(rising(0.02), chance=np.log(10)).rules("loss rises")
    assert _with_loss(rising(0.3), chance=np.log(10)).rules("loss rises")
    assert _with_loss(rising(0.02)[30:]).rules("loss rises")  # where guessing is not known and the run began low


def test_where_guessing_is_not_known_a_jump_counts_by_its_own_size():
    (found,) = _with_loss(_jump(0.007, 0.07, 0.007)).rules("loss spike")
    assert found.evidence[0].before == pytest.approx(0.007, rel=0.1)


@pytest.mark.parametrize("tied", [False, True])
def test_an_embedding_is_drawn_as_torch_draws_it_under_any_name(tied):
    """Rows of unit variance are torch's default; where they are the readout too, the first loss tells."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok, self.middle, self.head = nn.Embedding(64, 48), nn.Linear(48, 48), nn.Linear(48, 64, bias=False)
            if tied:
                self.head.weight = self.tok.weight

        def forward(self, x):
            return self.head(self.tok(x) + torch.relu(self.middle(self.tok(x))))

    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with nv.watch(model, optimizer, every=2) as watch:
        for _ in range(20):
            x = torch.randint(0, 64, (8, 16))
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), (3 * x + 1).flatten() % 64)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
    found = [f for f in watch.findings().all if f.rule == "initialisation too large"]
    assert bool(found) is tied, found


def _momentum(value: float) -> Source:
    source = _with_loss(2.3 * np.exp(np.linspace(0, 3, READINGS)))
    for i in range(0, READINGS, 2):
        source.measurements.append(Measurement(i, "gradients", "a.weight", "update_ratio", 0.3))
        source.measurements.append(Measurement(i, "optimizer", "group 0", "momentum", value))
    return source


@pytest.mark.parametrize(
    ("momentum", "kind"), [(0.995, "restart_momentum"), (0.9, "restart_rate"), (0.95, "restart_rate")]
)
def test_too_much_momentum_has_advice_of_its_own(momentum, kind):
    (found,) = _momentum(momentum).rules("learning rate too high")
    assert found.remedy.kind == kind
    assert ("200 steps" in found.advice) == (kind == "restart_momentum")


@pytest.mark.parametrize(("op", "states"), [("relu", True), ("gelu", False)])
def test_conservation_is_stated_across_homogeneous_activations_only(op, states):
    meta = {
        "sites": [{"name": "act", "kind": "activation", "op": op, "module": "act"}],
        "activations": {"act": op},
    }
    source = Source(meta)
    source.measurements += [
        Measurement(i, "imbalance", "a→b", "relative", 0.95 * i / READINGS) for i in range(READINGS)
    ]
    (found,) = source.rules("imbalance growth")
    assert ("Gradient flow conserves the difference" in found.why) is states
    assert ("only with ReLU-like activations" in found.why) is not states
