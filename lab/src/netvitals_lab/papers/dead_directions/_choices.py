"""What a rate may be used for: which units to take out, and which design to choose."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from netvitals import singular
from netvitals.singular.adapters.pruning import PruningPlan, UnitCost
from netvitals.singular.laws.design import rank_designs
from netvitals_lab import Row, data, stats
from netvitals_lab.papers.dead_directions._practice import mlp
from netvitals_lab.training import gradient_step

CRITERIA = ("rate", "variance", "fisher", "magnitude")
SHARE = 0.5  # of the hidden units that are taken out


def _learned(net: nn.Module, x: Tensor, y: Tensor, steps: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(steps):
        rows = torch.randint(0, len(x), (64,), generator=generator)
        gradient_step(optimizer, F.cross_entropy(net(x[rows]), y[rows]))


def _digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    found = data.load("digits")
    return found.train.x.flatten(1), found.train.y, found.test.x.flatten(1), found.test.y


def pruning(activation: str, width: int, steps: int, seed: int) -> list[Row]:
    """Rank the hidden units of a trained classifier by four criteria; measure what taking out half of them costs."""
    x, y, test_x, test_y = _digits()
    torch.manual_seed(seed)
    net = mlp({"relu": nn.ReLU, "tanh": nn.Tanh}[activation], 3, width, inputs=64, outputs=10)
    _learned(net, x, y, steps, seed)
    some = x[:400]
    plan = singular.pruning_plan(net, "ce", some)
    units = list(plan.units)
    true = [_divergence(net, plan, [u], some) for u in units]
    scores = {
        "rate": [u.cost for u in units],
        "variance": _variance(net, units, some),
        "fisher": _empirical(net, plan, units, some, y[:400]),
        "magnitude": [u.distance for u in units],
    }
    loss = lambda m: float(F.cross_entropy(m(test_x), test_y).detach())
    before = loss(net)
    rows: list[Row] = []
    for name in (*CRITERIA, "ablation"):
        score = scores.get(name, true)
        taken = [units[i] for i in np.argsort(score)[: int(SHARE * len(units))]]
        pruned = _without(net, plan, taken)
        rows.append(
            {
                "criterion": name,
                "spearman": float(stats.spearman(score, true).value),
                "rise": loss(pruned) - before,
                "divergence": _divergence(net, plan, taken, some),
                "test": before,
            }
        )
    open_ = [(u, k) for u, k in zip(units, true) if k > 1e-12 and u.cost > 0]
    off: Callable[[str], float] = lambda n: float(np.median([math.log(getattr(u, n) / k) for u, k in open_]))
    rows[0] |= {"calibration": off("cost"), "regular": off("regular_cost")}
    rows[0] |= {"orders": float(np.median([u.order for u, _ in open_])), "units": len(units)}
    return rows


def _without(net: nn.Sequential, plan: PruningPlan, units: list[UnitCost]) -> Callable[[Tensor], Tensor]:
    state = plan.without(net, units)
    return lambda x: functional_call(net, state, (x,))


def _divergence(net: nn.Sequential, plan: PruningPlan, units: list[UnitCost], x: Tensor) -> float:
    with torch.no_grad():
        was, now = (m(x).double().log_softmax(1) for m in (net, _without(net, plan, units)))
    return float((was.exp() * (was - now)).sum(1).mean())


def _variance(net: nn.Sequential, units: list[UnitCost], x: Tensor) -> list[float]:
    found: dict[str, Tensor] = {}
    with torch.no_grad():
        for i in (2, 4):
            found[f"{i - 2} → {i}"] = net[:i](x).var(0)
    return [float(found[u.place][u.unit]) for u in units]


def _empirical(net: nn.Sequential, plan: PruningPlan, units: list[UnitCost], x: Tensor, y: Tensor) -> list[float]:
    """Σ θ² E[g²] over the weights of a unit, g of single examples with their labels."""
    params = {n: p.detach() for n, p in net.named_parameters()}
    one = lambda p, a, b: F.cross_entropy(functional_call(net, p, (a[None],)), b[None])
    squares = {n: g.square().mean(0) for n, g in vmap(grad(one), (None, 0, 0))(params, x, y).items()}
    return [float(sum((squares[n] * m.square()).sum() for n, m in u._removal.items())) for u in units]


# ------------------------------------------------------------------------------------------------ designs


class Skipping(nn.Module):
    """tanh layers of one width with identity skips (a, b): the input of layer a + 1 is added behind layer b."""

    def __init__(self, depth: int, width: int, skips: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, width), nn.Linear(width, 10)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth - 2))
        self.skips = skips

    def forward(self, x: Tensor) -> Tensor:
        seen = [torch.tanh(self.first(x))]
        for i, layer in enumerate(self.layers, 1):
            out = torch.tanh(layer(seen[-1]))
            for a, b in self.skips:
                out = out + seen[a] if b == i else out
            seen.append(out)
        return self.last(seen[-1])


DESIGNS: dict[str, Callable[[int, int], nn.Module]] = {
    "plain": lambda d, w: Skipping(d, w, ()),
    "one short skip": lambda d, w: Skipping(d, w, ((1, 2),)),
    "one long skip": lambda d, w: Skipping(d, w, ((0, d - 2),)),
    "every second layer": lambda d, w: Skipping(d, w, tuple((i, i + 1) for i in range(0, d - 2, 2))),
    "every layer": lambda d, w: Skipping(d, w, tuple((i, i + 1) for i in range(d - 2))),
    "LayerNorm behind the first": lambda d, w: mlp(nn.Tanh, d, w, nn.LayerNorm, (1,), 64, 10),
    "LayerNorm before the last": lambda d, w: mlp(nn.Tanh, d, w, nn.LayerNorm, (d - 1,), 64, 10),
    "LayerNorm everywhere": lambda d, w: mlp(nn.Tanh, d, w, nn.LayerNorm, tuple(range(1, d)), 64, 10),
    "RMSNorm behind the first": lambda d, w: mlp(nn.Tanh, d, w, nn.RMSNorm, (1,), 64, 10),
}


def design(depth: int, width: int, steps: int, seed: int) -> list[Row]:
    """Every design trained on the same digits from the same seed: its ladder before, its test loss after."""
    x, y, test_x, test_y = _digits()
    rows: list[Row] = []
    for name, make in DESIGNS.items():
        torch.manual_seed(seed)
        net = make(depth, width)
        (profile,) = rank_designs({name: net}, x[:8]).designs
        _learned(net, x, y, steps, seed)
        with torch.no_grad():
            losses = {k: float(F.cross_entropy(net(a), b)) for k, a, b in (("train", x, y), ("test", test_x, test_y))}
        rows.append({"design": name, "steepness": profile.steepness, "deepest": profile.deepest, **losses})
    return rows
