"""Trained networks: sparse diagonal nets, growing heads, memorising then compressing, four regimes, λ over training."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals import singular
from netvitals.singular.laws.fluctuation import nu_data_free
from netvitals.singular.moments.factors import lambda_min
from netvitals_lab import Row, data
from netvitals_lab.training import gradient_step

f64 = torch.float64


def expansion(steps: int, seed: int, measurements: int = 10) -> list[Row]:
    """κ of the head's factors before and after five new classes arrive with random rows (X30, Algorithm 1)."""
    gen = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    centres = 3 * torch.randn(10, 8, generator=gen)
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 5))

    def batch(classes: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(0, classes, (256,), generator=gen)
        return centres[y] + torch.randn(256, 8, generator=gen), y

    def read(classes: int, when: str) -> list[Row]:
        out: list[Row] = []
        for _ in range(measurements):
            x, y = batch(classes)
            factor = singular.kfac(net, "ce", (x, y), fisher="empirical", only="2").layers["2"]
            g, a = torch.linalg.eigvalsh(factor.G.double()), torch.linalg.eigvalsh(factor.A.double())
            out.append(
                {
                    "when": when,
                    "kappa": float(g[-1] / g[1].clamp_min(1e-300)),
                    "largest": float(g[-1]),
                    "inputs": float(a[-1] / lambda_min(factor.A, a)[0]),
                }
            )
        return out  # g[0] is the logit shift's zero

    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        x, y = batch(5)
        gradient_step(optimizer, F.cross_entropy(net(x), y))
    rows = read(5, "before")
    head = net[2]
    assert isinstance(head, nn.Linear)
    grown = nn.Linear(32, 10)
    with torch.no_grad():
        grown.weight[:5], grown.bias[:5] = head.weight, head.bias
    net[2] = grown
    return [*rows, *read(10, "after")]


def grokking(steps: int, seed: int, p: int = 19) -> list[Row]:
    """Modular addition, quadratic layer: λ_min of the hidden activations while memorising and compressing (X32)."""
    torch.manual_seed(seed)
    x, y, seen, unseen = _addition(p, 0.75, seed)
    first, second = nn.Linear(2 * p, 96, bias=False), nn.Linear(96, p, bias=False)
    optimizer = torch.optim.AdamW(
        [*first.parameters(), *second.parameters()], lr=3e-3, weight_decay=1.0, betas=(0.9, 0.98)
    )
    target = F.one_hot(y, p).float()
    rows: list[Row] = []
    observations = set(np.unique(np.geomspace(5, steps, 24).astype(int)).tolist()) | {0}
    for i in range(steps + 1):
        hidden = first(x).square()
        out = second(hidden)
        if i in observations:
            right = (out.argmax(1) == y).float()
            a = hidden[seen].detach().double()
            rows.append(
                {
                    "step": i,
                    "train": float(right[seen].mean()),
                    "test": float(right[unseen].mean()),
                    "smallest": lambda_min(a.T @ a / len(a))[0],
                }
            )
        gradient_step(optimizer, (out[seen] - target[seen]).square().sum(1).mean())
    return rows


def _addition(p: int, share: float, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    a, b = (v.flatten() for v in torch.meshgrid(torch.arange(p), torch.arange(p), indexing="ij"))
    order = torch.randperm(p * p, generator=torch.Generator().manual_seed(seed))
    n = int(share * p * p)
    return torch.cat([F.one_hot(a, p), F.one_hot(b, p)], 1).float(), (a + b) % p, order[:n], order[n:]


class GatedNet(nn.Module):
    """W_d(SiLU(W_g x) ⊙ W_u x)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(width, hidden), nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


def _addition_rates(steps: int, seed: int, p: int = 19) -> list[Row]:
    torch.manual_seed(seed)
    x, y, seen, _ = _addition(p, 0.75, seed)
    net = nn.Sequential(nn.Linear(2 * p, 64), nn.GELU(), nn.Linear(64, p))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    rows: list[Row] = []
    observations = set(np.unique(np.geomspace(10, 5 * steps, 16).astype(int)).tolist())
    for i in range(5 * steps + 1):
        if i in observations:
            factor = singular.kfac(net, "ce", x[seen], only="0").layers["0"]
            rows.append({"step": i, "smallest": lambda_min(factor.G)[0], "trace": float(factor.G.trace())})
        gradient_step(optimizer, F.cross_entropy(net(x[seen]), y[seen]))
    return rows


def coefficient(steps: int, draws: int, seed: int) -> list[Row]:
    """λ of a small tanh net on digits at checkpoints of its training, beside the loss."""
    digits = data.load("digits")
    x, y = digits.train.x.flatten(1), digits.train.y
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    observations = set(np.unique(np.geomspace(steps // 8, steps, 5).astype(int)).tolist())
    states: dict[int, dict[str, Any]] = {}
    for i in range(1, steps + 1):
        gradient_step(optimizer, F.cross_entropy(net(x), y))
        if i in observations:
            states[i] = {k: v.clone() for k, v in net.state_dict().items()}
    found = singular.coefficient_history(
        net, F.cross_entropy, (x, y), checkpoints=states, chains=2, draws=draws, seed=seed
    )
    return [
        {
            "step": s,
            "lam": c.mean,
            "stderr": c.stderr,
            "loss": c.baseline,
            "parameters": c.parameters,
            "diverged": len(c.health.diverged),
        }
        for s, c in zip(found.steps, found.coefficients)
    ]


def mixture(weight: float, data_sets: int, seed: int, n: int = 1_000_000) -> Row:
    """ν of a mixture's split direction: functional variance over data sets, the posterior integrated on a grid (X28).

    Data enter as counts on a fine grid of x, so that n can be large enough for the merge to be asymptotic.
    """
    edge = torch.linspace(-6, 6, 1201, dtype=f64)
    at = (edge[1:] + edge[:-1]) / 2
    truth = torch.exp(-at.square() / 2)
    truth = truth / truth.sum()
    reach = 3.2 * (4 / (n * (weight * (1 - weight)) ** 2)) ** 0.25  # η = 3.2: the posterior ends well inside
    s = torch.linspace(-reach, reach, 401, dtype=f64)[:, None]
    logp = torch.log(
        weight * torch.exp((1 - weight) * s * at - ((1 - weight) * s).square() / 2)
        + (1 - weight) * torch.exp(-weight * s * at - (weight * s).square() / 2)
    )  # log p/p₀
    # the bins' own normalisation: each p(·|s) must be a distribution on the grid, or the bin width would act as data
    logp = logp - torch.log((truth * torch.exp(logp)).sum(1, keepdim=True))
    rng = np.random.default_rng(seed)
    counts = torch.from_numpy(rng.multinomial(n, truth.numpy(), size=data_sets)).double()
    posterior = torch.softmax(counts @ logp.T, 1)  # (sets, grid)
    mean, square = posterior @ logp, posterior @ logp.square()
    variance = (counts * (square - mean.square())).sum(1)
    half = variance / 2
    return {
        "nu": float(half.mean()),
        "nu_stderr": float(half.std() / math.sqrt(data_sets)),
        "predicted": singular.nu(2),
        "data_free": nu_data_free(2),
        "edge": float(torch.maximum(posterior[:, 0], posterior[:, -1]).max()),
    }


CHECKS: dict[str, Callable[..., Any]] = {
    "expansion": expansion,
    "grokking": grokking,
    "coefficient": coefficient,
    "mixture": mixture,
}
