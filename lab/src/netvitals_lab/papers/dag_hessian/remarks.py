"""What the paper says in passing: dense and U-shaped nets, where skips belong, what products cost, kinks, attention.

Small networks in float64 with exact blocks; one trial is one seed of one question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from netvitals import curvature
from netvitals.curvature.advice.design import best_skips, uniform_skips
from netvitals.curvature.measure.metrics import effective_dimension
from netvitals_lab import Config, Row, Study
from netvitals_lab.papers.dag_hessian._measuring import SEEDS, table
from netvitals_lab.papers.dag_hessian._stand_ins import in_region, nearest_kronecker, rank, secants

NAME = "dag-hessian-remarks"
SHAPES = ("plain", "dense", "unet")


@dataclass(frozen=True)
class RemarkSizes:
    """Layers of the nets, skips that may be placed, widths whose cost is counted, lengths of sequences."""

    depth: int = 8
    budget: int = 2
    widths: tuple[int, ...] = (16, 32, 64, 128)
    lengths: tuple[int, ...] = (2, 4, 8, 12)
    seeds: tuple[int, ...] = SEEDS


def trials(p: RemarkSizes) -> list[Config]:
    asked: list[Config] = [{"question": "shape", "net": net, "depth": p.depth} for net in SHAPES]
    asked += [{"question": "placement", "depth": p.depth, "budget": p.budget}]
    asked += [{"question": "cost", "width": w} for w in p.widths]
    asked += [{"question": "length", "net": net, "length": n} for net in ("attention", "positions") for n in p.lengths]
    asked += [{"question": q} for q in ("approximations", "kinks", "cancelling")]
    return [{**config, "seed": seed} for seed in p.seeds for config in asked]


def trial(config: Config) -> list[Row]:
    torch.manual_seed(config["seed"])
    asked = {"shape": shape, "placement": placement, "cost": cost, "length": length}
    asked |= {"approximations": approximations, "kinks": kinks, "cancelling": cancelling}
    return [asked[config["question"]](config)]


# ------------------------------------------------------------------------------------ Remark 74: dense and U-shaped


class Wired(nn.Module):
    """tanh layers; a layer reads the one before it, and with ``reads`` the concatenation of others too."""

    def __init__(self, width: int, reads: Sequence[Sequence[int]], skips: Sequence[tuple[int, int]] = ()) -> None:
        super().__init__()
        self.reads, self.skips = [tuple(r) for r in reads], tuple(skips)
        self.layers = nn.ModuleList(nn.Linear(width * len(r), width) for r in self.reads)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        seen = [x]
        for i, (layer, reads) in enumerate(zip(self.layers, self.reads)):
            out = torch.tanh(layer(torch.cat([seen[r] for r in reads], -1)))
            seen.append(out + sum(seen[start] for start, end in self.skips if end == i))
        return self.head(seen[-1])


def wired(kind: str, depth: int, width: int = 8) -> Wired:
    """Layers of a plain, dense or U-shaped net."""
    reads: list[list[int]] = [[i] for i in range(depth)]
    if kind == "dense":
        reads = [list(range(i + 1)) for i in range(depth)]
    elif kind == "unet":  # layer depth − 1 − i reads what layer i read
        reads = [[i] if i < (depth + 1) // 2 else [i, depth - i] for i in range(depth)]
    return Wired(width, reads).double()


def _batch(width: int = 8, rows: int = 24) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, width, dtype=torch.float64), torch.randint(0, 3, (rows,))


def _between(net: nn.Module, **options: Any) -> curvature.InterlayerCurvature:
    return curvature.between_layers(net, F.cross_entropy, _batch(), nodes=["layers.*"], method="exact", **options)


def shape(config: Config) -> Row:
    """Coupling of the first and the last layer; of an encoder's layers with those that mirror them."""
    found, n = _between(wired(config["net"], config["depth"])), config["depth"]
    pairs = [(i, n - 1 - i) for i in range(1, (n - 1) // 2)]  # farther apart than neighbours, the ends left out
    return {
        "far": float(found.coupling[0, -1]),
        "mirrored": float(np.mean([found.coupling[i, j] for i, j in pairs])),
        "resonance": float(found.resonance[0, -1]),
    }


# -------------------------------------------------------------------------------- Cor. 73, Prop. 75: where skips belong


def placement(config: Config) -> Row:
    """The smallest resonance over all pairs, for every placement of the skips, each over ⌊L/B⌋ layers."""
    depth, budget = config["depth"], config["budget"]
    span = depth // budget
    weights, state = wired("plain", depth).state_dict(), torch.get_rng_state()

    def smallest(starts: Sequence[int]) -> float:
        skips = [(s, min(s + span, depth) - 1) for s in starts]
        net = Wired(8, [[i] for i in range(depth)], skips).double()
        net.load_state_dict(weights)
        torch.set_rng_state(state)  # the same batch
        return float(_between(net).resonance.min())

    tried: dict[tuple[int, ...], float] = {starts: smallest(starts) for starts in combinations(range(depth), budget)}
    best, value = best_skips(depth, budget, tried.__getitem__)
    uniform = tried[uniform_skips(depth, budget)]
    return {
        "none": smallest(()),
        "uniform": uniform,
        "best": value,
        "best_starts": list(best),
        "rank": 1 + sum(v > uniform for v in tried.values()),
        "placements": len(tried),
    }


class Cancelling(nn.Module):
    """x + Wx with W = −0.9 I in every layer: what the skip brings the layer takes away."""

    def __init__(self, depth: int = 6, width: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.sums = nn.ModuleList(nn.Identity() for _ in range(depth))
        for layer in self.layers:
            layer.weight.data = -0.9 * torch.eye(width)

    def forward(self, x: Tensor) -> Tensor:
        for layer, out in zip(self.layers, self.sums):
            x = out(x + layer(x))
        return x


def cancelling(config: Config) -> Row:
    """How fast the resonance of the last layer with those before it falls where a path of skips alone keeps norm 1."""
    batch = torch.randn(8, 3, dtype=torch.float64), torch.randint(0, 3, (8,))
    found = curvature.between_layers(Cancelling().double(), F.cross_entropy, batch, nodes=["sums.*"], method="exact")
    fall = np.log(found.resonance[::-1, -1])
    return {"skip_path": 1.0, "rate": float(np.polyfit(range(len(fall)), fall, 1)[0])}


# ------------------------------------------------------------------------------------ Prop. 89, Cor. 21: what it costs


def cost(config: Config) -> Row:
    """Multiplications and additions of a gradient, and of a Hessian-vector product on top of it."""
    width = config["width"]
    net = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(width, width), nn.Tanh())), nn.Linear(width, 3))
    x, y = torch.randn(32, width), torch.randint(0, 3, (32,))
    params = list(net.parameters())
    with FlopCounterMode(display=False) as gradient:
        once = torch.autograd.grad(F.cross_entropy(net(x), y), params, create_graph=True)
    with FlopCounterMode(display=False) as product:
        torch.autograd.grad(once, params, [torch.randn_like(p) for p in params])
    return {
        "parameters": sum(p.numel() for p in params),
        "gradient": gradient.get_total_flops(),
        "product": product.get_total_flops(),
    }


# ------------------------------------------------------------------------------------ Remark 103: length of a sequence


class RemarkMixer(nn.Module):
    """One head of attention over positions, or the same projections position by position."""

    def __init__(self, width: int, attend: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.attend = attend

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.query(x), self.key(x), self.value(x)
        if not self.attend:
            return torch.tanh(q) * torch.tanh(k) + v
        return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v


def length(config: Config) -> Row:
    """d_eff of the block between queries and keys of one sequence, and what of it joins two positions."""
    n, width = config["length"], 3
    net = RemarkMixer(width, config["net"] == "attention").double()
    x, y = (torch.randn(1, n, width, dtype=torch.float64) for _ in range(2))
    found = curvature.between_layers(net, F.mse_loss, (x, y), nodes=["query", "key"], method="exact")
    block = found.block("query", "key")[0]
    tiles = block.reshape(n, width, n, width).square().sum((1, 3))
    return {
        "d_eff": float(effective_dimension(block)),
        "across": float(1 - tiles.diagonal().sum() / tiles.sum()),
        "joined": float((tiles > 1e-20 * tiles.max()).double().mean()),
    }


# -------------------------------------------------------------- Remarks 22, 96, Cor. 29: what stands in the place of H


def approximations(config: Config) -> Row:
    """A Newton step in a trust region with H and with what stands in its place; and how much of H each one misses."""
    net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x, y = _batch(6, 32)
    names = ["0", "2", "4"]
    found = curvature.between_layers(net, F.cross_entropy, (x, y), nodes=names, space="parameter", method="exact")
    tiles = [[found.block(a, b) for b in names] for a in names]
    joined = lambda k: torch.cat([torch.cat([t[k] for t in row], 1) for row in tiles])
    h, gn = joined(0), joined(1)
    diagonal = torch.block_diag(*(tiles[i][i][0] for i in range(3)))
    low = torch.cat(
        [torch.cat([rank(t[0], 4) if i != j else t[0] for j, t in enumerate(r)], 1) for i, r in enumerate(tiles)]
    )
    kron = torch.block_diag(*(nearest_kronecker(tiles[i][i][0], net.get_submodule(n)) for i, n in enumerate(names)))
    models = {"full": h, "gauss_newton": gn, "block_diagonal": diagonal, "rank_4": low, "kronecker": kron}
    flat = nn.utils.parameters_to_vector(net.parameters()).detach()
    value = lambda w: F.cross_entropy(torch.func.functional_call(net, _named(net, w), (x,)), y)
    models["l_bfgs"] = secants(value, flat, 10)
    g = torch.func.grad(value)(flat)
    row: Row = {"dropped": _dropped()}
    for name, model in models.items():
        step = in_region(model, g, 0.3)
        promised = float(-(g @ step) - step @ model @ step / 2)
        gained = float(value(flat) - value(flat + step))
        row |= {f"{name}_missed": float((model - h).norm() / h.norm()), f"{name}_kept": gained / promised}
        row |= {f"{name}_gained": gained}
    return row


def _dropped(depth: int = 7) -> list[float]:
    """In a contracting net, sρ < 1: the blocks of the last layer's parameters with those before it, by distance."""
    net = wired("plain", depth)
    for layer in net.layers:
        layer.weight.data *= 0.5 / torch.linalg.matrix_norm(layer.weight.data, 2)
    found = _between(net, space="parameter")
    return [float(r / found.resonance[-1, -1]) for r in found.resonance[-1, ::-1]]


def _named(net: nn.Module, flat: Tensor) -> dict[str, Tensor]:
    sizes = [p.numel() for p in net.parameters()]
    return {n: v.view_as(p) for (n, p), v in zip(net.named_parameters(), flat.split(sizes))}


# ------------------------------------------------------------------------------------------ App. D, H.3: at a kink


def kinks(config: Config) -> Row:
    """How far autograd's Hessian at a kink lies from the hull of the Hessians around it, over the hull's size."""
    width = 4
    first, second = torch.randn(width, 3, dtype=torch.float64), torch.randn(2, width, dtype=torch.float64)
    x0 = torch.randn(3, dtype=torch.float64)
    bias = -(first @ x0) * torch.tensor([1.0, 1.0, 0, 0], dtype=torch.float64)  # two units stand at their kink
    plain = lambda x: (second @ torch.relu(first @ x + bias)).square().sum()
    twice = lambda x: (second @ (torch.relu(first @ x + bias) - torch.relu(-first @ x - bias))).square().sum()
    return {"single": _outside(plain, x0), "difference": _outside(twice, x0)}


def _outside(f: Any, x0: Tensor) -> float:
    from scipy.optimize import nnls

    around = [x0 + 1e-6 * d / d.norm() for d in torch.randn(64, *x0.shape, dtype=x0.dtype)]
    hull = torch.stack([torch.func.hessian(f)(x).flatten() for x in around]).numpy().T
    here = torch.func.hessian(f)(x0).flatten().numpy()
    scale = np.abs(hull).max()
    heavy = 1e3  # the shares add up to one
    share, _ = nnls(np.vstack([hull / scale, heavy * np.ones(hull.shape[1])]), np.append(here / scale, heavy))
    return float(np.linalg.norm(hull @ share - here) / np.linalg.norm(hull, axis=0).max())


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    return table([r for r in rows if r["question"] == "shape"], ("net",), "far")


STUDIES = (
    Study(
        name=NAME,
        unprinted="depth, width and data of its remarks",
        paper="dag-hessian",
        title="Do the remarks hold on networks that the paper did not run?",
        scales={
            "smoke": RemarkSizes(depth=6, widths=(16, 32), lengths=(2, 3), seeds=SEEDS[:1]),
            "small": RemarkSizes(),
            "paper": RemarkSizes(depth=10, widths=(16, 32, 64, 128, 256)),
        },
        trials=trials,
        settled="the remarks name no sizes; small networks with exact blocks decide them",
        trial=trial,
        summary=summary,
    ),
)
