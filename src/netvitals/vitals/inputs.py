r"""Inputs: what the first layer is given.

Of a batch $x$ with features $j$: the mean and the standard deviation $s$ over everything, the largest $|x|$, and
``varying`` $= \overline{s_j} / s$ with $s_j$ the spread of feature $j$ over the examples: 0 where all examples are one.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from netvitals.capture import LinearView, Metric, Recorder, Vital, is_distributed

CUT = "it is cut over ranks, and whether it is given the data itself is not known"
METRICS = ("mean", "std", "max_abs", "varying", "mark")


class Inputs(Vital):
    """The numbers above at the first layers that are given the data itself.

    ``mark`` is a sum over the batch with weights that no two entries share: batches that are equal have the same, and
    hardly any others do.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> seen = netvitals.checkup(net, nn.MSELoss(), (torch.randn(16, 4), torch.randn(16, 1)),
    ...                          vitals=["inputs"], curvature=False)
    >>> [r.metric for r in seen.measurements if r.site == "0"]
    ['mean', 'std', 'max_abs', 'varying', 'mark']
    """

    name = "inputs"
    title = "Inputs"
    meaning = "Scale of the inputs of the first layer, and whether examples and batches differ from each other."
    metrics: ClassVar = {
        "mean": Metric("mean over all entries", "input"),
        "std": Metric("standard deviation over all entries", "input"),
        "max_abs": Metric("largest absolute input", "input"),
        "varying": Metric(
            "standard deviation of a feature over examples, averaged over features, divided by the standard "
            "deviation of all entries"
        ),
        "mark": Metric("a weighted sum of all inputs, to recognise batches that repeat", "input"),
    }
    absent = "no layer gets the inputs as they are, as numbers with two examples or more"
    headline = ("std", "mean")
    default = True
    later_every = 4

    def linear(self, recorder: Recorder, view: LinearView) -> None:
        if view.site.follows != "input" or not view.x.is_floating_point() or view.x.shape[0] < 2:
            return
        if recorder.part.places > 1 and is_distributed(getattr(view.module, "weight", None)):
            recorder.skipped[f"inputs: {view.site.name}"] = CUT
            return
        x = view.x.reshape(view.x.shape[0], -1).float()
        centre = x.mean(0)
        mean, spread = centre.mean(), (x - centre).square_().mean(0)
        std = (spread.mean() + (centre - mean).square_().mean()).sqrt()
        rows, columns = (torch.arange(1, n + 1, device=x.device, dtype=x.dtype).sqrt_() for n in x.shape)
        mark = rows @ (x @ columns) / x.numel()
        numbers = [mean, std, torch.linalg.vector_norm(x, torch.inf), spread.sqrt_().mean() / std, mark]
        recorder.write(view.site, METRICS, torch.stack(numbers))
