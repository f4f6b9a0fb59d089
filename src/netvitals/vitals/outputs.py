r"""Outputs: what the loss asks of them, read from its gradient.

Cross-entropy of logits $o$ over $n$ rows has $\partial\ell/\partial o_i = \frac{s}{n}(p_i - y_i)$ with
$p_i = \mathrm{softmax}\,o_i$, a one-hot $y_i$ and $s = 1$. The label is where the gradient is largest, so that $s$ and
the misfit of that form can be read without knowing the loss: $s = n$ is a loss that is summed, $s < 0$ one of the wrong
sign. A softmax before a loss that has its own leaves $J_p\,(\mathrm{softmax}\,p_i - y_i)$ instead, which is tried too.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from netvitals.capture import Metric, Recorder, Site, TensorView, Vital

ROWS = 512  # rows behind the numbers, evenly strided
WIDEST = 65_536  # classes
METRICS = ("scale", "misfit", "double_misfit", "probabilities", "chance", "accuracy", "spread", "rows", "classes")


class Outputs(Vital):
    """The numbers above at the model's output, where the loss is a cross-entropy; elsewhere the misfit says so.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> seen = netvitals.checkup(net, nn.CrossEntropyLoss(), (torch.randn(16, 4), torch.arange(16) % 3),
    ...                          vitals=["outputs"], curvature=False)
    >>> [round(r.value, 2) for r in seen.measurements if r.metric == "scale"]  # 1: a mean cross-entropy of logits
    [1.0]
    """

    name = "outputs"
    title = "Outputs"
    meaning = (
        "What the gradient at the output shows about the loss: its type, sign and reduction, and the loss of guessing."
    )
    metrics: ClassVar = {
        "scale": Metric("gradient divided by that of a mean cross-entropy: 1 is normal, negative is a wrong sign"),
        "misfit": Metric("fraction of the gradient that a cross-entropy of logits does not explain", "share"),
        "double_misfit": Metric(
            "fraction of the gradient that a cross-entropy of a double softmax does not explain", "share"
        ),
        "probabilities": Metric("fraction of output rows that are probabilities: not negative, sum one", "share"),
        "chance": Metric("entropy of the labels of the batch, which is the loss of guessing", "nats"),
        "accuracy": Metric("accuracy: fraction of rows whose largest output is at the label", "share"),
        "spread": Metric("standard deviation of the outputs of one row, averaged over rows"),
        "rows": Metric("number of output rows that the loss uses", "rows"),
        "classes": Metric("number of outputs per row", "classes"),
    }
    absent = "no gradient arrived at rows of two or more outputs"
    headline = ("accuracy", "scale")
    default = True
    every = 2
    later_every = 4
    gradients_of = ("output",)
    tensors_of = ()

    def gradient(self, recorder: Recorder, view: Any, g: Tensor) -> None:
        if not isinstance(view, TensorView) or g.shape != view.value.shape or g.ndim < 2 or not g.is_floating_point():
            return
        classes = g.shape[-1]
        if not 2 <= classes <= WIDEST or view.site.channel_dim not in (-1, g.ndim - 1):
            return
        g, o = g.reshape(-1, classes).float(), view.value.detach().reshape(-1, classes).float()
        used = g.abs().amax(1) > 0
        count = used.sum()
        stride = -(-len(g) // ROWS)
        g, o, used = g[::stride], o[::stride], used[::stride]
        p = o.softmax(1)
        label = g.abs().argmax(1)
        y = torch.nn.functional.one_hot(label, classes).to(p.dtype)
        plain = (p - y) / count.clamp(min=1)
        scale, misfit = _fitted(g, plain, used)
        q = p.softmax(1)
        # g_j / p_j is the inner gradient up to a constant, which is least at the label
        lowest = torch.nn.functional.one_hot((g / p.clamp(min=1e-12)).argmin(1), classes).to(p.dtype)
        outer = (q - lowest) / count.clamp(min=1)
        inner = p * (outer - (p * outer).sum(1, keepdim=True))
        _, double = _fitted(g, inner, used)
        rows = ((o >= 0).all(1) & ((o.sum(1) - 1).abs() < 1e-3)).float().mean()
        right = (((o.argmax(1) == label) & used).sum() / used.sum().clamp(min=1)).float()
        shares = (y * used[:, None]).sum(0) / used.sum().clamp(min=1)
        numbers = [scale, misfit, double, rows, torch.special.entr(shares).sum(), right, o.std(1).mean(), count]
        numbers.append(torch.full_like(scale, classes))
        recorder.on_host((torch.stack([n.float() for n in numbers]),), partial(self._finish, recorder, view.site))

    def _finish(self, recorder: Recorder, site: Site, values: np.ndarray) -> None:
        recorder.put(site, METRICS, values)


def _fitted(g: Tensor, form: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """The factor that fits ``form`` to ``g`` best over the rows used, and the share of ``g`` that is left."""
    g, form = g * used[:, None], form * used[:, None]
    scale = (g * form).sum() / form.square().sum()
    return scale, (g - scale * form).norm() / g.norm()
