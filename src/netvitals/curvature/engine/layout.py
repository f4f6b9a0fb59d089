"""Where a tensor has its examples: found by running the batch at twice its length, never by divisibility.

A table of positions does not grow with the batch, a sequence-first activation grows in its second dimension, tokens in
one long row grow in their first, and what an expert gets grows as it pleases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from netvitals.anatomy import Anatomy, chart, mapped, named_tensors
from netvitals.capture import Task

Kind = Literal["rows", "flat", "joint"]


@dataclass(frozen=True)
class Place:
    """One tensor of a node's output: how its perturbation is shared by the examples.

    ``"rows"`` has a dimension of examples, ``"flat"`` has several rows an example in its first, and ``"joint"`` has
    none: every entry is perturbed for itself.
    """

    kind: Kind
    dim: int = 0

    def size(self, shape: tuple[int, ...], examples: int) -> int:
        """Coordinates of the perturbation."""
        count = torch.Size(shape).numel()
        return count if self.kind == "joint" else count // examples

    def perturbed(self, value: Tensor, examples: int) -> tuple[Tensor, Tensor | None, Tensor]:
        """A leaf of zeros, the same by example (None without examples), and the value with it added."""
        if self.kind == "joint":
            leaf = torch.zeros_like(value, requires_grad=True)
            return leaf, None, value + leaf
        if self.kind == "flat":
            inner: tuple[int, ...] = (value.shape[0] // examples, *value.shape[1:])
        else:
            inner = (*value.shape[: self.dim], *value.shape[self.dim + 1 :])
        leaf = torch.zeros(1, *inner, dtype=value.dtype, device=value.device, requires_grad=True)
        row = leaf.expand(examples, *inner)
        moved = row.reshape(value.shape) if self.kind == "flat" else row.movedim(0, self.dim)
        return leaf, row, value + moved


def layout_of(shape: tuple[int, ...], doubled: tuple[int, ...] | None, examples: int) -> Place:
    """The place of a tensor that has these shapes for a batch and for one of twice its length.

    >>> layout_of((8, 5), (16, 5), 8), layout_of((3, 8, 5), (3, 16, 5), 8).dim, layout_of((6, 5), (6, 5), 2).kind
    (Place(kind='rows', dim=0), 1, 'joint')
    """
    if doubled is None:
        return Place("rows") if shape[:1] == (examples,) else Place("joint")
    if len(doubled) != len(shape):
        return Place("joint")
    grown = [d for d, (a, b) in enumerate(zip(shape, doubled)) if a != b]
    if len(grown) != 1 or doubled[grown[0]] != 2 * shape[grown[0]]:
        return Place("joint")
    dim = grown[0]
    if shape[dim] == examples:
        return Place("rows", dim)
    return Place("flat") if dim == 0 and shape[0] % examples == 0 else Place("joint")


def charted(task: Task) -> Anatomy | None:
    """The anatomy of the model on its batch; None where it cannot be traced."""
    try:
        return chart(task.model, task.inputs, keep_tensors=False)
    except Exception:  # the measurement itself will say what is wrong with the model
        return None


def coarsest(anatomy: Anatomy) -> torch.dtype | None:
    """The least precise dtype among what is computed from examples, a cast inside the model included."""
    made = {v.dtype for v in anatomy.values if v.batch_dim is not None and v.producer >= 0}
    found = [t for t in (getattr(torch, name.removeprefix("torch."), None) for name in made) if t is not None]
    floats = [t for t in found if t.is_floating_point]
    return max(floats, key=lambda t: torch.finfo(t).eps) if floats else None


def doubled_batch(task: Task, anatomy: Anatomy) -> tuple[int | None, Task | None]:
    """The number of examples as the anatomy finds it, and the task with every example twice."""
    given = (task.args, dict(task.kwargs))
    dims = [anatomy.values[v].batch_dim for v in anatomy.inputs]
    names = [name for name, _ in named_tensors("input", task.inputs)]
    found = dict(zip(names, dims))
    sizes = [t.shape[d] for n, t in named_tensors("input", task.inputs) if (d := found.get(n)) is not None]
    if len(dims) != len(names) or not sizes:
        return None, None
    queue = iter(dims)

    def twice(t: Tensor) -> Tensor:
        d = next(queue)
        return t if d is None else torch.cat([t, t], d)

    args, kwargs = mapped(given, twice)
    return int(sizes[0]), replace(task, args=args, kwargs=kwargs)


def float_tensors(out: Any) -> list[Tensor]:
    """The floating tensors of what a module returns, in order."""
    return [t for _, t in named_tensors("output", out) if t.is_floating_point() and t.ndim > 0]


def replaced(out: Any, values: list[Tensor]) -> Any:
    """What a module returned, with its floating tensors replaced in order."""
    queue = iter(values)
    return mapped(out, lambda t: next(queue) if t.is_floating_point() and t.ndim > 0 else t)
