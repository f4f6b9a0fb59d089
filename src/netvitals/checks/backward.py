"""Being told of every ``backward`` while somebody listens: ``torch.autograd.backward`` is wrapped only then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Listener = Callable[[Any], None]
_listeners: list[Listener] = []
_original: Any = None


def _told(tensors: Any, *args: Any, **kwargs: Any) -> Any:
    for listener in tuple(_listeners):
        listener(tensors)
    return _original(tensors, *args, **kwargs)


def listen(listener: Listener) -> None:
    """Call ``listener`` with what ``backward`` is called on, before it runs."""
    global _original
    if not _listeners and torch.autograd.backward is not _told:
        _original = torch.autograd.backward
        torch.autograd.backward = _told
    _listeners.append(listener)


def stop(listener: Listener) -> None:
    """Tell ``listener`` no more; the last one takes the wrapper away, unless somebody wrapped it again."""
    if listener in _listeners:
        _listeners.remove(listener)
    if not _listeners and torch.autograd.backward is _told:
        torch.autograd.backward = _original
