"""Curvature between layers over a training run: measured every so often, within a time budget, with alerts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from torch import nn

from netvitals.capture.task import LossFn
from netvitals.curvature.engine.nodes import Choice
from netvitals.curvature.measure.between_layers import interlayer
from netvitals.curvature.measure.result import InterlayerCurvature


@dataclass(frozen=True)
class Jump:
    """A metric that changed by more than the threshold between two measurements, beyond its error bars."""

    step: int
    metric: str
    pair: tuple[str, str]
    before: float
    after: float

    def __str__(self) -> str:
        return (
            f"step {self.step}: {self.metric} of {self.pair[0]} and {self.pair[1]} went from {self.before:.3g} to "
            f"{self.after:.3g}"
        )


@dataclass
class Monitor:
    """Call ``step(i)`` in a training loop; every ``every`` steps, if the budget allows, the net is measured.

    Args:
        model, loss_fn, batch: a fixed batch, so that only the net changes.
        every: steps between measurements.
        share: at most this share of the time since the monitor began is spent measuring.
        factor: a change by this factor between measurements is a jump.
        metrics: which matrices to watch for jumps.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    >>> import torch
    >>> watch = Monitor(net, nn.MSELoss(), (torch.randn(4, 2), torch.randn(4, 1)), every=5, share=1.0)
    >>> [watch.step(i) is not None for i in range(6)]
    [True, False, False, False, False, True]
    """

    model: nn.Module
    loss_fn: LossFn
    batch: Any
    nodes: Choice = None
    every: int = 500
    share: float = 0.05
    probes: int = 12
    factor: float = 2.0
    metrics: Sequence[str] = ("resonance", "coupling", "gn_gap")
    train: bool | None = None
    history: list[tuple[int, InterlayerCurvature]] = field(default_factory=list)
    jumps: list[Jump] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    _began: float = field(default_factory=time.perf_counter)
    _spent: float = 0.0

    def step(self, step: int) -> InterlayerCurvature | None:
        """Measure if it is time and the budget allows; the seed stays the same, so differences are of the net."""
        if step % self.every:
            return None
        if self.history and self._spent > self.share * (time.perf_counter() - self._began):
            self.skipped.append(step)
            return None
        start = time.perf_counter()
        mode: Literal["train", "eval", "as_is"] = "as_is" if self.train is None else "train" if self.train else "eval"
        found = interlayer(self.model, self.loss_fn, self.batch, mode=mode, nodes=self.nodes, probes=self.probes)
        self._spent += time.perf_counter() - start
        if self.history:
            self.jumps += self._compare(step, self.history[-1][1], found)
        self.history.append((step, found))
        return found

    def series(self, metric: str, v: str, w: str) -> tuple[list[int], list[float], list[float]]:
        """Steps, values and standard errors of one pair."""
        steps, values, errors = [], [], []
        for step, found in self.history:
            at = found.at(v, w)
            steps.append(step)
            values.append(at[metric])
            errors.append(at[metric + "_stderr"])
        return steps, values, errors

    def _compare(self, step: int, old: InterlayerCurvature, new: InterlayerCurvature) -> list[Jump]:
        out = []
        for metric in self.metrics:
            a, b = getattr(old, metric), getattr(new, metric)
            noise = 2 * np.hypot(getattr(old, metric + "_stderr"), getattr(new, metric + "_stderr"))
            for i in range(len(new.nodes)):
                for j in range(i, len(new.nodes)):
                    low, high = sorted((float(a[i, j]), float(b[i, j])))
                    if high - low > noise[i, j] and high > self.factor * max(low, new.floor):
                        out.append(Jump(step, metric, (new.nodes[i], new.nodes[j]), float(a[i, j]), float(b[i, j])))
        return out
