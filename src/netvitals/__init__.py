"""Vital signs of a neural network in training: measured live, predicted in advance.

Rooms are loaded when first used, so that ``import netvitals`` costs little more than ``import torch``.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_ROOMS = ("activations", "layers", "stats", "capture", "vitals", "curvature", "singular", "saddle", "optim",
          "runs", "findings", "report", "lab")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"netvitals.{name}")
    raise AttributeError(f"netvitals has no {name!r}; it has {', '.join(_ROOMS)}")
