"""On which device a trial runs: networks are built there, and data sets loaded to it.

A study says nothing of devices. Whoever runs it does (``netvitals reproduce --device cuda``), and every worker opens
:func:`placed` around its trial. Theory that is computed in float64 on few numbers stays on the processor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

CPU = "cpu"
_CHOSEN: ContextVar[str] = ContextVar("netvitals device", default=CPU)


def device() -> torch.device:
    """The device of the trial that runs now.

    >>> device()
    device(type='cpu')
    """
    return torch.device(_CHOSEN.get())


@contextmanager
def placed(name: str) -> Iterator[None]:
    """Inside, networks and data go to the device called ``name``.

    >>> with placed("meta"):
    ...     device().type
    'meta'
    """
    token = _CHOSEN.set(checked(name))
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def checked(name: str) -> str:
    """The name of a device that is here, or an error that says which are.

    >>> checked("cpu")
    'cpu'
    """
    try:
        wanted = torch.device(name)
    except RuntimeError:
        raise ValueError(f"there is no device {name!r}; here there are {', '.join(available())}") from None
    count = counts().get(wanted.type, 0)
    if not count or (wanted.index or 0) >= count:
        raise ValueError(f"the device {name!r} is not here; here there are {', '.join(available())}")
    return name


def counts() -> dict[str, int]:
    """How many devices of each kind there are."""
    found = {CPU: 1, "meta": 1}  # meta: shapes without values, to see what a configuration would build
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.device_count()
    if torch.backends.mps.is_available():
        found["mps"] = 1
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        found["xpu"] = torch.xpu.device_count()
    return found


def available() -> list[str]:
    """Names of the devices that a trial can run on."""
    return [kind if n == 1 else f"{kind}:{i}" for kind, n in counts().items() if kind != "meta" for i in range(n)]
