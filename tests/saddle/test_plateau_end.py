"""``saddle.plateau``: one function, asked again and again while a network trains."""

import copy
import math

import pytest
import torch
from torch import nn

from netvitals import saddle

X = torch.randn(128, 6, generator=torch.Generator().manual_seed(0))
BATCH = X, X[:, :1]


def chain(scale=0.05):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(6, 16, bias=False), nn.Linear(16, 1, bias=False))
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(scale)
    return net


def asked(every=4, steps=400, net=None, lr=0.02):
    """Forecasts of a run, and the step at which its loss had halved."""
    net = chain() if net is None else net
    opt = torch.optim.SGD(net.parameters(), lr=lr)
    made, half = [], math.inf
    for step in range(steps):
        loss = nn.functional.mse_loss(net(X), BATCH[1])
        if loss <= 0.5 * BATCH[1].square().mean():
            half = step
            break
        if step % every == 0:
            made.append(saddle.plateau(net, "mse", BATCH, optimizer=opt, step=step, earlier=made[-1] if made else None))
        opt.zero_grad()
        loss.backward()
        opt.step()
    return made, half


def test_one_measurement_tells_when_the_plateau_is_left_and_several_when_the_loss_has_halved():
    made, half = asked()
    assert made[0].known and made[0].drop == saddle.LEAVES and made[0].step < half < math.inf
    later = [f for f in made[4:] if f.known]
    assert len(later) > 5 and all(f.drop == 0.5 for f in later)
    near = min(later, key=lambda f: abs(f.at - 0.75 * half))
    assert abs(near.step - half) < 0.1 * half, (near, half)
    assert len(made[-1].looks) == len(made) and len(made[-1].told) == len(made) - 1
    assert all(not t.looks for t in made[-1].told)


def test_a_model_is_left_as_it_was():
    net = chain()
    before, state = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    first = saddle.plateau(net, "mse", BATCH, optimizer=0.1)
    saddle.plateau(net, "mse", BATCH, optimizer=0.1, step=5, earlier=first)
    torch.testing.assert_close(dict(net.state_dict()), dict(before), rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state) and all(p.grad is None for p in net.parameters())


def test_what_it_cannot_tell_it_says():
    net = chain()
    first = saddle.plateau(net, "mse", BATCH, optimizer=0.1)
    changed = saddle.plateau(net, "mse", BATCH, optimizer=0.2, step=5, earlier=first)
    assert "the learning rate has changed since the first measurement" in changed.reason
    assert "learning rate is zero" in saddle.plateau(net, "mse", BATCH, optimizer=0.0).reason
    rms = torch.optim.RMSprop(net.parameters())
    assert "RMSprop has no law here" in saddle.plateau(net, "mse", BATCH, optimizer=rms).reason
    with pytest.raises(ValueError, match="got 0 after 0"):
        saddle.plateau(net, "mse", BATCH, optimizer=0.1, step=0, earlier=first)
