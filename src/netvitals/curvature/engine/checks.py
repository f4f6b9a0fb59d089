r"""What a measurement of curvature takes for granted, looked at on the user's own model, each time.

* Examples do not see each other: then $J_{out\leftarrow v}$ falls apart by example. A cotangent on half of the outputs
  must reach no perturbation of the other half.
* The loss is a function of the model's output alone: then $\nabla L = J^\top\nabla_{out}L$, and only then is
  $H = GN + T$ with the curvature of the loss at the output.
* Second derivatives are right: $z^\top Hw = w^\top Hz$. torch has wrong ones for some operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from netvitals.capture import tensors

if TYPE_CHECKING:
    from netvitals.curvature.engine.problem import Problem
    from netvitals.curvature.engine.tape import Tape

PROBES = 3  # random vectors that a second derivative is checked for symmetry with
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


def asymmetry(apply: Callable[[list[Tensor]], list[Tensor]], leaves: Sequence[Tensor]) -> float:
    r"""The largest $|z_i^\top Hz_j - z_j^\top Hz_i|$ of three random vectors, over $\|Hz\|\|z\|/\sqrt d$.

    That is the size of the difference where H is antisymmetric.

    Args:
        apply: H times one vector, given and returned as pieces (1, ...) like the leaves.
        leaves: what the vectors are shaped like.

    >>> h = torch.tensor([[1.0, 2.0], [0.0, 1.0]], dtype=torch.float64)
    >>> asymmetry(lambda z: [z[0] @ h.mT], [h[0]]) > 0.1, asymmetry(lambda z: z, [h[0]])
    (True, 0.0)
    """
    source = torch.Generator(device=leaves[0].device).manual_seed(0)
    normal = lambda x: torch.randn(1, *x.shape, generator=source, dtype=torch.float32, device=source.device).to(x.dtype)
    flat = lambda pieces: torch.cat([one.reshape(-1).double() for one in pieces])
    vectors = [[normal(x) for x in leaves] for _ in range(PROBES)]
    z, hz = torch.stack([flat(v) for v in vectors]), torch.stack([flat(apply(v)) for v in vectors])
    if not bool(torch.isfinite(hz).all()):
        return 0.0
    forms = z @ hz.mT
    lengths = z.norm(dim=1)[:, None] * hz.norm(dim=1) / z.shape[1] ** 0.5
    sizes = (lengths + lengths.mT) / 2
    return float(torch.where(sizes > 0, (forms - forms.mT).abs() / sizes, 0.0).max())


def require_symmetric(defect: float, dtype: torch.dtype) -> None:
    """Raise a sentence where a second derivative computed in this dtype is not symmetric."""
    if defect > tolerance(dtype):
        raise ValueError(
            f"the second derivative that torch computes here is not symmetric (relative error about {defect:.1%}), so "
            "one operation of the model has a wrong double backward. With weight_norm, call "
            "torch.nn.utils.parametrize.remove_parametrizations on a copy of the model; otherwise replace operations "
            "until this error is gone"
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
            f"the loss is not a mean over examples (whole batch {whole:.6g}, mean of its halves {parts:.6g}). "
            "Several batches are averaged, which is correct only for a mean loss: use reduction='mean' in loss_fn"
        )


def require_same_shapes(first: Tape, tape: Tape) -> None:
    """Raise a sentence where the nodes of two batches have other sizes."""
    for node, a, b in zip(first.nodes, first.leaves, tape.leaves):
        if [x.shape for x in a] != [x.shape for x in b]:
            was, now = (sum(leaf.numel() for leaf in leaves) for leaves in (a, b))
            raise ValueError(
                f"{node.name} has {was} coordinates in the first batch and {now} in another. Activations of different "
                "length have no mean Hessian: give batches of one length, or measure with space='parameter'"
            )
