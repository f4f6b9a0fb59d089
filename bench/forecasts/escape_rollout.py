"""How well one look tells the end of a plateau: ``saddle.escape_rollout`` against training on fresh batches.

``python bench/forecasts/escape_rollout.py tuning`` has the families that its spread was set on, ``python
bench/forecasts/escape_rollout.py test``
others; with a further word, only those whose name has it. A line a family: when the loss on a fixed batch had fallen by
a twentieth, ln(time told / time left) at the start and at a quarter, half and three quarters of the way, how many 80 %
intervals held, and why it was silent.
Families that were tests before (their intervals were mended after they had been seen) are tuning families now.
"""

from __future__ import annotations

import copy
import math
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals.saddle import escape_rollout

SHARES = (0.0, 0.25, 0.5, 0.75)
EXAMPLES, BATCH, STEPS = 512, 64, 6000
linear = lambda a, b: nn.Linear(a, b, bias=False)


class Gated(nn.Module):
    def __init__(self, inputs, hidden, outputs, fused=False, act=F.silu):
        super().__init__()
        self.up = nn.ModuleList([linear(inputs, 2 * hidden)] if fused else [linear(inputs, hidden) for _ in range(2)])
        self.out, self.act = linear(hidden, outputs), act

    def forward(self, x):
        gate, value = self.up[0](x).chunk(2, -1) if len(self.up) == 1 else (up(x) for up in self.up)
        return self.out(self.act(gate) * value)


class Attention(nn.Module):
    def __init__(self, width, heads, outputs, softmax=True):
        super().__init__()
        self.qkv = nn.ModuleList(linear(width, width) for _ in range(3))
        self.out, self.heads, self.softmax = linear(width, outputs), heads, softmax

    def forward(self, x):
        q, k, v = (m(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for m in self.qkv)
        if self.softmax:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            mixed = q @ k.transpose(-1, -2) / x.shape[1] @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attention, self.read = linear(8, 12), Attention(12, 2, 12), linear(12, 4)

    def forward(self, x):
        x = self.embed(x)
        return self.read(x + self.attention(x))


class Torch(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, bias=False, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def chain(sizes, act):
    layers = [m for a, b in pairwise(sizes) for m in (linear(a, b), act())]
    return nn.Sequential(*layers[:-1])


def normal(g, *shape):
    return torch.randn(*shape, generator=g) / shape[0] ** 0.5


# targets: a generator gives a teacher, a function of the inputs
def line(a, b):
    return lambda g: (lambda w: lambda x: x @ w)(normal(g, a, b))


def square(a, b):
    return lambda g: (lambda w: lambda x: torch.einsum("bi,ijo,bj->bo", x, w, x))(normal(g, a, a, b) / a**0.5)


def product(a):
    return lambda g: (lambda w: lambda x: (x @ w).prod(-1, keepdim=True))(normal(g, a, 2))


def mean(a, b):
    return lambda g: (lambda w: lambda x: x.mean(1, keepdim=True) @ w * 2 + 0 * x[..., :1])(normal(g, a, b))


def match(a):
    return lambda g: (lambda w: lambda x: x @ x.transpose(1, 2) @ x @ w / (4 * x.shape[1]))(normal(g, a, 1))


def largest(a, b, power=1):
    return lambda g: (lambda w: lambda x: ((x @ w) ** power).argmax(-1))(normal(g, a, b))


# family: model, teacher, shape of an example, learning rate, factor on torch's initialisation, momentum or Adam, loss
FAMILIES = {
    "tuning": {
        "SwiGLU, product": (lambda: Gated(8, 32, 1), product(8), (8,), 0.03, 0.1, 0.0, F.mse_loss),
        "SwiGLU, fused": (lambda: Gated(6, 24, 3, True), square(6, 3), (6,), 0.03, 0.15, 0.5, F.mse_loss),
        "attention, mean": (lambda: Attention(8, 2, 8), mean(8, 8), (6, 8), 0.03, 0.01, 0.0, F.mse_loss),
        "attention, momentum": (lambda: Attention(6, 1, 3), mean(6, 3), (4, 6), 0.02, 0.03, 0.8, F.mse_loss),
        "tanh, 3 layers": (lambda: chain((8, 32, 32, 1), nn.Tanh), line(8, 1), (8,), 0.02, 0.1, 0.0, F.mse_loss),
        "linear, 4 layers": (
            lambda: chain((8, 24, 24, 24, 4), nn.Identity), line(8, 4), (8,), 0.03, 0.2, 0.0, F.mse_loss,
        ),
        "ReLU, 3 layers": (lambda: chain((8, 32, 32, 1), nn.ReLU), line(8, 1), (8,), 0.03, 0.1, 0.0, F.mse_loss),
        "torch's attention": (Torch, mean(8, 8), (5, 8), 0.02, 0.02, 0.0, F.mse_loss),
        "linear attention": (lambda: Attention(8, 1, 1, False), match(8), (8, 8), 0.05, 0.35, 0.0, F.mse_loss),
        "residual attention": (Residual, line(8, 4), (5, 8), 0.02, 0.05, 0.0, F.mse_loss),
        "bilinear": (lambda: Gated(10, 20, 2, act=nn.Identity()), square(10, 2), (10,), 0.005, 0.15, 0.9, F.mse_loss),
        "GEGLU": (lambda: Gated(6, 40, 1, act=F.gelu), product(6), (6,), 0.02, 0.1, 0.0, F.mse_loss),
        "GELU, classes": (
            lambda: chain((10, 32, 32, 4), nn.GELU), largest(10, 4), (10,), 0.02, 0.15, 0.0, F.cross_entropy,
        ),
        "SwiGLU, classes": (lambda: Gated(10, 32, 4), largest(10, 4, 2), (10,), 0.2, 0.1, 0.0, F.cross_entropy),
        "attention, match": (lambda: Attention(8, 1, 1), match(8), (6, 8), 0.03, 0.1, 0.0, F.mse_loss),
        "SwiGLU by Adam": (lambda: Gated(8, 32, 1), product(8), (8,), 1e-4, 0.1, "adam", F.mse_loss),
        "attention by Adam": (lambda: Attention(8, 2, 8), mean(8, 8), (6, 8), 1e-4, 0.01, "adam", F.mse_loss),
        "tanh by Adam": (lambda: chain((8, 32, 32, 1), nn.Tanh), line(8, 1), (8,), 1e-4, 0.1, "adam", F.mse_loss),
        "linear attention by Adam": (
            lambda: Attention(8, 1, 1, False), match(8), (8, 8), 1e-4, 0.35, "adam", F.mse_loss,
        ),
        "bilinear by Adam": (
            lambda: Gated(10, 20, 2, act=nn.Identity()), square(10, 2), (10,), 1e-4, 0.15, "adam", F.mse_loss,
        ),
        "GELU, classes by Adam": (
            lambda: chain((10, 32, 32, 4), nn.GELU), largest(10, 4), (10,), 1e-4, 0.15, "adam", F.cross_entropy,
        ),
        "GEGLU by Adam": (lambda: Gated(6, 40, 1, act=F.gelu), product(6), (6,), 2e-4, 0.1, "adam", F.mse_loss),
        "residual attention by Adam": (Residual, line(8, 4), (5, 8), 1e-4, 0.05, "adam", F.mse_loss),
        "ReLU by Adam": (lambda: chain((8, 32, 32, 1), nn.ReLU), line(8, 1), (8,), 1e-4, 0.1, "adam", F.mse_loss),
        "linear attention, 2 heads by Adam": (
            lambda: Attention(6, 2, 1, False), match(6), (5, 6), 2e-4, 0.4, "adam", F.mse_loss,
        ),
        "SwiGLU, 2 outputs by Adam": (lambda: Gated(7, 24, 2), square(7, 2), (7,), 1.5e-4, 0.12, "adam", F.mse_loss),
        "tanh gate by Adam": (lambda: Gated(9, 20, 1, act=torch.tanh), product(9), (9,), 1e-4, 0.1, "adam", F.mse_loss),
        "attention, 4 heads by Adam": (
            lambda: Attention(12, 4, 5), mean(12, 5), (7, 12), 1e-4, 0.02, "adam", F.mse_loss,
        ),
        "ELU, classes by Adam": (
            lambda: chain((9, 40, 3), nn.ELU), largest(9, 3), (9,), 1e-4, 0.02, "adam", F.cross_entropy,
        ),
        "bilinear, 3 outputs by Adam": (
            lambda: Gated(6, 30, 3, True, nn.Identity()), square(6, 3), (6,), 2e-4, 0.2, "adam", F.mse_loss,
        ),
    },
    "test": {
        "bilinear, 3 outputs": (
            lambda: Gated(6, 30, 3, True, nn.Identity()), square(6, 3), (6,), 0.03, 0.2, 0.0, F.mse_loss,
        ),
        "bilinear, product": (
            lambda: Gated(9, 16, 1, act=nn.Identity()), product(9), (9,), 0.02, 0.15, 0.5, F.mse_loss,
        ),
        "linear attention, 2 heads": (lambda: Attention(6, 2, 1, False), match(6), (5, 6), 0.05, 0.4, 0.0, F.mse_loss),
        "linear attention, 10 tokens": (
            lambda: Attention(10, 1, 1, False), match(10), (10, 10), 0.02, 0.35, 0.6, F.mse_loss,
        ),
        "ReGLU": (lambda: Gated(8, 24, 2, act=F.relu), square(8, 2), (8,), 0.03, 0.15, 0.0, F.mse_loss),
        "SwiGLU, 3 classes": (lambda: Gated(7, 40, 3), largest(7, 3, 2), (7,), 0.15, 0.1, 0.3, F.cross_entropy),
        "attention, 4 heads": (lambda: Attention(12, 4, 5), mean(12, 5), (7, 12), 0.02, 0.02, 0.7, F.mse_loss),
        "tanh, 4 layers": (
            lambda: chain((10, 24, 24, 24, 2), nn.Tanh), line(10, 2), (10,), 0.03, 0.25, 0.0, F.mse_loss,
        ),
        "ELU, classes": (lambda: chain((9, 40, 3), nn.ELU), largest(9, 3), (9,), 0.02, 0.02, 0.0, F.cross_entropy),
        "GEGLU, 2 outputs by Adam": (
            lambda: Gated(8, 28, 2, act=F.gelu), square(8, 2), (8,), 1e-4, 0.12, "adam", F.mse_loss,
        ),
        "attention, 3 outputs by Adam": (
            lambda: Attention(10, 2, 3), mean(10, 3), (5, 10), 1.5e-4, 0.02, "adam", F.mse_loss,
        ),
        "tanh, 4 layers by Adam": (
            lambda: chain((10, 24, 24, 24, 2), nn.Tanh), line(10, 2), (10,), 1e-4, 0.25, "adam", F.mse_loss,
        ),
        "linear attention, 10 tokens by Adam": (
            lambda: Attention(10, 1, 1, False), match(10), (10, 10), 1e-4, 0.35, "adam", F.mse_loss,
        ),
    },
}  # fmt: skip


def told(family: tuple, seed: int) -> tuple[float, list]:
    """The step at which the plateau was left, and what was told at each share of the way."""
    make, teacher, shape, lr, scale, momentum, loss = family
    g = torch.Generator().manual_seed(100 + seed)
    torch.manual_seed(seed)
    target, net = teacher(g), make()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(scale)
    draw = lambda n: torch.randn(n, *shape, generator=g)
    x = draw(EXAMPLES)
    y: Tensor = target(x)
    if momentum == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=momentum)
    kept, left, before = [], math.inf, math.inf
    with torch.no_grad():
        rest = float(loss(torch.zeros_like(net(x)), y))
    for step in range(STEPS):
        with torch.no_grad():
            now = float(loss(net(x), y))
        if now < 0.95 * rest:
            left = step - (0.95 * rest - now) / (before - now)
            break
        before = now
        if step % 5 == 0:
            kept.append((step, copy.deepcopy(net.state_dict()), copy.deepcopy(optimizer.state_dict())))
        fresh = draw(BATCH)
        optimizer.zero_grad()
        loss(net(fresh), target(fresh)).backward()
        optimizer.step()
    said = []
    for share in SHARES:
        step, state, moments = next(k for k in reversed(kept) if k[0] <= share * min(left, STEPS))
        net.load_state_dict(state)
        optimizer.load_state_dict(moments)
        said.append(escape_rollout(net, loss, (x, y), optimizer=optimizer, step=step, examples=BATCH))
    return left, said


def main(split: str, seeds: range, word: str = "") -> None:
    torch.set_num_threads(1)
    errors, held = [], 0
    for name, family in ((n, f) for n, f in FAMILIES[split].items() if word in n):
        runs = [told(family, seed) for seed in seeds]
        known = [(left, e) for left, said in runs for e in said if e.known and left > e.at]
        here = [math.log((e.step - e.at) / (left - e.at)) for left, e in known if left < STEPS]
        inside = sum(e.low <= left <= e.high for left, e in known)
        why = Counter(e.reason for _, said in runs for e in said if not e.known)
        mean_, sd = (float(np.mean(here)), float(np.std(here))) if here else (math.nan, math.nan)
        lefts = [round(left) if left < STEPS else None for left, _ in runs]
        print(
            f"{name}: left at {lefts}; {inside} of {len(known)} held, ln error {mean_:+.3f} ± "
            f"{sd:.3f}; silent: {dict(why)}",
            flush=True,
        )
        errors += here
        held += inside
    q = np.array(errors)
    print(f"all: {held} of {len(q)} held, root mean square {np.sqrt((q * q).mean()):.3f}, mean {q.mean():+.3f}")


if __name__ == "__main__":
    split = sys.argv[1] if len(sys.argv) > 1 else "test"
    main(split, range(40, 46) if split == "tuning" else range(200, 216), "".join(sys.argv[2:3]))
