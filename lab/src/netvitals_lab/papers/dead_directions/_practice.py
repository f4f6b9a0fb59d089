"""Networks as modules of their own: rates against their prediction, spectra over training, streams behind norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals import singular
from netvitals.singular.checkpoint.stream import sigma_stream
from netvitals.singular.networks.pre_norm import PreNormTransformer, component_shift
from netvitals_lab import Row
from netvitals_lab.training import gradient_step

f64 = torch.float64
WINDOWS = {"asymptotic": (1e-4, 1e-3), "crossover": (0.1, 0.3), "end": (0.3, 1.0)}
SETUPS: dict[str, dict[str, Any]] = {
    "usual": {},
    "three blocks": {"blocks": 3},
    "four blocks": {"blocks": 4},
    "second of three": {"blocks": 3, "probe": 1},
    "wide": {"width": 16},
    "ReLU": {"activation": "relu"},
    "linear": {"activation": "linear"},
    "other weights": {"seed": 1},
}


class PracticeBlock(nn.Module):
    """x + W₂ φ(W₁ x) with a norm in the branch, behind the sum, or nowhere."""

    def __init__(self, width: int, norm: type[nn.Module] | None = None, post: bool = False) -> None:
        super().__init__()
        self.norm = norm(width) if norm is not None else nn.Identity()
        self.up, self.down, self.post = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), post

    def forward(self, x: Tensor) -> Tensor:
        if self.post:
            return self.norm(x + self.down(torch.tanh(self.up(x))))
        return x + self.down(torch.tanh(self.up(self.norm(x))))


def mlp(
    activation: type[nn.Module],
    depth: int,
    width: int,
    norm: type[nn.Module] | None = None,
    after: tuple[int, ...] = (),
    inputs: int = 8,
    outputs: int = 5,
) -> nn.Sequential:
    """Linear layers with an activation between them, and norms behind some."""
    layers: list[nn.Module] = []
    for i in range(1, depth + 1):
        layers.append(nn.Linear(inputs if i == 1 else width, outputs if i == depth else width))
        layers += [activation()] if i < depth else []
        layers += [norm(width)] if norm is not None and i in after else []
    return nn.Sequential(*layers)


def stack(width: int, **options: Any) -> nn.Sequential:
    """Two residual blocks between a first and a last layer."""
    return nn.Sequential(
        nn.Linear(8, width), PracticeBlock(width, **options), PracticeBlock(width, **options), nn.Linear(width, 5)
    )


def images(width: int) -> nn.Sequential:
    """Three convolutions, pooled."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3),
        nn.GELU(),
        nn.Conv2d(width, width, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 5),
    )


NETS: dict[str, Callable[[int], nn.Module]] = {
    "ReLU": lambda w: mlp(nn.ReLU, 5, w),
    "GELU": lambda w: mlp(nn.GELU, 5, w),
    "tanh": lambda w: mlp(nn.Tanh, 5, w),
    "sigmoid": lambda w: mlp(nn.Sigmoid, 4, w),
    "LayerNorm behind the first": lambda w: mlp(nn.GELU, 5, w, nn.LayerNorm, (1,)),
    "LayerNorm before the last": lambda w: mlp(nn.Tanh, 5, w, nn.LayerNorm, (4,)),
    "RMSNorm behind the first": lambda w: mlp(nn.GELU, 5, w, nn.RMSNorm, (1,)),
    "two RMSNorms": lambda w: mlp(nn.Tanh, 5, w, nn.RMSNorm, (1, 3)),
    "residual": stack,
    "pre-norm": lambda w: stack(w, norm=nn.LayerNorm),
    "post-norm": lambda w: stack(w, norm=nn.LayerNorm, post=True),
    "pre-norm, RMS": lambda w: stack(w, norm=nn.RMSNorm),
    "post-norm, RMS": lambda w: stack(w, norm=nn.RMSNorm, post=True),
    "convolutions": images,
}
REFUSED: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)),
    "group norm": lambda: nn.Sequential(nn.Linear(8, 8), nn.GroupNorm(2, 8), nn.Linear(8, 2)),
    "attention": lambda: nn.TransformerEncoderLayer(8, 2, 8, batch_first=True),
    "gate": lambda: nn.Sequential(nn.Linear(8, 8), nn.GLU(), nn.Linear(4, 2)),
    "softmax": lambda: nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1)),
    "flat at zero": lambda: nn.Sequential(nn.Linear(8, 8), nn.Softshrink(), nn.Linear(8, 2)),
    "reparametrised weight": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 2))),
}


def deviation(net: str, loss: str, width: int, examples: int, seed: int) -> list[Row]:
    """Observed minus predicted exponent of both factors of every layer, with random weights and after training."""
    torch.manual_seed(seed)
    model = NETS[net](width)
    x = torch.randn(examples, 1, 8, 8) if net == "convolutions" else torch.randn(examples, 8)
    target = torch.randint(0, 5, (examples,)) if loss == "ce" else torch.randn(examples, 5)
    rows: list[Row] = []
    for when in ("start", "trained"):
        if when == "trained":
            _fit(model, x, target, loss)
        found = singular.rates(model, loss, x)
        rows += [{"when": when, **{k: _number(v) for k, v in part.row().items()}} for part in found.parts]
    return rows


def _fit(model: nn.Module, x: Tensor, target: Tensor, loss: str, steps: int = 60) -> None:
    measure = nn.functional.cross_entropy if loss == "ce" else nn.functional.mse_loss
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        gradient_step(optimizer, measure(model(x), target))


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def refusal(primitive: str) -> Row:
    """Is a network with a part that has no law refused, and does the sentence name it?"""
    x = torch.randn(6, 3, 8) if primitive == "attention" else torch.randn(6, 8)
    try:
        singular.predict_rates(REFUSED[primitive]().eval(), x)
    except ValueError as error:
        return {"refused": True, "words": str(error)}
    return {"refused": False, "words": ""}


def approach(start: str, depth: int, steps: int, seed: int, width: int = 5) -> list[Row]:
    """Learn a target with one direction missing, from an aligned start or a random one, and read the checkpoints."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(300, width, generator=generator, dtype=f64)
    x = x @ torch.linalg.inv(torch.linalg.cholesky(x.T @ x / len(x))).T  # white: the loss is that of the population
    entries = torch.tensor([1.0] * (width - 1) + [0.0], dtype=f64)
    y = x * entries
    net = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(depth))).double()
    with torch.no_grad():
        for layer in net.children():
            drawn = torch.randn(width, width, generator=generator, dtype=f64) / math.sqrt(width)
            layer.get_parameter("weight").copy_(
                torch.diag(entries + 0.4 * (1 - entries)) if start == "aligned" else drawn
            )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    looks = set(np.unique(np.geomspace(max(steps // 200, 1), steps, 24).astype(int)).tolist())
    kept: dict[int, dict[str, Tensor]] = {}
    for i in range(1, steps + 1):
        gradient_step(optimizer, 0.5 * (net(x) - y).square().sum(1).mean())
        if i in looks:
            kept[i] = {n: v.clone() for n, v in net.state_dict().items()}
    times = {i: float(torch.linalg.svdvals(_product(state))[-1]) ** (1 / depth) for i, state in kept.items()}
    found = singular.spectra_history(net, "mse", (x, y), checkpoints=kept, times=times, keep=3)
    rows: list[Row] = []
    for axis in found.axes:
        t = found.axes[axis]
        span = float(np.log10(t.max() / t.min())) if t.min() > 0 else None
        for s in found.select(axis):
            local = [r["difference"] for r in found.local(s.layer, s.rank, axis)] if s.rank is not None else []
            rows.append(
                {
                    "axis": axis,
                    "layer": s.layer,
                    "predicted": s.predicted,
                    "rank": s.rank,
                    "difference": _number(s.difference),
                    "error": _number(s.error),
                    "local": max((abs(v) for v in local if math.isfinite(v)), default=None),
                    "floored": s.floored,
                    "span": span,
                    "note": s.note,
                }
            )
    return rows


def _product(state: dict[str, Tensor]) -> Tensor:
    first, *rest = state.values()
    for w in rest:
        first = w @ first
    return first


class Weighted(nn.Module):
    """LN(x + Wx): a post-norm block whose branch can take away what the skip brings."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(len(weight), len(weight), bias=False), nn.LayerNorm(len(weight))
        self.linear.weight.data = weight

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.linear(x))


def _encoder(arrangement: str, depth: int, width: int) -> nn.Module:
    if arrangement == "post-norm, cancelled":
        away = nn.functional.normalize(torch.randn(width) @ (torch.eye(width) - 1 / width), dim=0)
        blocks = [0.2 * torch.randn(width, width) / math.sqrt(width) for _ in range(depth - 1)]
        return nn.Sequential(*map(Weighted, [*blocks, -0.9999 * torch.outer(away, away)]))
    first = arrangement == "pre-norm"
    layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True, norm_first=first)
    net = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
    if arrangement == "post-norm, gains":
        for module in net.modules():
            if isinstance(module, nn.LayerNorm):
                nn.init.uniform_(module.weight, 0.7, 1.4)
                nn.init.normal_(module.bias, std=0.2)
    return net


def stream(arrangement: str, depth: int, width: int, seed: int) -> Row:
    """σ_r of the stream of an encoder, read with the projection and without."""
    torch.manual_seed(seed)
    net, x = _encoder(arrangement, depth, width), torch.randn(24, 12, width)
    raw, read = (sigma_stream(net, x, project=p) for p in (False, True))
    return {
        "raw": min(raw.ratio[1:]),
        "raw_kept": raw.kept,
        "ratio": min(read.ratio[1:]),
        "kept": read.kept,
        "projected": sum(read.projected),
        "nodes": len(read.nodes) - 1,
    }


def shift(setup: str, window: str, norm: bool, fisher: str, examples: int, seed: int) -> list[Row]:
    """Slopes of the six components of a pre-norm block in a window, and their shift in units of fc2's."""
    low, high = WINDOWS[window]
    net = PreNormTransformer(norm=norm, **SETUPS[setup])
    found = component_shift(net, np.geomspace(low, high, 5).tolist(), fisher=fisher, examples=examples, seed=seed)
    return [{**{k: _number(v) for k, v in row.items()}, "delta": found.delta} for row in found.rows()]
