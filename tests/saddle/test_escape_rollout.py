"""The end of a plateau from one look: attention, gated blocks and chains against training, and what is refused."""

import math
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import netvitals as nv
from netvitals.saddle import escape_rollout
from netvitals.saddle.rollout import escape, looks


class Gated(nn.Module):
    def __init__(self, fused=False):
        super().__init__()
        self.up = nn.Linear(6, 48, bias=False) if fused else None
        self.gate, self.value = (None, None) if fused else (nn.Linear(6, 24, bias=False), nn.Linear(6, 24, bias=False))
        self.out = nn.Linear(24, 2, bias=False)

    def forward(self, x):
        gate, value = self.up(x).chunk(2, -1) if self.up is not None else (self.gate(x), self.value(x))
        return self.out(F.silu(gate) * value)


class Attention(nn.Module):
    def __init__(self, softmax=True, out=6):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(6, 6, bias=False) for _ in range(3))
        self.o, self.softmax = nn.Linear(6, out, bias=False), softmax

    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose(1, 2)
        scores = (scores / 6**0.5).softmax(-1) if self.softmax else scores / x.shape[1]
        return self.o(scores @ self.v(x))


class Fused(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, bias=False, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def chain(act=nn.Tanh, norm=False):
    middle = [nn.LayerNorm(24)] if norm else []
    return nn.Sequential(nn.Linear(6, 24, bias=False), *middle, act(), nn.Linear(24, 1, bias=False))


G = torch.Generator().manual_seed(0)
X, T = torch.randn(256, 6, generator=G), torch.randn(256, 4, 6, generator=G)
W, A = torch.randn(6, 6, generator=G) / 6**0.5, torch.randn(2, 6, 6, generator=G) / 6
LINE = X, X @ W[:, :1]
SQUARE = X, torch.einsum("bi,oij,bj->bo", X, A, X)
MEAN = T, 2 * (T.mean(1, keepdim=True) @ W).expand(-1, 4, -1)
MATCH = T, (T @ T.transpose(1, 2) / 12) @ T @ W[:, :1]
WIDE = T, MATCH[1].expand(-1, -1, 6)


def tiny(net, scale, seed=1):
    torch.manual_seed(seed)
    for p in net.parameters():
        nn.init.uniform_(p, -scale, scale)
    return net


def trained(net, batch, optimizer, steps=6000):
    """The step at which gradient descent has taken a twentieth of the resting loss away."""
    x, y = batch
    rest = float(F.mse_loss(torch.zeros_like(y), y))
    for step in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        if float(loss.detach()) < 0.95 * rest:
            return step
        loss.backward()
        optimizer.step()
    return math.inf


def scored(size, scale=0.01, seed=1):
    """Attention whose V and O are tiny, and whose queries and keys are not."""
    net = tiny(Attention(), scale, seed)
    with torch.no_grad():
        net.q.weight.mul_(size / scale)
        net.k.weight.mul_(size / scale)
    return net


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "batch", "scale", "lr", "momentum", "r"),
    [
        (Gated, SQUARE, 0.04, 0.3, 0.0, 3),
        (lambda: Gated(fused=True), SQUARE, 0.04, 0.02, 0.9, 3),
        (Attention, MEAN, 0.01, 0.1, 0.0, 2),
        (Fused, MEAN, 0.01, 0.02, 0.8, 2),
        (lambda: Attention(softmax=False, out=1), MATCH, 0.1, 0.1, 0.0, 4),
        (lambda: scored(4.0), MEAN, None, 0.1, 0.0, 2),  # a pattern that is there already, and stays
        (Attention, WIDE, 0.003, 0.1, 0.0, 2),  # V and O alone could not end it: Q and K join in
        (chain, LINE, 0.01, 0.02, 0.0, 2),
    ],
)
def test_gradient_descent_leaves_the_plateau_when_one_look_says(make, batch, scale, lr, momentum, r):
    net = tiny(make(), scale) if scale else make()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=momentum)
    told = escape_rollout(net, "mse", batch, optimizer=optimizer, step=0)
    true = trained(net, batch, optimizer)
    assert told.known and told.r == r and true > 60, (told, true)
    assert told.step == pytest.approx(true, rel=0.15) and told.low < true < told.high, (told, true)


def adam_after(net, batch, steps, **options):
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-4, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(net(batch[0]), batch[1]).backward()
        optimizer.step()
    return optimizer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "batch", "scale", "r"),
    [(Gated, SQUARE, 0.04, 3), (Attention, MEAN, 0.01, 2), (lambda: Attention(softmax=False, out=1), MATCH, 0.1, 4)],
)
def test_adam_leaves_the_plateau_when_one_look_at_its_moments_says(make, batch, scale, r):
    net = tiny(make(), scale)
    optimizer = adam_after(net, batch, 25)
    told = escape_rollout(net, "mse", batch, optimizer=optimizer, step=25, examples=10**9)  # the loop has no noise
    noisy = escape_rollout(net, "mse", batch, optimizer=optimizer, step=25, examples=16)
    assert noisy.step - 25 > 1.02 * (told.step - 25)  # the noise of small batches is divided by as well
    true = 25 + trained(net, batch, optimizer)
    assert told.known and told.r == r and true > 80, (told, true)
    assert told.step == pytest.approx(true, rel=0.12) and told.low < true < told.high, (told, true)


def test_the_interval_is_as_wide_as_the_batch_is_small(monkeypatch):
    told = lambda n: escape_rollout(tiny(Gated(), 0.04), "mse", (SQUARE[0][:n], SQUARE[1][:n]), optimizer=0.3)
    found = told(256)
    monkeypatch.setattr(escape, "sampling", lambda *_: looks.Sampling(0.2, 0.3))
    wide = told(256)
    spread = math.hypot(escape.LOOKAHEAD_SPREAD, escape.WIDER * 0.3)
    assert wide.high / wide.step == pytest.approx(math.exp(1.2816 * spread), rel=1e-3)
    monkeypatch.setattr(escape, "sampling", lambda *_: looks.Sampling(0.0, 0.0))
    alone = told(256)
    assert alone.high / alone.step == pytest.approx(math.exp(1.2816 * escape.LOOKAHEAD_SPREAD), rel=1e-3)
    assert wide.step / alone.step == pytest.approx(math.exp(escape.FITS * 3 * 0.2), rel=1e-6)  # r = 3 factors
    assert alone.high / alone.step < found.high / found.step and alone.step < found.step
    monkeypatch.setattr(escape, "sampling", lambda *_: looks.Sampling(0.29, 0.3))
    assert told(256).known
    net = tiny(Gated(), 0.04)
    adam = escape_rollout(net, "mse", SQUARE, optimizer=adam_after(net, SQUARE, 25))
    spread = math.hypot(escape.ADAM_SPREAD, escape.ADAM_WIDER * 0.3)
    assert adam.high / adam.step == pytest.approx(math.exp(1.2816 * spread), rel=1e-3)
    assert 0.1 < spread < 0.2  # of Adam, where it is 0.35 by SGD
    monkeypatch.setattr(escape, "sampling", lambda *_: looks.Sampling(0.31, 0.3))
    assert "31 % of the slope" in told(256).reason


@pytest.mark.parametrize("steps", [19, 20])
def test_adam_is_believed_after_twenty_steps(steps):
    net = tiny(Gated(), 0.04)
    found = escape_rollout(net, "mse", SQUARE, optimizer=adam_after(net, SQUARE, steps))
    assert found.known == (steps == 20) and ("watch it" in found.reason) != found.known


def test_a_schedule_says_when_the_learning_rate_is_spent():
    net = tiny(Gated(), 0.04)
    plain = escape_rollout(net, "mse", SQUARE, optimizer=0.3, step=40)
    slow = escape_rollout(net, "mse", SQUARE, optimizer=0.3, step=40, when=lambda rate: 45 + rate / 0.1)
    assert slow.step - 45 == pytest.approx(3 * (plain.step - 40)) and plain.at == slow.at == 40
    never = escape_rollout(net, "mse", SQUARE, optimizer=0.3, when=lambda rate: math.inf)
    assert "does not reach its end" in never.reason


NOISE = X[:24], torch.randn(24, 1, generator=G)


@pytest.mark.parametrize(
    ("net", "batch", "optimizer", "why"),
    [
        (Gated, SQUARE, 0.1, "no layer is small"),
        (Attention, MEAN, 0.1, "no layer is small"),
        (lambda: scored(1.0, 0.003, seed=9), WIDE, 0.1, "no product with q.weight as a factor"),
        (lambda: tiny(chain(norm=True), 0.01), LINE, 0.1, "layer_norm removes the scale"),
        (lambda: tiny(chain(), 0.01), LINE, torch.optim.AdamW, "AdamW divides by what the gradients have been"),
        (lambda: tiny(chain(), 0.01), LINE, torch.optim.Adagrad, "has no law here"),
        (lambda: tiny(chain(), 0.01), LINE, 0.0, "learning rate is 0"),
        (lambda: tiny(chain(), 0.01), NOISE, 0.1, "is noise of these 24 examples"),
        (lambda: tiny(chain(), 0.01), (X[:1], X[:1, :1]), 0.1, "noise of these 1 examples"),
        (lambda: tiny(chain(), 0.0), LINE, 0.1, "exactly zero"),
    ],
)
def test_where_the_law_does_not_hold_it_is_refused_with_the_reason(net, batch, optimizer, why):
    torch.manual_seed(3)
    net = net()
    given = optimizer if isinstance(optimizer, float) else optimizer(net.parameters(), lr=0.01)
    found = escape_rollout(net, "mse", batch, optimizer=given)
    assert not found.known and math.isnan(found.step), found
    assert re.search(why, found.reason), found.reason


def test_weight_decay_is_rehearsed_and_refused_where_it_holds_the_layers_down():
    """What decay takes of two layers that grow by e^(aτ), it takes of a: the wait is longer by a / (a − λ)."""
    net = tiny(chain(), 0.01)
    told = lambda much: escape_rollout(
        net, "mse", LINE, optimizer=torch.optim.SGD(net.parameters(), lr=0.02, weight_decay=much)
    )
    free, slow = told(0.0), told(0.2)
    true = trained(net, LINE, torch.optim.SGD(net.parameters(), lr=0.02, weight_decay=0.2))
    assert slow.step > 1.05 * free.step and slow.step == pytest.approx(true, rel=0.05)
    assert not told(50.0).known
    adam = adam_after(tiny(net, 0.01), LINE, 25, weight_decay=0.1)
    assert "divides its weight decay too" in escape_rollout(net, "mse", LINE, optimizer=adam).reason


def test_a_bias_that_moves_beside_the_product_is_refused():
    net = nn.Sequential(nn.Linear(6, 24, bias=False), nn.Tanh(), nn.Linear(24, 1))
    tiny(net, 0.01)
    found = escape_rollout(net, "mse", (X, LINE[1] + 1), optimizer=0.1)
    assert not found.known and "biases and the like" in found.reason, found


def test_the_model_is_left_as_it_was():
    net = tiny(Gated(), 0.04)
    before, memory = [p.detach().clone() for p in net.parameters()], [p.data_ptr() for p in net.parameters()]
    rng = torch.get_rng_state()
    escape_rollout(net, "mse", SQUARE, optimizer=0.1)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters()))
    assert memory == [p.data_ptr() for p in net.parameters()] and torch.equal(rng, torch.get_rng_state())
    assert all(p.grad is None for p in net.parameters())


def test_a_checkup_shows_the_date_as_a_line_measurements_and_a_finding():
    net = tiny(Gated(), 0.04)
    look = lambda **more: nv.checkup(net, "mse", SQUARE, vitals=["gates"], curvature=False, **more)
    found = look(optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    told = escape_rollout(net, "mse", SQUARE, optimizer=0.1, mode="train")
    assert found.plateau == told and f"plateau: {told}" in str(found)
    values = {r.metric: r.value for r in found.measurements if r.vital == "plateau"}
    assert (values["escape"], values["low"], values["high"]) == (told.step, told.low, told.high)
    (one,) = [f for f in found.findings() if f.rule == "plateau ahead"]
    assert f"near step {told.step:.0f}" in one.what and "3 layers with small" in one.why
    silent = look(optimizer=torch.optim.AdamW(net.parameters(), lr=0.1))
    assert "AdamW" in silent.skipped["plateau"] and "plateau: no forecast at step 0: AdamW" in str(silent)
    assert not [f for f in silent.findings() if f.rule == "plateau ahead"]
    assert look().plateau is None and "not asked for" in str(look())
