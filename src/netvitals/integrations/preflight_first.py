"""What the preflight callbacks of all trainers share."""

from __future__ import annotations

from typing import Any

from torch import nn

from netvitals.preflights import Preflight, preflight


class PreflightFirst:
    """A preflight before a trainer's first step."""

    def __init__(self, stop: bool = True, **options: Any) -> None:
        self.stop, self.options = stop, options
        self.result: Preflight | None = None

    def check(self, step: int, model: nn.Module, loader: Any, optimizer: Any) -> None:
        """Check what a trainer is about to train, unless it goes on from a checkpoint at ``step``."""
        if step:
            return
        self.result = preflight(model, None, loader, optimizer, **self.options)
        if self.stop:
            self.result.raise_for_failures()
