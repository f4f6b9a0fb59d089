"""Run an activation a second time without the user noticing: same random numbers, buffers left as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Replay:
    """An activation that may draw random numbers or keep buffers, as it was when this was made.

    Make it right before the activation runs. Calling it gives the output of that run for any input, from the same
    generator state and buffers, and leaves generator and buffers as they are at the time of the call.

    Args:
        activation: a module, or a function of one tensor.
        device: where it runs.
        in_place: it overwrites its input, so that it gets a copy.
    """

    def __init__(
        self, activation: nn.Module | Callable[[Tensor], Tensor], device: torch.device, *, in_place: bool = False
    ) -> None:
        module = activation if isinstance(activation, nn.Module) else None
        self._call = activation if module is None else module.forward
        self._device = device
        self._in_place = in_place
        self._random = random_state(device)
        self._buffers = [
            (m, key, b.detach().clone())
            for m in (() if module is None else module.modules())
            for key, b in m._buffers.items()
            if b is not None
        ]

    def __call__(self, x: Tensor) -> Tensor:
        now = random_state(self._device)
        mine = [(m, key, m._buffers[key]) for m, key, _ in self._buffers]
        try:
            set_random_state(self._device, self._random)
            for module, key, value in self._buffers:
                module._buffers[key] = value.clone()
            return self._call(x.clone() if self._in_place else x)
        finally:
            for module, key, buffer in mine:
                module._buffers[key] = buffer
            set_random_state(self._device, now)


def random_state(device: torch.device) -> tuple[Tensor, Any]:
    """The generators that an operation on ``device`` may draw from."""
    read = getattr(getattr(torch, device.type), "get_rng_state", None) if device.type != "cpu" else None
    return torch.get_rng_state(), read(device) if read is not None else None


def set_random_state(device: torch.device, state: tuple[Tensor, Any]) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        getattr(torch, device.type).set_rng_state(state[1], device)
