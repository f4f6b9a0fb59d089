"""Random models of some forty kinds of parts, what is trained with them, and every way to measure them."""

from __future__ import annotations

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH = 8
STEPS = 4


class Part(nn.Module):
    """A module of the user's own, made of a function of (module, x)."""

    def __init__(self, function, **attributes):
        super().__init__()
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.function(self, x)


class Stats:
    def __init__(self):
        self.calls, self.means = 0, []


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x + 0.01 * x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (1 + 0.03 * x**2)


def _count(m, x):
    m.calls += 1
    return x * (1 + 0.01 * (m.calls % 3))


def _remember(m, x):
    m.seen.append(float(x.detach().mean()))
    return x + 0.01 * len(m.seen)


def _stats(m, x):
    m.stats.calls += 1
    m.stats.means.append(x.detach().mean())
    return x * (1 + 0.01 * m.stats.calls)


def _ema(m, x):
    m.mean = 0.9 * m.mean + 0.1 * x.detach().mean(0)
    return x - m.mean


def _in_place_table(m, x):
    m.table[len(m.table)] = 1
    m.total += 1.0
    return x + 0.01 * m.total


def _frozen(m, x):
    with torch.no_grad():
        return x + m.layer(x[:, None])[:, 0]


def _autocast(m, x):
    with torch.autocast("cpu", torch.bfloat16):
        return m.linear(x).float()


def _tied(m, x):
    return F.linear(torch.relu(m.linear(x)), m.linear.weight.T)


def _hooked(hook, where="forward"):
    layer = nn.Linear(WIDTH, WIDTH)
    {"forward": layer.register_forward_hook, "pre": layer.register_forward_pre_hook}[where](hook)
    return layer


class Calls:
    """A hook of the user's own; how often it was called is part of what must not change."""

    def __init__(self, change):
        self.calls, self.change = 0, change

    def __call__(self, *args):
        self.calls += 1
        return args[-1] * (1 + 0.01 * (self.calls % 3)) if self.change else None


def _parameter_hook():
    layer = nn.Linear(WIDTH, WIDTH)
    layer.calls = Calls(change=True)
    layer.weight.register_hook(layer.calls)
    return layer


def _frozen_linear():
    layer = nn.Linear(WIDTH, WIDTH)
    layer.weight.requires_grad_(False)
    return layer


def _noise():
    return torch.Generator().manual_seed(3)


PARTS = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "relu": nn.ReLU,
    "relu in place": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True)),
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "prelu": nn.PReLU,
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "batch norm": lambda: nn.BatchNorm1d(WIDTH),
    "group norm": lambda: nn.GroupNorm(2, WIDTH),
    "dropout": lambda: nn.Dropout(0.2),
    "alpha dropout": lambda: nn.AlphaDropout(0.1),
    "residual": lambda: Part(lambda m, x: x + m.f(x), f=nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())),
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (1, WIDTH)), nn.Conv1d(1, 1, 3, padding=1), nn.Flatten()),
    "convolution and norm": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten()
    ),
    "pool": lambda: nn.Sequential(nn.Unflatten(1, (1, WIDTH)), nn.AvgPool1d(3, 1, 1), nn.Flatten()),
    "gru": lambda: Part(lambda m, x: m.rnn(x[:, None])[0][:, 0], rnn=nn.GRU(WIDTH, WIDTH, batch_first=True)),
    "lstm": lambda: Part(lambda m, x: m.rnn(x[:, None])[0][:, 0], rnn=nn.LSTM(WIDTH, WIDTH, batch_first=True)),
    "transformer": lambda: Part(
        lambda m, x: m.layer(x[:, None])[:, 0], layer=nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
    ),
    "attention": lambda: Part(
        lambda m, x: m.a(x[:, None], x[:, None], x[:, None])[0][:, 0],
        a=nn.MultiheadAttention(WIDTH, 2, dropout=0.1, batch_first=True),
    ),
    "functional": lambda: Part(lambda m, x: F.gelu(m.linear(x)).relu(), linear=nn.Linear(WIDTH, WIDTH)),
    "tied": lambda: Part(_tied, linear=nn.Linear(WIDTH, WIDTH)),
    "frozen": _frozen_linear,
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    "old weight norm": lambda: nn.utils.weight_norm(nn.Linear(WIDTH, WIDTH)),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
    "checkpointed": lambda: Part(
        lambda m, x: checkpoint(m.f, x, use_reentrant=False), f=nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())
    ),
    "own gradient": lambda: Part(lambda m, x: Cube.apply(m.linear(x)), linear=nn.Linear(WIDTH, WIDTH)),
    "autocast": lambda: Part(_autocast, linear=nn.Linear(WIDTH, WIDTH)),
    "torch noise": lambda: Part(lambda m, x: m.linear(x) + 0.1 * torch.randn_like(x), linear=nn.Linear(WIDTH, WIDTH)),
    "stochastic depth": lambda: Part(
        lambda m, x: x + m.linear(x) if random.random() < 0.7 else x, linear=nn.Linear(WIDTH, WIDTH)
    ),
    "running mean": lambda: Part(_ema, mean=torch.zeros(WIDTH), linear=nn.Linear(WIDTH, WIDTH)),
    "table": lambda: Part(_in_place_table, table={}, total=torch.zeros(()), linear=nn.Linear(WIDTH, WIDTH)),
    "forward hook": lambda: _hooked(Calls(change=True)),
    "recording hook": lambda: _hooked(Calls(change=False), "pre"),
    "parameter hook": _parameter_hook,
    # without parameters of their own, as an activation might look
    "numpy noise": lambda: Part(lambda m, x: x * (1 + 0.1 * np.random.rand())),
    "python noise": lambda: Part(lambda m, x: x * (1 + 0.1 * random.random())),
    "own numpy noise": lambda: Part(lambda m, x: x * (1 + 0.1 * m.rng.random()), rng=np.random.default_rng(0)),
    "own torch noise": lambda: Part(lambda m, x: x + 0.1 * torch.randn(x.shape, generator=m.rng), rng=_noise()),
    "counter": lambda: Part(_count, calls=0),
    "memory": lambda: Part(_remember, seen=[]),
    "statistics": lambda: Part(_stats, stats=Stats()),
    "frozen transformer": lambda: Part(
        _frozen, layer=nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True).eval().requires_grad_(False)
    ),
}
STATEFUL = [
    "numpy noise",
    "python noise",
    "own numpy noise",
    "own torch noise",
    "counter",
    "memory",
    "statistics",
]


def compose(seed):
    """The names of a random model's parts."""
    chance = random.Random(seed)
    names = list(PARTS)
    return [chance.choice(names) for _ in range(chance.randint(2, 5))]


def build(names):
    return nn.Sequential(nn.Linear(4, WIDTH), *(PARTS[name]() for name in names), nn.Linear(WIDTH, 3))


def loss_fn(output, y):
    return F.cross_entropy(output, y)
