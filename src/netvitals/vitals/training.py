r"""The training loop: what is left in the gradients, which modules are in which mode, what half precision lost.

``carried`` $= \|g_{old}\| / \|g\|$, with $g_{old}$ what the gradients of a few small tensors held when the backward
pass
began: 0 after ``zero_grad``. ``zero_share`` and ``smallest`` are read from a sample of the entries of every matrix.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from netvitals.capture import Metric, ParameterView, Recorder, Vital, WatchContext

FEW = 4  # tensors that are asked what they hold
SAMPLE = 2048  # entries of a gradient that are measured
WHOLE = 1000.0  # multiples of the smallest that single precision can tell from others
LOST = ("zero_share", "smallest", "multiples")
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


class Training(Vital):
    """``carried`` and the counts below, of the model; ``zero_share`` and ``smallest`` of the gradient of every
    matrix.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> opt = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> with netvitals.watch(net, opt, every=1, vitals=["training"]) as seen:
    ...     for _ in range(2):
    ...         loss = net(torch.randn(16, 4)).square().mean()
    ...         opt.zero_grad(); loss.backward(); opt.step()
    >>> [r.value for r in seen.measurements if r.metric == "carried"]  # zero_grad() was called
    [0.0]
    """

    name = "training"
    title = "Training loop"
    meaning = "Common mistakes in a training loop: gradients that were not zeroed, and modules left in eval mode."
    metrics: ClassVar = {
        "carried": Metric("norm of the gradient when backward() starts, divided by its norm when backward() ends"),
        "passes": Metric("forward passes since the last optimizer step", "passes"),
        "norms": Metric("batch norm layers in the model", "modules"),
        "eval_norms": Metric("batch norm layers in eval mode", "modules"),
        "unused_statistics": Metric("batch norm layers in eval mode whose statistics were never updated", "modules"),
        "eval_dropouts": Metric("dropout layers in eval mode", "modules"),
        "zero_share": Metric("fraction of exact zeros in a sample of gradient entries", "share"),
        "smallest": Metric("smallest non-zero absolute value in a sample of gradient entries", "gradient"),
        "multiples": Metric("fraction of sampled gradient entries that are multiples of the smallest one", "share"),
    }
    absent = "no gradient arrived at a parameter"
    headline = ("carried", "eval_norms")
    default = True
    every = 2
    later_every = 4
    gradients_of = ("output",)
    tensors_of = ()

    def __init__(self) -> None:
        self._few: list[tuple[str, weakref.ref[Tensor]]] = []
        self._old: Tensor | None = None
        self._own = True

    def begin(self, context: WatchContext) -> None:
        held = {id(p) for o in context.optimizers for group in o.param_groups for p in group["params"]}
        named = [(n, p) for n, p in context.parameters().items() if p.requires_grad and (not held or id(p) in held)]
        few = sorted(named, key=lambda pair: pair[1].numel())[:FEW]
        self._few = [(n, weakref.ref(p)) for n, p in few]
        self._own = context.probe is None  # else the backward pass that is seen is not the loop's

    def gradient(self, recorder: Recorder, view: Any, g: Tensor) -> None:
        if self._old is not None or not self._own:
            return
        held = [p.grad for _, ref in self._few if (p := ref()) is not None and p.grad is not None]
        dense = [h.float().norm() for h in held if h.layout is torch.strided]
        self._old = torch.stack(dense).norm() if dense else torch.zeros((), device=g.device)

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        old, self._old = self._old, None
        few = [view.grads[n].float().norm() for n, _ in self._few if n in view.grads]
        if old is not None and few:
            now = torch.stack(few).norm()
            recorder.write("model", ("carried",), (old / now.clamp(min=1e-30)).reshape(1))
        norms = [m for m in view.modules.values() if isinstance(m, _BatchNorm) and m.track_running_stats]
        shut = [m for m in norms if not m.training]
        drops = [m for m in view.modules.values() if isinstance(m, DROPOUTS) and m.p > 0 and not m.training]
        seen = [m.num_batches_tracked for m in shut if m.num_batches_tracked is not None]
        recorder.on_host(seen, partial(self._count, recorder, len(norms), len(shut), len(drops)))
        self._precision(recorder, view)

    def _precision(self, recorder: Recorder, view: ParameterView) -> None:
        alike: dict[tuple[object, ...], tuple[list[str], list[Tensor]]] = {}  # samples of one length, in one matrix
        for name, g in view.grads.items():
            if g.ndim > 1 and (n := g.numel()) and g.layout is torch.strided:
                names, samples = alike.setdefault((n if n < SAMPLE else 0, g.dtype, g.device), ([], []))
                names.append(name)
                samples.append(g.reshape(-1)[:: max(1, n // SAMPLE)][:SAMPLE])
        for names, samples in alike.values():
            size = torch.stack(samples).abs_().float()
            some = size != 0  # what is not finite is not zero
            least = size.masked_fill(~some, torch.inf).amin(1, keepdim=True)
            # numbers of half precision are whole multiples of one smallest
            times = size / least
            near = (times < WHOLE).logical_and_(some)
            whole = (times.frac().sub_(0.5).abs_() > 0.49).logical_and_(near).sum(1) - 1  # itself aside
            whole = whole / (near.sum(1) - 1).clamp_(min=4)
            found = [1 - some.sum(1) / size.shape[1], least[:, 0], whole]
            recorder.write(names, LOST, torch.stack(found, 1))

    def _count(self, recorder: Recorder, norms: int, shut: int, drops: int, *seen: np.ndarray) -> None:
        unused = sum(float(batches) == 0 for batches in seen)
        values = np.array([norms, shut, unused, drops], dtype=float)
        recorder.put("model", ("norms", "eval_norms", "unused_statistics", "eval_dropouts"), values)
