"""Vital signs of a neural network in training: measured live, predicted in advance.

Rooms are loaded when first used, so that ``import netvitals`` costs little more than ``import torch``.
"""

from __future__ import annotations

import importlib
from typing import Any

from netvitals._version import __version__

# `netvitals.watch` is the function, not the file it lives in: imported here once, the name stays bound to it
from netvitals.checkup import Checkup, checkup
from netvitals.watch import Watch, watch

__all__ = ["Checkup", "Watch", "__version__", "checkup", "open_run", "watch"]

_ROOMS = (
    "activations",
    "layers",
    "stats",
    "anatomy",
    "capture",
    "gates",
    "saddle",
    "singular",
    "drift",
    "curvature",
    "optim",
    "vitals",
    "runs",
    "findings",
    "report",
    "integrations",
)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"netvitals.{name}")
    if name == "open_run":
        return importlib.import_module("netvitals.findings").open_run
    raise AttributeError(f"netvitals has no {name!r}; it has {', '.join(_ROOMS)}")
