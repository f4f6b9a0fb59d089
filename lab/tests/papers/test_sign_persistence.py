"""P2: the tracker sees the flip where it is, agrees with Euler's identity, and keeps what it has seen."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from netvitals.drift import euler
from netvitals_lab import data, models
from netvitals_lab.papers.weight_drift.persistence import PersistenceTracker, flip_step, measured_steps


@pytest.fixture(scope="module")
def run():
    """Cross-entropy on digits: the referee's experiment, two epochs of it."""
    torch.manual_seed(0)
    digits = data.load("digits")
    net = models.build("mlp:64-128x4-10,bias=false,init=he", seed=0)
    optimizer = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)
    generator = torch.Generator().manual_seed(0)
    probe = digits.train.x[:256], digits.train.y[:256]
    tracker = PersistenceTracker(net, F.cross_entropy, per_epoch=12, epochs=2)
    pushes, step = [], 0
    for _ in range(2):
        for x, y in data.batches(digits, 128, generator):
            if tracker.wants(step):
                pushes.append(euler(net, F.cross_entropy, probe, mode="eval").mean)
                tracker.observe(step, probe)
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
            step += 1
    return tracker.report(), pushes


@pytest.mark.slow
def test_cross_entropy_on_digits_flips_early(run):
    seen, _ = run
    assert seen.push_flip is not None and 2 <= seen.push_flip <= 10, str(seen)
    for name, t in seen.t_flip.items():
        assert t is not None and t <= 12, f"{name} flips at {t}"


def test_push_is_the_inner_product_at_the_output(run):
    seen, pushes = run
    assert seen.push == pytest.approx(pushes, rel=1e-4, abs=1e-5)


def test_sign_agrees_with_the_push(run):
    seen, _ = run
    assert sum(seen.agreement.values()) / 4 > 0.75, seen.agreement  # the sum over units decides, not each of them
    first = seen.positive_share(0)
    assert all(math.isfinite(v) for v in first.values())
    assert max(seen.positive_share(1).values()) < 0.5


def test_steps_of_the_procedure():
    assert measured_steps(14, 10) == list(range(140))
    assert measured_steps(100, 2)[99:103] == [99, 100, 105, 110]
    with pytest.raises(ValueError, match="positive"):
        measured_steps(0)


def test_flip_uses_the_past_only():
    values = [1.0, 1.0, 1.0, 1.0, 1.0, -1.0, -9.0, 1.0]
    assert flip_step(range(8), values) == 6
    assert flip_step(range(8), values[:6]) is None
    assert flip_step(range(3), [math.nan, 1.0, -2.0], smoothing=2) == 2


def test_a_broken_loss_keeps_the_past():
    net = models.build("mlp:4-8-2", seed=0)
    tracker = PersistenceTracker(net, F.cross_entropy, per_epoch=4)
    batch = torch.randn(8, 4), torch.randint(2, (8,))
    tracker.observe(0, batch)
    with torch.no_grad():
        net.head.weight.fill_(math.nan)
    with pytest.raises(ValueError, match="1 looks before it are kept"):
        tracker.observe(1, batch)
    assert tracker.report().steps == (0,)
    with pytest.raises(ValueError, match="steps go up"):
        tracker.observe(0, batch)
