"""Readings: what a measurement leaves behind, and the sheet that takes them off the device in one transfer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from netvitals.capture.site import Site


class Reading(NamedTuple):
    """One number: metric ``metric`` of vital sign ``vital`` at ``site`` on training step ``step``.

    A tuple, because hundreds of them are made on every measured step.
    """

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
        self._scalars: list[tuple[str, list[str], tuple[str, ...], Tensor]] = []
        self._arrays: list[tuple[str, list[str], str, Tensor]] = []
        self._later: list[Callable[[], None]] = []

    def write(self, site: Site | str, metrics: Sequence[str], values: Tensor) -> None:
        """Note ``values`` (one per metric, still on the device; no synchronisation happens here)."""
        self.write_rows((site,), metrics, values)

    def write_rows(self, sites: Sequence[Site | str], metrics: Sequence[str], values: Tensor) -> None:
        """Note the same metrics of several sites: ``values`` has a row for each site, a column for each metric."""
        values = values.detach()
        if values.numel() != len(sites) * len(metrics):
            raise ValueError(f"{self.vital}: {len(metrics)} metrics {tuple(metrics)} of {len(sites)} sites for "
                             f"{values.numel()} values")
        self._scalars.append((self.vital, [_name(s) for s in sites], tuple(metrics), values))

    def write_array(self, site: Site | str, metric: str, values: Tensor) -> None:
        """Note a whole small array, for example one number per channel."""
        self.write_array_rows((site,), metric, values.detach()[None])

    def write_array_rows(self, sites: Sequence[Site | str], metric: str, values: Tensor) -> None:
        """Note one array for each of several sites: ``values[i]`` belongs to ``sites[i]``."""
        if values.shape[0] != len(sites):
            raise ValueError(f"{self.vital}: {values.shape[0]} arrays {metric!r} for {len(sites)} sites")
        self._arrays.append((self.vital, [_name(s) for s in sites], metric, values.detach()))

    def later(self, work: Callable[[], None]) -> None:
        """Have ``work`` done before the readings leave the device. Vital signs put off what is cheaper done for many
        sites at once."""
        self._later.append(work)

    def readings(self) -> tuple[list[Reading], list[ArrayReading]]:
        """Everything written so far, in plain numbers; one transfer per device and kind of number."""
        while self._later:
            work = self._later.pop(0)
            try:
                with torch.no_grad():
                    work()
            except Exception as error:
                from netvitals.capture.panel import say  # it imports this file

                say(f"readings of step {self.step} are incomplete: {type(error).__name__}: {error}")
        flat = _to_host([v for *_, v in self._scalars] + [v for *_, v in self._arrays])
        step = self.step
        scalars: list[Reading] = []
        for (vital, sites, metrics, _), values in zip(self._scalars, flat):
            labels = [(site, metric) for site in sites for metric in metrics]
            scalars += [Reading(step, vital, site, metric, value)
                        for (site, metric), value in zip(labels, values.astype(float, copy=False).tolist())]
        arrays = [ArrayReading(step, vital, site, metric, value)
                  for (vital, sites, metric, tensor), values in zip(self._arrays, flat[len(self._scalars):])
                  for site, value in zip(sites, values.reshape(tuple(tensor.shape)))]
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
