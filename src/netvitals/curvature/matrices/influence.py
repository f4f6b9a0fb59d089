r"""How a training example moves the loss of a test batch: $g_{test}^\top(H+\lambda I)^{-1}g_i/N$ when it is left out.

Leaving example i out of N changes the optimum by $(H+\lambda I)^{-1}g_i/N$ to first order, and the test loss by
$g_{test}^\top(H+\lambda I)^{-1}g_i/N$. With $s=(H+\lambda I)^{-1}g_{test}$ solved once, $g_i^\top s$ of every example
comes from one Jacobian-vector product: $\partial\ell_i/\partial f_i\cdot(Js)_i$.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from netvitals.capture import LossFn, Mode, Result, batches_of, one_screen, undisturbed
from netvitals.curvature.engine.operator import operators
from netvitals.curvature.engine.probes import pieces_of
from netvitals.curvature.engine.problem import float_outputs
from netvitals.curvature.engine.products import Part, Products
from netvitals.curvature.engine.stream import several
from netvitals.curvature.engine.tape import Tape, recorded_parameters
from netvitals.curvature.matrices.solving import solved


@dataclass(frozen=True, kw_only=True)
class Influence(Result):
    """Of every training example, by how much the test loss rises when it is left out; in the order of the batches.

    Returned by :func:`influence`.

    Attributes:
        left_out: (N,).
        damping: added to the matrix before it is inverted.
        residual: of the linear system, relative.
        products: Hessian-vector products that were spent.
        test_loss: as the model stands.
        part: ``H``, ``GN`` (Gauss–Newton) or ``T`` (the rest).
        skipped: parameter that was left out → reason.
    """

    left_out: np.ndarray
    damping: float
    residual: float
    products: int
    test_loss: float
    part: str
    skipped: dict[str, str] = field(default_factory=dict)

    def helpful(self, most: int = 5) -> list[int]:
        """The ``most`` examples whose absence would raise the test loss most."""
        return [int(i) for i in np.argsort(-self.left_out)[:most]]

    def harmful(self, most: int = 5) -> list[int]:
        """The ``most`` examples whose absence would lower it most."""
        return [int(i) for i in np.argsort(self.left_out)[:most]]

    def rows(self) -> list[dict[str, Any]]:
        """One row a training example."""
        return [{"example": i, "left_out": float(v)} for i, v in enumerate(self.left_out)]

    def __str__(self) -> str:
        named = lambda which: ", ".join(f"{i} ({self.left_out[i]:+.2g})" for i in which)
        return one_screen(
            [
                f"influence of {len(self.left_out)} training examples on a test loss of {self.test_loss:.4g} "
                f"({self.part}, damping {self.damping:g}, {self.products} products, residual {self.residual:.1g})",
                f"left out, the test loss would rise most without {named(self.helpful())}",
                f"and fall most without {named(self.harmful())}",
            ]
        )


@undisturbed
def influence(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    test: Any,
    *,
    mode: Mode = "as_is",
    part: Part = "GN",
    damping: float = 1e-3,
    tol: float = 1e-4,
    most: int = 200,
    dtype: torch.dtype | None = None,
    memory: int = 2 << 30,
) -> Influence:
    """Estimate how leaving out each training example would change the loss of a test batch, to first order.

    Args:
        model: a model at or near a minimum of its training loss; it is not changed.
        loss_fn: a mean over examples.
        batch: the training data: one batch, or a list of batches or a loader.
        test: one batch.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``.
        part: the matrix that is inverted: ``"GN"`` (positive), ``"H"``, or a Fisher matrix.
        damping: λ, also what weight decay adds to the Hessian.
        tol: tolerance for the residual of the linear system.
        most: largest number of products; an error is raised if they do not suffice.
        dtype: measure a copy of the model in this dtype.
        memory: memory budget in bytes for graph and products.

    Returns:
        One number a training example.

    >>> net, x = nn.Linear(1, 1, bias=False), torch.tensor([[1.0], [2.0]])
    >>> found = influence(net, "mse", (x, 2 * x), (x, 2 * x), damping=1.0)
    >>> found.left_out.shape
    (2,)
    """
    options: Any = {"mode": mode, "dtype": dtype, "memory": memory}
    with recorded_parameters(model, loss_fn, test, **options) as tape:
        whole = torch.autograd.grad(tape.whole_loss(), [ls[0] for ls in tape.leaves], allow_unused=True)
        names = [n.name for n in tape.nodes]
        by_name = {n: g for n, g in zip(names, whole) if g is not None}
        test_loss = tape.loss
    with operators(model, loss_fn, batch, **options) as of:
        found = solved(of.whole(part).apply, of.joined(by_name)[None], damping=damping, tol=tol, most=most)
        over, skipped = of.names, of.tape.skipped
    if not found.converged:
        raise ValueError(
            f"conjugate gradients stopped after {found.steps} matrix-vector products with a relative residual of "
            f"{float(found.residual[0]):.2g} (wanted {tol:g}): allow more products with most=, or raise damping="
        )
    steps = list(_influences(model, loss_fn, batch, found.x, over, options))
    total = sum(len(s) for s in steps)
    return Influence(
        left_out=np.concatenate(steps) / total,
        damping=damping,
        residual=float(found.residual[0]),
        products=found.steps,
        test_loss=test_loss,
        part=part,
        skipped=skipped,
    )


def _influences(
    model: nn.Module, loss_fn: LossFn, batch: Any, direction: Tensor, names: tuple[str, ...], options: Any
) -> Iterator[np.ndarray]:
    """g_iᵀs of every example, batch by batch."""
    for one in batches_of(batch) if several(batch) else [batch]:
        with recorded_parameters(model, loss_fn, one, **options) as tape:
            if tuple(n.name for n in tape.nodes) != names:
                raise ValueError("the model uses different parameters for different batches: join the batches into one")
            _require_separate(tape)
            products = Products(tape, memory=options["memory"], roots="never")
            pieces = pieces_of(direction, products.flat)
            pairs = [(g, z) for g, z in zip(products.gradient, pieces) if g is not None and g.requires_grad]
            pushed = products.backward([g for g, _ in pairs], products.pull, [z for _, z in pairs])
            each = sum(
                (a[0] * u).flatten(1).sum(1) for a, u in zip(pushed, tape.pull) if a is not None
            )  # pull holds 1/B of each example's own loss
            assert isinstance(each, Tensor)
            yield tape.examples * each.double().numpy(force=True)


def _require_separate(tape: Tape) -> None:
    """Outputs of half of the batch by itself are those in the whole batch, or no example can be taken out."""
    b, task = tape.examples, tape.problem.task
    if any(o.ndim == 0 or o.shape[0] != b for o in tape.outputs):
        raise ValueError(
            "the first dimension of the model's output is not the batch dimension, so training examples cannot be "
            "told apart"
        )
    if b < 2:
        return
    cut = lambda t: t[: b // 2] if isinstance(t, Tensor) and t.ndim and t.shape[0] == b else t
    args, kwargs = tree_map(cut, (task.args, dict(task.kwargs)))
    alone = [t.detach() for t in float_outputs(replace(task, args=args, kwargs=kwargs).forward())[0]]
    for o in tape.outputs:
        same = [a for a in alone if a.shape[1:] == o.shape[1:]]
        gap = min((float((a - o.detach()[: b // 2]).abs().max()) for a in same), default=0.0)
        if gap > 1e-3 * float(o.detach().abs().max()):
            raise ValueError(
                "the output for one example depends on other examples of its batch (batch norm in train mode?), so "
                "its influence is not defined. Call model.eval() or pass mode='eval'"
            )
