"""The canonical bridge: a square linear chain learned exactly, and its smallest eigenvalue under each optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from netvitals import optim
from netvitals.optim import symmetry
from netvitals.singular import rate_fit
from netvitals_lab import Row, stats
from netvitals_lab.training import gradient_step

f64 = torch.float64
Build = Callable[[list[Parameter]], Optimizer]


def builds(lr: float) -> dict[str, Build]:
    """Optimisers by name; DDCAdam has the chained spec."""

    def ddc(vertical: str) -> Build:
        return lambda p: optim.DDCAdam(p, [optim.chained_rescale(p)], lr=lr, vertical=vertical, lr_vertical=lr / 10)

    out: dict[str, Build] = {"sgd": lambda p: torch.optim.SGD(p, lr=0.05), "adam": lambda p: torch.optim.Adam(p, lr=lr)}
    out |= {f"ddcadam {v}": ddc(v) for v in ("frozen", "sgd", "adam")}

    def floor(eps: float) -> Build:
        return lambda p: optim.EpsFloor(p, lr=lr if eps < 1 else 0.05 * eps, eps=eps)

    def dial(alpha: float) -> Build:
        return lambda p: optim.HomogeneityDial(p, lr=1e-2, alpha=alpha)

    out |= {f"eps {e:g}": floor(e) for e in (1e-8, 1e-4, 1e-2, 1.0)}
    out |= {f"dial {a:g}": dial(a) for a in (0.0, 0.25, 0.5, 1.0)}
    out["sign"] = lambda p: optim.MomentumSign(p, lr=1e-5, beta=0.9)
    return out


def descend(name: str, depth: int, steps: int, width: int = 4, lr: float = 1e-3, start: float = 0.3) -> Row:
    """Learn diag(1, …, 1, 0) from W_ℓ = diag(1, …, 1, t₀) on the exact loss; fit λ_min(G_1) ~ t^{2(L−1)} as t falls."""
    torch.manual_seed(0)
    weights = [Parameter(torch.diag(torch.tensor([1.0] * (width - 1) + [start], dtype=f64))) for _ in range(depth)]
    target = torch.diag(torch.tensor([1.0] * (width - 1) + [0.0], dtype=f64))
    optimizer = builds(lr)[name](weights)
    ts, lams, at = [], [], []
    observations = set(np.unique(np.geomspace(1, steps, 60).astype(int)).tolist())
    for i in range(1, steps + 1):
        product: Tensor = weights[0]
        for w in weights[1:]:
            product = w @ product
        gradient_step(optimizer, 0.5 * (product - target).square().sum())
        if i in observations:
            t, lam, off = read([w.detach() for w in weights])
            ts.append(t)
            lams.append(lam)
            at.append(i)
            if off > 1e-6 or not math.isfinite(t):
                break
    return fit(name, depth, np.array(ts), np.array(lams), np.array(at))


def read(weights: list[Tensor]) -> tuple[float, float, float]:
    """t = σ_min(W_L…W_1)^{1/L}, λ_min(G_1) at unit noise, and how far the dead axis has turned."""
    above = weights[-1]
    for w in reversed(weights[1:-1]):
        above = above @ w
    u, s, _ = torch.linalg.svd(above.T @ above)
    whole = above @ weights[0]
    t = float(torch.linalg.svdvals(whole)[-1]) ** (1 / len(weights))
    return t, float(s[-1]), float(1 - u[-1, -1].abs())


def fit(name: str, depth: int, ts: np.ndarray, lams: np.ndarray, at: np.ndarray) -> Row:
    """Slope over the stretch in which t really falls, not over a fixed third (X23)."""
    low, best = (int(np.argmin(ts)) + 1 if len(ts) else 0), None
    ts, lams, at = ts[:low], lams[:low], at[:low]
    span = math.log10(ts[0] / ts[-1]) if len(ts) > 3 and ts[-1] > 0 else 0.0
    if span >= 0.15:
        late = slice(len(ts) // 3, None)
        best = rate_fit(ts[late][::-1], lams[late][::-1], floor=0.0)
    row: Row = {"optimizer": name, "depth": depth, "span": span, "points": len(ts)}
    row["slope"] = best.slope if best is not None and math.isfinite(best.slope) else None
    row["spearman"] = stats.spearman(ts, lams).value if len(ts) > 4 and np.ptp(ts) > 0 else None
    if name == "sgd" and len(at) > 8:  # λ = c (s + s₀)^p: the start is not at zero on this axis
        row["step_slope"] = rate_fit(at, lams, floor=0.0, shift=True).slope
    return row


def drift(name: str, steps: int, seed: int) -> Row:
    """|mean logit bias| after training on uneven classes (X27)."""
    gen = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
    with torch.no_grad():
        net[2].get_parameter("bias").zero_()
    gauges: list[Any] = [optim.ce_shift_bias(net[2].get_parameter("bias"))]
    params = list(net.parameters())
    chosen: dict[str, Callable[[], Optimizer]] = {
        "sgd": lambda: torch.optim.SGD(params, lr=0.1),
        "adam": lambda: torch.optim.Adam(params, lr=1e-2),
        "ddcadam printed": lambda: optim.DDCAdam(params, gauges, lr=1e-2, reproject=False),
        "ddcadam": lambda: optim.DDCAdam(params, gauges, lr=1e-2),
    }
    optimizer = chosen[name]()
    x = torch.randn(4096, 12, generator=gen)
    y = torch.multinomial(torch.tensor([0.5] + [0.05] * 8 + [0.1]), 4096, replacement=True, generator=gen)
    for i in range(steps):
        rows = torch.arange(i * 32, (i + 1) * 32) % 4096
        gradient_step(optimizer, torch.nn.functional.cross_entropy(net(x[rows]), y[rows]))
    return {"optimizer": name, "drift": float(net[2].get_parameter("bias").detach().mean().abs()), "steps": steps}


def equivariance(spec: str, vertical: str, dtype: str, steps: int) -> Row:
    """Synchronised gradients from gauge-related starts (Proposition 83, Remark 84)."""
    kind = getattr(torch, dtype)

    def draw(*shape: int) -> Parameter:
        return Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=f64).to(kind))

    specs: dict[str, Callable[[], Any]] = {
        "shift of the bias": lambda: optim.ce_shift_bias(draw(7)),
        "shift of rows": lambda: optim.ce_shift_rows(draw(7, 5)),
        "ReLU rescale": lambda: optim.relu_rescale(draw(6, 4), draw(3, 6)),
        "norm scale": lambda: optim.ln_scale(draw(6), draw(6), [draw(5, 6), draw(4, 6)]),
        "chained rescale": lambda: optim.chained_rescale([draw(6, 4), draw(6, 6), draw(5, 6), draw(3, 5)]),
    }
    build: Callable[[Any], Optimizer]
    if vertical == "adam itself":
        build = lambda gauges: torch.optim.Adam([p for g in gauges for p in g.params], lr=1e-2)
    else:
        build = lambda gauges: optim.DDCAdam(
            [p for g in gauges for p in g.params], gauges, lr=1e-3, vertical=vertical, lr_vertical=1e-4
        )
    found = symmetry.equivariance(specs[spec](), build, steps=steps)
    return {"spec": spec, "vertical": vertical, "dtype": dtype, "residual": found.residual}


SPECS = ("shift of the bias", "shift of rows", "ReLU rescale", "norm scale", "chained rescale")
