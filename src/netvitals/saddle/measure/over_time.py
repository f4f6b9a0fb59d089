"""The imbalance of a run over time, beside what the gradients of plain descent explain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from netvitals._plot import Plot, Series
from netvitals.capture import Result, one_screen, skipped_lines

DRAWN = 4  # pairs in the picture
METRICS = ("delta", "change", "predicted", "gap")
NONE = "the run holds no step accounting: watch it with vitals=['accounting']"


@dataclass(frozen=True, kw_only=True)
class ImbalanceHistory(Result):
    """Δ of every pair at every measured step, and the identity's residual.

    Returned by :func:`imbalance_over_time`.

    Attributes:
        steps: pair -> measured steps.
        delta: pair -> Δ after the step.
        change: pair -> what the step changed.
        predicted: pair -> what plain gradient descent would have changed.
        gap: pair -> their difference: the residual of the identity, opened by momentum, Adam and decay.
        skipped: pair without a series → reason.
    """

    steps: dict[str, np.ndarray]
    delta: dict[str, np.ndarray]
    change: dict[str, np.ndarray]
    predicted: dict[str, np.ndarray]
    gap: dict[str, np.ndarray]
    skipped: Mapping[str, str] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """One row a pair and step."""
        return [
            {"pair": pair, "step": int(t), **{m: float(getattr(self, m)[pair][i]) for m in METRICS}}
            for pair, steps in self.steps.items()
            for i, t in enumerate(steps)
        ]

    def plot(self) -> Plot:
        """Δ of the pairs that moved most, and the residual of each on the right axis."""
        moved = sorted(self.steps, key=lambda p: -float(np.ptp(self.delta[p])))[:DRAWN]
        series = [
            Series(f"Δ {p}", self.steps[p].tolist(), self.delta[p].tolist(), line=True, tone=i)
            for i, p in enumerate(moved)
        ]
        series += [
            Series(
                f"residual {p}",
                self.steps[p].tolist(),
                self.gap[p].tolist(),
                line=True,
                dashed=True,
                tone=i,
                right=True,
            )
            for i, p in enumerate(moved)
        ]
        return Plot("step", "imbalance Δ", series, right_label="residual of the identity in a step")

    def __str__(self) -> str:
        lines = []
        for p, steps in self.steps.items():
            size = float(np.abs(self.change[p]).sum())
            share = float(np.abs(self.gap[p]).sum()) / size if size else 0.0
            lines.append(
                f"{p}: Δ {self.delta[p][0]:+.4g} at step {steps[0]:.0f}, {self.delta[p][-1]:+.4g} at step "
                f"{steps[-1]:.0f}; residual {share:.0%} of the change"
            )
        return one_screen(lines + skipped_lines(self.skipped))


def imbalance_over_time(run: Any) -> ImbalanceHistory:
    """Read the imbalance of every pair of layers over a run, with the residual of its conservation identity.

    Args:
        run: a run watched with ``vitals=["accounting"]``, from ``netvitals.open_run``.

    Returns:
        Series by pair; ``plot`` draws them.

    >>> import tempfile, torch
    >>> import netvitals as nv
    >>> from torch import nn
    >>> net, folder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), tempfile.mkdtemp()
    >>> sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> with nv.watch(net, sgd, every=1, run=f"{folder}/run", vitals=["accounting"]) as watch:
    ...     for _ in range(3):
    ...         loss = net(torch.randn(16, 4)).square().mean()
    ...         sgd.zero_grad(); loss.backward(); sgd.step(); watch.step(loss)
    >>> list(imbalance_over_time(nv.open_run(f"{folder}/run")).delta)
    ['0 → 2']
    """
    if not hasattr(run, "rows") and not hasattr(run, "frame"):
        raise TypeError(f"imbalance_over_time reads a run from netvitals.open_run, got a {type(run).__name__}")
    try:
        frame = run.frame(vital="accounting")
    except LookupError:
        raise ValueError(NONE) from None
    if frame.is_empty():
        raise ValueError(NONE)
    by: dict[str, dict[str, dict[int, float]]] = {}
    for row in frame.iter_rows(named=True):
        by.setdefault(row["site"], {}).setdefault(row["metric"], {})[int(row["step"])] = float(row["value"])
    found: dict[str, dict[str, np.ndarray]] = {m: {} for m in ("steps", *METRICS)}
    skipped: dict[str, str] = {}
    for pair, series in by.items():
        steps = sorted(set.intersection(*(set(series.get(m, {})) for m in METRICS)))
        if not steps:
            skipped[pair] = "change and prediction were not recorded at the same steps"
            continue
        found["steps"][pair] = np.array(steps, dtype=float)
        for m in METRICS:
            found[m][pair] = np.array([series[m][t] for t in steps])
    return ImbalanceHistory(
        steps=found["steps"],
        delta=found["delta"],
        change=found["change"],
        predicted=found["predicted"],
        gap=found["gap"],
        skipped=skipped,
    )
