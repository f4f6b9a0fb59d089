"""Random models of some forty kinds of parts, what is trained with them, and every way to measure them."""

from __future__ import annotations

import copy
import random
import warnings
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import netvitals as nv
from netvitals import curvature, drift, gates, saddle, singular

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


# ---------------------------------------------------------------- ways to measure

KINDS = ["gates", "drift", "gradients", "spikes"]


def _watched(**options):
    def begin(model, optimizer, batch):
        given = dict(options)
        if given.pop("probe", False):
            given["probe"] = (*batch, loss_fn)
        if given.pop("optimizer", False):
            given["optimizer"] = optimizer
        return nv.watch(model, **given)

    return begin


WATCHES = {
    "watch every step": _watched(every=1, optimizer=True),
    "watch every other step": _watched(every=2),
    "watch a probe": _watched(every=2, probe=True, optimizer=True),
    "watch few signs": _watched(every=1, vitals=["gates"]),
}
CALLS = {
    "checkup": lambda m, b: nv.checkup(m, loss_fn, b, curvature=False),
    "checkup with curvature": lambda m, b: nv.checkup(m, loss_fn, b, curvature=True, vitals=["gates"]),
    "checkup with dead directions": lambda m, b: nv.checkup(m, loss_fn, b, curvature=False, singular=True),
    "interlayer": lambda m, b: curvature.interlayer(m, loss_fn, b, probes=2),
    "readout": lambda m, b: singular.readout(m, "ce", b, units=1),
    "learning coefficient": lambda m, b: singular.learning_coefficient(
        m, loss_fn, b, chains=1, draws=3, burn_in=1, step_size=1e-5
    ),
    "imbalance": lambda m, b: saddle.imbalance(m, loss_fn, b),
    "gates": lambda m, b: gates.measure(m, loss_fn, b),
    "euler": lambda m, b: drift.euler(m, loss_fn, b),
    "spikes": lambda m, b: drift.spikes(m, [b]),
    "sparsity": lambda m, b: drift.sparsity(m, [b]),
    "dead directions": lambda m, b: singular.measure(m, "ce", b),
}
WAYS = (*WATCHES, *CALLS)


@dataclass
class Result:
    """What a training left: everything that must be the same."""

    state: dict = field(default_factory=dict)
    raised: str = ""


def train(names, way=None, seed=0):
    """Train the model of these parts, measured in one way or not at all."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old weight norm is still met in the wild
        model = build(names)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(seed)
    x, y = torch.randn(STEPS, 6, 4, generator=data), torch.randint(0, 3, (STEPS, 6), generator=data)
    result = Result()
    losses = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        watch = WATCHES[way](model, optimizer, (x[0], y[0])) if way in WATCHES else None
        for step in range(STEPS):
            if way in CALLS and step == 2:
                try:
                    CALLS[way](model, (x[0], y[0]))
                except Exception as error:  # a refusal must leave the model alone as well
                    result.raised = f"{type(error).__name__}: {error}"
            loss = loss_fn(model(x[step]), y[step])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().clone())
            if watch is not None:
                watch.step(loss)
        if watch is not None:
            watch.close()
    result.state = state_of(model, optimizer, losses)
    return result


def state_of(model, optimizer, losses):
    return {
        "losses": losses,
        "parameters": [p.detach().clone() for p in model.parameters()],
        "gradients": [p.grad for p in model.parameters()],
        "flags": [(p.requires_grad, p.stride()) for p in model.parameters()],
        "buffers": [b.clone() for b in model.buffers()],
        "optimizer": copy.deepcopy(optimizer.state_dict()),
        "modes": [m.training for m in model.modules()],
        "random": [torch.get_rng_state(), np.random.get_state()[1:3], random.getstate()],
        "attributes": [_plain(m) for m in model.modules()],
        "hooks": [
            [getattr(h, "calls", None) for h in table.values()]
            for m in model.modules()
            for table in (m._forward_hooks, m._forward_pre_hooks, m._backward_hooks, m._forward_hooks_with_kwargs)
        ],
        "settings": [
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.mha.get_fastpath_enabled(),
        ],
    }


def _plain(module):
    found = {}
    for key, value in vars(module).items():
        if key.startswith("_") or key == "function":
            continue
        if isinstance(value, Stats | Calls):
            value = vars(value)
        if isinstance(value, torch.Generator):
            value = value.get_state()
        if isinstance(value, np.random.Generator):
            value = value.bit_generator.state
        found[key] = value.detach().clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)
    return found


def differences(one, two, place=""):
    """Where two states differ."""
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        return [] if one.dtype == two.dtype and torch.equal(one.nan_to_num(), two.nan_to_num()) else [place]
    if isinstance(one, np.ndarray):
        return [] if np.array_equal(one, two) else [place]
    if isinstance(one, dict) and isinstance(two, dict):
        if one.keys() != two.keys():
            return [f"{place}: keys"]
        return [d for k in one for d in differences(one[k], two[k], f"{place}/{k}")]
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        if len(one) != len(two):
            return [f"{place}: {len(one)} and {len(two)}"]
        return [d for i, (a, b) in enumerate(zip(one, two)) for d in differences(a, b, f"{place}/{i}")]
    return [] if one == two else [f"{place}: {one!r} and {two!r}"]


def disturbed(seed, ways):
    """(way, parts, what differs) for each of ``ways`` that changed the training of one random model; None if the model
    does not repeat itself."""
    names = compose(seed)
    first, second = train(names, seed=seed).state, train(names, seed=seed).state
    if differences(first, second):
        return None
    found = []
    for way in ways:
        different = differences(first, train(names, way, seed=seed).state)
        if different:
            found.append((way, names, different[:4]))
    return found
