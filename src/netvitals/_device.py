"""What differs between kinds of devices; everything else works on tensors wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

AUTOCAST = ("cpu", "cuda", "xpu", "mps")  # kinds that may have autocast on


def names() -> list[str]:
    """The devices of this machine."""
    found = ["cpu"]
    if torch.cuda.is_available():
        found += [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    return found + ["mps"] * torch.backends.mps.is_available() + ["xpu"] * torch.xpu.is_available()


def rng_states() -> dict[str, list[Tensor]]:
    """The states of all generators of accelerators in use, by kind."""
    found = {}
    for kind, backend in (("cuda", torch.cuda), ("xpu", torch.xpu)):
        if backend.is_available() and backend.is_initialized():
            found[kind] = backend.get_rng_state_all()
    if torch.backends.mps.is_available():
        found["mps"] = [torch.mps.get_rng_state()]
    return found


def set_rng_states(states: dict[str, list[Tensor]]) -> None:
    """Put the generators back to what :func:`rng_states` gave."""
    for kind, values in states.items():
        if kind == "mps":
            torch.mps.set_rng_state(values[0])
        else:
            getattr(torch, kind).set_rng_state_all(values)


def random_state(device: torch.device) -> tuple[Tensor, Any]:
    """The generators that an operation on ``device`` may draw from."""
    read = getattr(getattr(torch, device.type), "get_rng_state", None) if device.type != "cpu" else None
    if read is None:
        return torch.get_rng_state(), None
    return torch.get_rng_state(), read() if device.type == "mps" else read(device)


def set_random_state(device: torch.device, state: tuple[Tensor, Any]) -> None:
    """Put the generators for ``device`` back to what :func:`random_state` gave."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        where = () if device.type == "mps" else (device,)
        getattr(torch, device.type).set_rng_state(state[1], *where)


def free_memory() -> int | None:
    """Bytes that are free on the accelerator in use; None on a host."""
    return torch.cuda.mem_get_info()[0] if torch.cuda.is_available() and torch.cuda.is_initialized() else None


def is_captured() -> bool:
    """Whether what runs now goes into a CUDA graph: what we would do would be done again on every replay."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def double(t: Tensor) -> Tensor:
    """In float64, or in float32 on a device that has no float64."""
    return t.float() if t.device.type == "mps" else t.double()


def sends(device: torch.device) -> bool:
    """Whether ``device`` can send to pinned memory while it goes on."""
    return device.type in ("cuda", "xpu")


def to_host(values: Sequence[Tensor]) -> tuple[Tensor, Callable[[], bool], Callable[[], None]]:
    """Send scalars of one device to the host: where they will be, whether they are there, and a wait for them."""
    host = torch.empty(len(values), dtype=torch.float64, pin_memory=True)
    host.copy_(torch.stack([value.double() for value in values]), non_blocking=True)
    event = torch.Event(values[0].device)
    event.record()
    return host, event.query, event.synchronize
