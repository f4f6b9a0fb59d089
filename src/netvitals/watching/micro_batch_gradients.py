r"""Gradients as they arrive: how long that of each micro-batch of each rank was, before it was added to any other.

A hook on a parameter sees the gradient of this rank and this micro-batch alone; what the optimizer uses is the sum of
all of them. With $g_{r,m}$ the gradient of all parameters from micro-batch $m$ on rank $r$, its length is
$\lVert g_{r,m} \rVert = (\sum_p \lVert g_{r,m,p} \rVert^2)^{1/2}$. Hooks are there on measured steps only, and nothing
waits for a device in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.capture import Hook, Recorder, detached_context, is_distributed, tensors
from netvitals.stats import norm

if TYPE_CHECKING:
    from netvitals.vitals import RanksVital as RanksVital

KINDS = 3  # gradient norm, scale of the output, loss, as the vital sign has them


class MicroBatchGradients:
    """Watches gradients and outputs of single micro-batches while armed."""

    def __init__(self, model: nn.Module, vital: RanksVital) -> None:
        self._model, self._vital = model, vital
        self._handles: list[Any] = []
        self._hooked: set[int] = set()
        self._squares: dict[int, list[Tensor]] = {}  # by micro-batch, one a parameter
        self._arrived: Counter[int] = Counter()  # by parameter
        self._passes = 0
        self._scales: list[Tensor] = []
        self._pre, self._post = Hook(self._before), Hook(self._after)

    def arm(self) -> None:
        """Look at the step that comes next."""
        self.disarm()
        self._squares, self._scales, self._passes = {}, [], 0
        self._arrived.clear()
        for module in self._model.modules():
            if module._parameters and not isinstance(module, torch.jit.ScriptModule):
                self._handles.append(self._pre.before(module))
        self._handles.append(self._post.after(self._model))

    def disarm(self) -> None:
        """Take every hook away; what was seen stays until it is taken."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._hooked.clear()

    def taken(self) -> list[Tensor]:
        """(gradient norms, scales) of the micro-batches since arming, still on the device."""
        squares, scales = self._squares, self._scales
        self._squares, self._scales = {}, []
        with detached_context():
            norms = []
            for _, parts in sorted(squares.items()):
                device = parts[0].device
                norms.append(torch.stack([p.float().to(device) for p in parts]).sum().sqrt())
            return [torch.stack(v) if v else torch.empty(0) for v in (norms, scales)]

    def facts(self, found: Sequence[Tensor], losses: Sequence[Tensor | float]) -> np.ndarray:
        """What a rank tells the others: how many micro-batches, and three numbers of each; NaN for one not known."""
        norms, scales = (t.detach().double().cpu().numpy() for t in found)
        given = np.array([float(v) for v in losses])
        several = max(len(norms), 1)
        table = np.full((KINDS, several), np.nan)
        for row, values in zip(table, (norms, scales, given)):
            if len(values) <= several:
                row[: len(values)] = np.where(np.isnan(values), np.inf, values)
        return np.concatenate([[several], table.reshape(-1)])

    def write(self, recorder: Recorder, facts: dict[int, np.ndarray]) -> None:
        """Write the vital sign from the facts of all ranks."""
        several = max(int(row[0]) for row in facts.values())
        table = np.full((KINDS, max(facts) + 1, several), np.nan)
        for rank, row in facts.items():
            table[:, rank, : int(row[0])] = row[1:].reshape(KINDS, -1)
        recorder.vital = self._vital.name
        self._vital.write(recorder, table)

    def _before(self, module: nn.Module, *_: Any) -> None:
        if not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
            return
        for p in module._parameters.values():
            if p is None or not p.requires_grad or id(p) in self._hooked or is_distributed(p):
                continue
            self._hooked.add(id(p))
            self._handles.append(p.register_hook(Hook(self._arrives(id(p)))))

    def _arrives(self, key: int) -> Any:
        def arrived(g: Tensor) -> None:
            with detached_context():
                values = g._values() if g.is_sparse else g
                # where the model is not called itself, the n-th gradient of a parameter is that of the n-th micro-batch
                batch = self._passes - 1 if self._passes else self._arrived[key]
                self._arrived[key] += 1
                self._squares.setdefault(batch, []).append(norm(values.detach()).square())

        return arrived

    def _after(self, module: nn.Module, args: Any, output: Any) -> None:
        if not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
            return
        self._passes += 1
        value = next((t for t in tensors(output) if t.is_floating_point()), None)
        if value is not None and value.numel() and not is_distributed(value):
            with detached_context():
                self._scales.append(value.detach().float().square().mean().sqrt())
