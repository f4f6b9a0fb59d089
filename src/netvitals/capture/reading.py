"""Readings: what a measurement leaves behind, and the sheet that takes them off the device in one transfer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals.capture.site import Site


@dataclass(frozen=True)
class Reading:
    """One number: metric ``metric`` of vital sign ``vital`` at ``site`` on training step ``step``."""

    step: int
    vital: str
    site: str
    metric: str
    value: float


@dataclass(frozen=True)
class ArrayReading:
    """A vector or matrix, for example a value per channel."""

    step: int
    vital: str
    site: str
    metric: str
    value: np.ndarray


class Sheet:
    """Collects small device tensors while a step is looked at; ``readings()`` moves them all at once.

    >>> sheet = Sheet(step=3)
    >>> sheet.vital = "gates"
    >>> sheet.write("act", ("density", "mean"), torch.tensor([0.5, 0.25]))
    >>> [(r.metric, r.value) for r in sheet.readings()[0]]
    [('density', 0.5), ('mean', 0.25)]
    """

    def __init__(self, step: int) -> None:
        self.step = step
        self.vital = ""     # the engine sets it before it calls a vital sign
        self._scalars: list[tuple[str, str, tuple[str, ...], Tensor]] = []
        self._arrays: list[tuple[str, str, str, Tensor]] = []

    def write(self, site: Site | str, metrics: Sequence[str], values: Tensor) -> None:
        """Note ``values`` (one per metric, still on the device; no synchronisation happens here)."""
        values = values.detach()
        if values.numel() != len(metrics):
            raise ValueError(f"{self.vital}: {len(metrics)} metrics {tuple(metrics)} for {values.numel()} values")
        self._scalars.append((self.vital, _name(site), tuple(metrics), values.reshape(-1)))

    def write_array(self, site: Site | str, metric: str, values: Tensor) -> None:
        """Note a whole small array, for example one number per channel."""
        self._arrays.append((self.vital, _name(site), metric, values.detach()))

    def readings(self) -> tuple[list[Reading], list[ArrayReading]]:
        """Everything written so far, in plain numbers; one transfer per device and kind of number."""
        flat = _to_host([v for *_, v in self._scalars] + [v for *_, v in self._arrays])
        scalars = [Reading(self.step, vital, site, metric, float(value))
                   for (vital, site, metrics, _), values in zip(self._scalars, flat)
                   for metric, value in zip(metrics, values)]
        arrays = [ArrayReading(self.step, vital, site, metric, values.reshape(tuple(tensor.shape)))
                  for (vital, site, metric, tensor), values in zip(self._arrays, flat[len(self._scalars):])]
        return scalars, arrays


def _name(site: Site | str) -> str:
    return site if isinstance(site, str) else site.name


def _to_host(tensors: list[Tensor]) -> list[np.ndarray]:
    out: list[np.ndarray] = [np.empty(0)] * len(tensors)
    by_device: dict[torch.device, list[int]] = {}
    for i, tensor in enumerate(tensors):
        by_device.setdefault(tensor.device, []).append(i)
    for indices in by_device.values():
        # concatenation promotes to the widest dtype present; counts beyond 2^24 must be written as float64
        flat = torch.cat([tensors[i].reshape(-1) for i in indices]).cpu().numpy()
        ends = np.cumsum([tensors[i].numel() for i in indices])
        for i, piece in zip(indices, np.split(flat, ends[:-1])):
            out[i] = piece
    return out
