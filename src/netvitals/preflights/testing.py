"""A preflight in a test: ``assert_preflight(model, loss_fn, loader, optimizer)``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from netvitals._help import hint
from netvitals.preflights.result import Preflight, PreflightFailed
from netvitals.preflights.run import preflight


def assert_preflight(
    model: Any, loss_fn: Any, loader: Any, optimizer: Any = None, *, but: Iterable[str] = (), **options: Any
) -> Preflight:
    """Fail a test where a preflight finds something.

    Args:
        model: the model, or several.
        loss_fn: a function of (output, target), its name, or None.
        loader: what the loop iterates over, or one batch.
        optimizer: the optimizer, or several.
        but: names of checks that may fail.
        options: passed to :func:`netvitals.preflight`.

    Returns:
        The result, for further assertions.

    >>> import torch
    >>> x = torch.randn(64, 4); net = torch.nn.Linear(4, 1)
    >>> assert_preflight(net, "mse", [(x, x[:, :1])]).counts["failed"]
    0
    """
    __tracebackhide__ = True
    found = preflight(model, loss_fn, loader, optimizer, **options)
    allowed = set(but)
    unknown = allowed - {check.name for check in found}
    if unknown:
        names = ", ".join(check.name for check in found)
        raise ValueError(f"there is no check {', '.join(sorted(unknown))}; there are {names}")
    if any(check.name not in allowed for check in found.failed):
        raise PreflightFailed(found, hint("preflight-failed"))
    return found
