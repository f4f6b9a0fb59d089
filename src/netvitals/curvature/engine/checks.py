r"""What a measurement of curvature takes for granted, looked at on the user's own model, each time.

* Examples do not see each other: then $J_{out\leftarrow v}$ falls apart by example. A cotangent on half of the outputs
  must reach no perturbation of the other half.
* The loss is a function of the model's output alone: then $\nabla L = J^\top\nabla_{out}L$, and only then is
  $H = GN + T$ with the curvature of the loss at the output.
* Second derivatives are right: $z^\top Hw = w^\top Hz$. torch's own are not for every operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from netvitals.capture import tensors

if TYPE_CHECKING:
    from netvitals.curvature.engine.problem import Problem
    from netvitals.curvature.engine.tape import Tape

ENOUGH = 12  # products of an iteration that are held against the first for symmetry
LOOSE = 1e-6  # what casts to float32 inside a model leave of double precision


def rows_interact(outputs: Sequence[Tensor], rows: Sequence[Tensor], examples: int) -> bool:
    """Whether an example's perturbation at any node reaches the outputs of another example."""
    if examples < 2 or not rows:
        return False
    if any(o.ndim == 0 or o.shape[0] != examples for o in outputs):
        return True
    source = torch.Generator(device=outputs[0].device).manual_seed(0)
    for half in (0, 1):
        mine = torch.arange(examples, device=outputs[0].device) % 2 == half
        cotangents = []
        for o in outputs:
            z = torch.randn(o.shape, generator=source, dtype=torch.float32, device=o.device).to(o.dtype)
            cotangents.append(z * mine.view(-1, *(1,) * (o.ndim - 1)))
        reached = torch.autograd.grad(outputs, rows, cotangents, retain_graph=True, allow_unused=True)
        if any(g is not None and bool(g[~mine].any()) for g in reached):
            return True
    return False


def gradient_beyond(full: Sequence[Tensor | None], through: Sequence[Tensor | None]) -> float:
    """The share of the loss's gradient that does not pass through the model's output."""
    gap = sizes = others = 0.0
    for f, t in zip(full, through):
        like = f if f is not None else t
        if like is None:
            continue
        f, t = (torch.zeros_like(like) if v is None else v.detach() for v in (f, t))
        f, t = f.double(), t.double()
        gap += float((f - t).square().sum())
        sizes, others = sizes + float(f.square().sum()), others + float(t.square().sum())
    largest = max(sizes, others)
    return (gap / largest) ** 0.5 if largest else 0.0


def loss_curves(slope: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    """Whether the loss has a second derivative in the outputs."""
    pairs = [(s, o) for s, o in zip(slope, outputs) if s.requires_grad]
    if not pairs:
        return False
    weights = [torch.linspace(1, 2, s.numel(), dtype=s.dtype, device=s.device).view_as(s) for s, _ in pairs]
    curved = torch.autograd.grad(
        [s for s, _ in pairs], [o for _, o in pairs], weights, retain_graph=True, allow_unused=True
    )
    return any(c is not None and bool(c.any()) for c in curved)


def tolerance(dtype: torch.dtype) -> float:
    """How far two ways to the same number may differ by rounding."""
    return max(1e4 * torch.finfo(dtype).eps, LOOSE)


class Symmetry:
    r"""Compares $z_i^\top Hz_j$ with $z_j^\top Hz_i$ among the products that a measurement makes anyway.

    >>> seen = Symmetry(torch.float64)
    >>> h = torch.tensor([[1.0, 2.0], [0.0, 1.0]], dtype=torch.float64)
    >>> for z in torch.eye(2, dtype=torch.float64):
    ...     seen.add(z, h @ z)
    >>> round(seen.defect, 3)
    1.748
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.defect = 0.0  # largest |zᵀHw − wᵀHz| over ‖Hw‖‖z‖/√d, which is its size for an antisymmetric H
        self._tolerance, self._seen = tolerance(dtype), 0
        self._rounding = max(256 * torch.finfo(dtype).eps, LOOSE)  # of a product, over its length
        self._first: tuple[Tensor, Tensor] | None = None

    def add(self, z: Tensor, hz: Tensor) -> None:
        """One more product; the first is kept and the others are held against it."""
        z, hz = z.detach().reshape(-1), hz.detach().reshape(-1)
        self._seen += 1
        if self._first is None:
            self._first = z, hz
            return
        first, image = self._first
        gap = float((torch.dot(z, image) - torch.dot(first, hz)).abs())
        whole = 0.5 * float(z.norm() * image.norm() + first.norm() * hz.norm())
        if whole > 0 and math.isfinite(gap):
            # Lanczos vectors lie along each other's products, so that both sides are large and so is their rounding
            self.defect = max(self.defect, (gap - self._rounding * whole) * z.numel() ** 0.5 / whole)

    def watching(self, apply: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """``apply`` on rows of vectors, with the first products noted."""

        def watched(rows: Tensor) -> Tensor:
            images = apply(rows)
            for z, hz in zip(rows, images):
                if self._seen < ENOUGH:
                    self.add(z, hz)
            return images

        return watched

    def demand(self) -> None:
        """Raise a sentence where the matrix is not symmetric."""
        demand_symmetry(self.defect, self._tolerance)


class PairSymmetry:
    r"""The same between nodes: $z_v^\top H_{v,w}z_w$ and $z_w^\top H_{w,v}z_v$ from the first product at each node."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._tolerance = tolerance(dtype)
        self._seen: dict[int, tuple[Tensor, list[Tensor]]] = {}
        self._gaps: list[tuple[float, float]] = []  # difference of two numbers that should agree, and their size

    @property
    def defect(self) -> float:
        """The largest gap as a share of its size; a block that vanishes beside the others is rounding."""
        floor = self._tolerance * max((size for _, size in self._gaps), default=0.0)
        return max((gap / max(size, floor) for gap, size in self._gaps if size > 0), default=0.0)

    def __contains__(self, w: int) -> bool:
        return w in self._seen

    def add(self, w: int, rows: Tensor, images: list[Tensor]) -> None:
        """Products at node w, held against those of the nodes before it, and the second against the first."""
        self._seen[w] = rows[0], [image[0] for image in images]
        for v, (u, others) in self._seen.items():
            if v != w:
                self._hold(u, images[v][0], rows[0], others[w])
        self._hold(rows[0], images[w][1], rows[1], images[w][0])

    def _hold(self, u: Tensor, here: Tensor, z: Tensor, there: Tensor) -> None:
        gap = float((u * here).sum() - (z * there).sum())
        size = float(u.norm() * here.norm() / u.numel() ** 0.5 + z.norm() * there.norm() / z.numel() ** 0.5) / 2
        if math.isfinite(gap):
            self._gaps.append((abs(gap), size))

    def demand(self) -> None:
        """Raise a sentence where the blocks are not each other's transposes."""
        demand_symmetry(self.defect, self._tolerance)


def demand_symmetry(defect: float, allowed: float) -> None:
    """Raise a sentence where a second derivative is not symmetric."""
    if defect > allowed:
        raise ValueError(
            f"the second derivative that torch computes here is not symmetric (by about {defect:.1%} of its "
            "size): one operation of the model has a wrong one. weight_norm is known for it: fold it into the "
            "weight with torch.nn.utils.parametrize.remove_parametrizations on a copy of the model; else replace "
            "operations until this is gone"
        )


def first_input(problem: Problem) -> Tensor:
    """The first input that has dimensions."""
    return next(t for t in tensors((problem.task.args, dict(problem.task.kwargs))) if t.ndim > 0)


def dimension_of_examples(tape: Tape) -> int:
    """Where the first input has its examples: a sequence-first batch has them in its second dimension."""
    shape = first_input(tape.problem).shape
    return next((d for d, size in enumerate(shape) if size == tape.examples), 0)


def require_mean(tape: Tape) -> None:
    """Raise a sentence where the loss is no mean over examples."""
    whole, parts = tape.mean_check()
    if abs(whole - parts) > 0.25 * max(abs(whole), abs(parts)):  # a mean over tokens may differ a little by padding
        raise ValueError(
            f"the loss is not a mean over examples (whole batch {whole:.6g}, mean of its halves {parts:.6g}), and over "
            "many batches the mean is measured: use reduction='mean' in loss_fn"
        )


def require_same_shapes(first: Tape, tape: Tape) -> None:
    """Raise a sentence where the nodes of two batches have other sizes."""
    for node, a, b in zip(first.nodes, first.leaves, tape.leaves):
        if [x.shape for x in a] != [x.shape for x in b]:
            was, now = (sum(leaf.numel() for leaf in leaves) for leaves in (a, b))
            raise ValueError(
                f"{node.name} has {was} coordinates in the first batch and {now} in another: activations of different "
                "length have no mean Hessian. Give batches of one length, or measure with space='parameter'"
            )
