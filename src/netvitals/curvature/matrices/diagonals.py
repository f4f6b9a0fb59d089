r"""The diagonal of H, GN or T over all parameters: of every single weight, with its standard error.

$\mathrm{diag}\,H = E\,z\odot Hz$ with signs $z$. Where few directions hold most of H they are taken out first, by XDiag
(Epperly, Tropp and Webber 2024): each sign vector is left to what the products with all the others do not span.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from netvitals.capture import LossFn, Mode, Result, undisturbed
from netvitals.curvature.engine.operator import operators
from netvitals.curvature.engine.probes import ProbeSeries, flattened, identity
from netvitals.curvature.engine.products import Progress
from netvitals.curvature.matrices.deflation import left_out, widened
from netvitals.curvature.measure.result import shortened, skipped_line

SPANNED = 0.45  # of a product left outside the span of the others, below which XDiag pays


@dataclass(frozen=True, kw_only=True)
class Diagonal(Result):
    """The diagonal by parameter name, shaped like the parameter; ``stderr`` is 0 where it is exact.

    Returned by :func:`diagonal`.

    Attributes:
        values: by parameter name, shaped like the parameter.
        stderr: standard error over probes; 0 where it is exact.
        method: "exact", "hutchinson" or "xdiag".
        probes: random vectors.
        seed: seed of the random probes.
        part: ``H``, ``GN`` (Gauss–Newton) or ``T`` (the rest).
        cost: in gradient-equivalents.
        skipped: parameter that was left out → reason.
    """

    values: dict[str, Tensor]
    stderr: dict[str, Tensor]
    method: str
    probes: int
    seed: int
    part: str
    cost: float
    skipped: dict[str, str] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """One row a parameter tensor: the mean of its diagonal, its ends, and how much of it is negative."""
        return [
            {
                "parameter": name,
                "mean": float(value.mean()),
                "smallest": float(value.min()),
                "largest": float(value.max()),
                "median_stderr": float(self.stderr[name].median()),
            }
            for name, value in self.values.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the rows, without the diagonals, which are as long as the model has parameters."""
        found = Result.to_dict(replace(self, values={}, stderr={}))
        return {**{k: v for k, v in found.items() if k not in ("values", "stderr")}, "parameters": self.rows()}

    def __str__(self) -> str:
        wide = max(len(n) for n in self.values)
        rows = [
            f"  {r['parameter'].ljust(wide)}  mean {r['mean']: .3g}, from {r['smallest']:.3g} to {r['largest']:.3g} "
            f"(± {r['median_stderr']:.1g})"
            for r in self.rows()
        ]
        head = f"diagonal of {self.part} ({self.method}, {self.probes} products, {self.cost:.0f} gradient-equivalents)"
        return "\n".join([head, *shortened(rows), *skipped_line(self.skipped)])


@undisturbed
def diagonal(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    seed: int = 0,
    progress: Progress | None = None,
    probes: int = 60,
    part: Literal["H", "GN", "T"] = "H",
    method: Literal["auto", "exact", "hutchinson", "xdiag"] = "auto",
    dtype: torch.dtype | None = None,
    memory: int = 2 << 30,
) -> Diagonal:
    r"""Diagonal of the Hessian, $\partial^2 L/\partial\theta_i^2$ for every parameter, with standard errors.

    Args:
        model: any module; it is not changed.
        loss_fn: ``loss_fn(output, target)``, its name, or None for the model's own ``output.loss``.
        batch: one batch as a data loader yields it; or a list of batches or a loader, whose mean Hessian is then meant.
        mode: ``"as_is"``, ``"train"`` (batch statistics, dropout off) or ``"eval"``.
        seed: seed of the random probes.
        progress: called with (products done, products planned).
        probes: number of products, at least 4.
        part: the whole Hessian, its Gauss–Newton part, or what is left.
        method: ``"exact"`` (a product for every parameter), ``"hutchinson"``, ``"xdiag"``, or ``"auto"``: exact where
            there are no more parameters than probes, else what pays.
        dtype: measure a copy of the model in this dtype.
        memory: memory budget in bytes for graph and products.

    Returns:
        The diagonal by parameter name.

    >>> net = nn.Linear(2, 1, bias=False)
    >>> batch = (torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1))
    >>> diagonal(net, nn.MSELoss(), batch).values["weight"].tolist()
    [[9.0, 1.0]]
    """
    if probes < 4:
        raise ValueError(f"probes= must be at least 4, got {probes}: the standard error is estimated from them")
    if method not in ("auto", "exact", "hutchinson", "xdiag"):
        raise ValueError(f"method= must be 'auto', 'exact', 'hutchinson' or 'xdiag', got {method!r}")
    with operators(model, loss_fn, batch, mode=mode, dtype=dtype, memory=memory) as of:
        whole, leaves = of.whole(part), of.products.flat
        d = whole.shape[0]
        tell = lambda done, planned: progress(done, planned) if progress else None
        if method == "exact" or (method == "auto" and d <= probes):
            value, error, used = _exact(whole.apply, leaves, tell), torch.zeros(d), "exact"
        else:
            value, error, used = _estimated(whole.apply, leaves, probes, seed, method, tell)
        names, cost, skipped = of.names, whole.cost.gradients if whole.cost else float("nan"), of.tape.skipped
        shapes = [leaf.shape for leaf in leaves]
    sizes = [shape.numel() for shape in shapes]
    parts = [zip(names, (p.reshape(s) for p, s in zip(x.split(sizes), shapes))) for x in (value, error)]
    return Diagonal(
        values=dict(parts[0]),
        stderr=dict(parts[1]),
        method=used,
        probes=d if used == "exact" else probes,
        seed=seed,
        part=part,
        cost=cost,
        skipped=skipped,
    )


def _exact(apply: Any, leaves: list[Tensor], tell: Any) -> Tensor:
    d, out = sum(leaf.numel() for leaf in leaves), []
    for start in range(0, d, 64):
        stop = min(start + 64, d)
        out.append(apply(flattened(identity(leaves, start, stop))).diagonal(offset=start))
        tell(stop, d)
    return torch.cat(out)


def _estimated(
    apply: Any, leaves: list[Tensor], probes: int, seed: int, method: str, tell: Any
) -> tuple[Tensor, Tensor, str]:
    series, half = ProbeSeries(leaves, seed), probes // 2
    first = flattened(series.take(half if method != "hutchinson" else probes))
    images = apply(first)
    tell(len(first), probes)
    wide = first.shape[1] > 2 * probes
    if method == "hutchinson" or (method == "auto" and (not wide or half < 4 or left_out(images) > SPANNED)):
        samples, used = first * images, "hutchinson"
        if len(first) < probes:
            rest = flattened(series.take(probes - half))
            samples = torch.cat([samples, rest * apply(rest)])
    else:
        samples, used = _left_one_out(first, images, apply), "xdiag"
    tell(probes, probes)
    k = len(samples)
    return samples.mean(0), samples.std(0) * (widened(k) / k**0.5), used


def _left_one_out(signs: Tensor, images: Tensor, apply: Any) -> Tensor:
    r"""One sample (k, d) of the diagonal a sign vector z: $\mathrm{diag}\,PH + z\odot(I-P)Hz$.

    P projects onto the other products: $P = QQ^\top - bb^\top$ with the orthonormal Q of all products and b, the
    direction in their span that only the product of z has.
    """
    q, r = torch.linalg.qr((images if images.dtype in (torch.float32, torch.float64) else images.float()).mT)
    signs, basis, floor = signs.to(q.dtype), q.mT.contiguous(), torch.finfo(r.dtype).eps * float(r.abs().max())
    r = r + torch.diag((r.diagonal().abs() < floor) * floor)  # a product that others span has no direction of its own
    only = torch.linalg.solve_triangular(r, torch.eye(len(r), dtype=r.dtype, device=r.device), upper=True)
    only = only / only.norm(dim=1, keepdim=True)  # row i: b of z_i in the coordinates of Q
    products = apply(basis.to(images.dtype)).to(q.dtype)
    known, inner = (basis * products).sum(0), products @ signs.mT
    out = torch.empty_like(signs)
    for i, (z, image, own) in enumerate(zip(signs, images, only)):
        b = own @ basis
        out[i] = known - b * (own @ products) + z * (image - inner[:, i] @ basis + b * (own @ inner[:, i]))
    return out
