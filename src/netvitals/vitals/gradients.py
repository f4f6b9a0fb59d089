r"""Gradients and updates: how hard each parameter tensor is pushed, and how far it moves.

Per tensor: $\|g\|$, $\|\Delta w\|$ with $\Delta w$ what the optimizer changed on this step, and the update ratio
$\|\Delta w\| / \|w\|$ with $w$ before the step. For the model the same from the root of the sums of squares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from netvitals import stats
from netvitals.capture import Metric, ParameterView, Recorder, Vital


class Gradients(Vital):
    """``grad_norm``, ``update_norm``, ``weight_norm`` and ``update_ratio`` of every parameter tensor and of the model,
    and the model's ``descent``.

    Gradients and updates are there when an optimizer is watched; without one, only the weight norm is. Experts that are
    stacked in one tensor (experts, out, in) are measured one by one as well, as ``name[3]``.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> opt = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> with netvitals.watch(net, opt, every=1, vitals=["gradients"]) as seen:
    ...     for _ in range(2):
    ...         loss = net(torch.randn(16, 4)).square().mean()
    ...         opt.zero_grad(); loss.backward(); opt.step()
    >>> sorted({r.metric for r in seen.measurements if r.site == "0.weight"})
    ['grad_norm', 'grad_rms', 'update_norm', 'update_ratio', 'weight_norm']
    """

    name = "gradients"
    title = "Gradients"
    meaning = (
        "Size of the gradient and of the update of each parameter. A healthy update is about a thousandth of the "
        "weights."
    )
    metrics: ClassVar = {
        "grad_norm": Metric("Euclidean norm of the gradient", "gradient"),
        "grad_rms": Metric("root mean square of the gradient, for tensors with two or more dimensions", "gradient"),
        "update_norm": Metric("Euclidean norm of the update", "weight"),
        "weight_norm": Metric("Euclidean norm of the weights", "weight"),
        "update_ratio": Metric("norm of the update divided by norm of the weights"),
        "descent": Metric("first-order decrease of the loss by this step, −⟨gradient, update⟩", "loss"),
    }
    absent = "no gradient arrived at a parameter"
    headline = ("update_ratio", "grad_norm", "weight_norm")
    default = True
    every = 2
    takes_pieces = True

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        names = [
            n
            for n, p in view.params.items()
            if (p.is_floating_point() or p.is_complex()) and torch.Size(view.shape(n)).numel()
        ]
        whole = len(names)
        held: dict[str, dict[str, Tensor]] = {
            which: dict(getattr(view, which)) for which in ("params", "before", "grads")
        }
        for stack in _stacks_of(view) if not view.pieces else ():
            for known in held.values():
                if stack in known:
                    known.update((f"{stack}[{i}]", t) for i, t in enumerate(known[stack].unbind(0)))
            names += [f"{stack}[{i}]" for i in range(len(view.params[stack]))]
        params, old, given = held["params"], held["before"], held["grads"]
        grads, before = [n for n in names if n in given], [n for n in names if n in old]
        tensors: list[Tensor] = [old.get(n, params[n]) for n in names] + [given[n] for n in grads]
        updates = torch._foreach_sub([params[n] for n in before], [old[n] for n in before]) if before else ()
        tensors += updates
        shapes = {n: view.shape(n) if n in view.params else params[n].shape for n in grads}
        roots = {n: math.prod(shape) ** 0.5 for n, shape in shapes.items() if len(shape) > 1}
        norms = stats.norms(tensors)
        if len({(t.device, t.dtype) for t in norms}) == 1:
            norms = [torch.stack(norms)]
        over = view.over(("norm",) * len(norms), [*names, *grads, *before])
        if view.pieces and len(norms) != 1:  # a row of its own for each share
            norms, over = [torch.stack([n.to(norms[0]) for n in norms])], over._replace(kinds=("norm",))
        recorder.on_host(norms, partial(self._finish, recorder, names, whole, grads, before, roots), over)
        self._descent(recorder, view, names[:whole], dict(zip(before, updates)))

    def _descent(
        self, recorder: Recorder, view: ParameterView, names: list[str], updates: Mapping[str, Tensor]
    ) -> None:
        """What a step along a straight slope takes off the loss."""
        moved = [n for n in names if n in view.grads and n in updates and not view.grads[n].is_sparse]
        if view.pieces:  # a gradient that is not there stands as an empty one
            moved = [n for n in moved if view.pieces[n].numel]
        falls = [
            stats.inner(view.grads[n].to(updates[n].dtype), updates[n])
            if view.grads[n].numel()
            else torch.zeros((), dtype=updates[n].real.dtype, device=updates[n].device)
            for n in moved
        ]
        if falls:
            finish = lambda parts: recorder.put("model", ("descent",), -parts.sum())
            recorder.on_host((torch.stack([f.to(falls[0].device) for f in falls]),), finish, view.over("sum", moved))

    def _finish(
        self,
        recorder: Recorder,
        names: list[str],
        whole: int,
        grads: list[str],
        before: list[str],
        roots: dict[str, float],
        *norms: np.ndarray,
    ) -> None:
        values = iter(np.concatenate([n.reshape(-1) for n in norms]).tolist() if norms else ())
        found = {
            metric: dict(zip(where, values))
            for metric, where in (("weight_norm", names), ("grad_norm", grads), ("update_norm", before))
        }
        weights = found["weight_norm"]
        found["update_ratio"] = {n: _ratio(u, weights[n]) for n, u in found["update_norm"].items()}
        found["grad_rms"] = {n: found["grad_norm"][n] / root for n, root in roots.items()}
        rows: dict[tuple[str, ...], list[str]] = {}
        for name in names:
            rows.setdefault(tuple(metric for metric, known in found.items() if name in known), []).append(name)
        for metrics, where in rows.items():
            recorder.put(where, metrics, np.array([[found[m][n] for m in metrics] for n in where]))
        tensors = set(names[:whole])  # the experts of a stack are in it already
        pooled = {
            m: math.hypot(*(v for n, v in found[m].items() if n in tensors))
            for m in ("weight_norm", "grad_norm", "update_norm")
            if found[m]
        }
        if before:
            pooled["update_ratio"] = _ratio(pooled["update_norm"], pooled["weight_norm"])
        if pooled:
            recorder.put("model", tuple(pooled), np.array(list(pooled.values())))


def _stacks_of(view: ParameterView) -> list[str]:
    """Parameters that hold several matrices of one kind, the expert first."""
    known = () if view.anatomy is None else view.anatomy.experts
    stacked = {part.parameter for m in known if m.stacked for e in m.experts for part in e.parameters}
    out = []
    for name, p in view.params.items():
        owner = view.modules.get(name.rpartition(".")[0])
        foreign = owner is not None and not type(owner).__module__.startswith("torch.nn.")
        if name in stacked or (foreign and p.ndim == 3 and min(p.shape) > 1):
            out.append(name)
    return out


def _ratio(update: float, weight: float) -> float:
    """A tensor that leaves zero has moved by all it is; one that stays there has not moved."""
    return update / weight if weight else float(update > 0)
