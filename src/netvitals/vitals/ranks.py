r"""Ranks and micro-batches: whether one of those that make up a step differs from the others.

Of the length of the gradient of each micro-batch on each rank, $\lVert g_{r,m} \rVert$, before any are added up: the
largest over the median, and which rank and micro-batch it is. The same of the loss and of the scale of the output.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from netvitals._help import hint
from netvitals.capture import Metric, ParameterView, Recorder, Vital, WatchContext

WHAT = ("grad", "scale", "loss")


class RanksVital(Vital):
    """``grad_over_median``, ``grad_rank``, ``grad_micro_batch`` and the same of ``scale`` and ``loss``, of the model.

    Arrays (ranks × micro-batches): ``grad_norm``, ``output_scale``, ``loss``. On where several ranks train one model;
    asked for by name it also tells the micro-batches of one process apart.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Linear(4, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> with netvitals.watch(net, opt, every=1, vitals=["ranks"]) as seen:
    ...     for size in (1.0, 10.0):  # two micro-batches a step, the second ten times larger
    ...         net(size * torch.ones(8, 4)).sum().backward()
    ...     opt.step()
    >>> [r.value for r in seen.measurements if r.metric == "grad_micro_batch"]
    [1.0]
    """

    name = "ranks"
    title = "Ranks and micro-batches"
    meaning = (
        "Whether one rank or micro-batch differs from the others in gradient, output or loss. It names the rank or "
        "micro-batch whose gradient is too large or not finite."
    )
    metrics: ClassVar = {
        "grad_over_median": Metric("largest gradient norm of a micro-batch, divided by the median"),
        "grad_spread": Metric("standard deviation of the gradient norms over micro-batches, divided by their mean"),
        "grad_rank": Metric("process rank with the largest gradient norm", "index"),
        "grad_micro_batch": Metric("micro-batch with the largest gradient norm", "index"),
        "scale_over_median": Metric("largest root mean square of the output of a micro-batch, divided by the median"),
        "scale_spread": Metric(
            "standard deviation of the output's root mean square over micro-batches, divided by its mean"
        ),
        "scale_rank": Metric("process rank with the largest output", "index"),
        "scale_micro_batch": Metric("micro-batch with the largest output", "index"),
        "loss_over_median": Metric("largest loss of a micro-batch, divided by the median"),
        "loss_spread": Metric("standard deviation of the loss over micro-batches, divided by its mean"),
        "loss_rank": Metric("process rank with the largest loss", "index"),
        "loss_micro_batch": Metric("micro-batch with the largest loss", "index"),
        "not_finite": Metric("number of micro-batches whose gradient is not finite", "micro-batches"),
        "grad_norm": Metric("norm of the gradient, by rank and micro-batch", "gradient"),
        "output_scale": Metric("root mean square of the output, by rank and micro-batch", "activation"),
        "loss": Metric("loss, by rank and micro-batch", "loss"),
    }
    headline = ("grad_over_median", "grad_spread")
    needs = "several ranks, or several micro-batches per step"
    takes_pieces = True

    def begin(self, context: WatchContext) -> None:
        if not context.training:
            raise ValueError(
                f"the vital sign {self.name!r} compares ranks and micro-batches of a training step, but a checkup "
                f"makes no step: use it in watch {hint('needs-steps')}"
            )

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        """Nothing: what it tells arrives before the optimizer steps, see
        :mod:`netvitals.watching.micro_batch_gradients`.

        Args:
            recorder: not written to.
            view: not measured.
        """

    def write(self, recorder: Recorder, table: np.ndarray) -> None:
        """Note what the numbers of all ranks say.

        Args:
            recorder: where the numbers are written.
            table: gradient length, output scale and loss, by rank and micro-batch.
        """
        names: list[str] = []
        values: list[float] = []
        for what, rows, array in zip(WHAT, table, ("grad_norm", "output_scale", "loss")):
            if what == "grad":
                names.append("not_finite")
                values.append(float(np.isinf(rows).sum()))
            if (found := _outlier(rows)) is None:
                continue
            names += [f"{what}_{m}" for m in ("over_median", "spread", "rank", "micro_batch")]
            values += found
            recorder.put_array(["model"], array, rows[None])
        recorder.put("model", names, np.array(values))


def _outlier(rows: np.ndarray) -> list[float] | None:
    """(largest over median, spread, its rank, its micro-batch) of a table of ranks × micro-batches.

    One that is not finite counts as the largest. None where fewer than two are known.

    >>> _outlier(np.array([[1.0, 3.0]]))
    [1.5, 0.5, 0.0, 1.0]
    """
    known = rows[~np.isnan(rows)]
    if known.size < 2:
        return None
    finite = known[np.isfinite(known)]
    rank, batch = np.unravel_index(int(np.nanargmax(rows)), rows.shape)
    middle = float(np.median(finite)) if finite.size else np.nan
    largest = float(rows[rank, batch])
    mean = float(finite.mean()) if finite.size else np.nan
    spread = float(finite.std() / mean) if finite.size and mean else np.nan
    return [largest / middle if middle > 0 else np.nan, spread, float(rank), float(batch)]
