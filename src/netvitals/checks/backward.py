"""Being told of every ``backward`` while somebody listens: ``torch.autograd.backward`` is wrapped only then."""

from __future__ import annotations

from typing import Any, Protocol

import torch


class Listener(Protocol):
    """What is called before and after each backward pass."""

    def backward_begins(self, tensors: Any, given: bool) -> None:
        """Before the pass; ``given`` says that the caller weights the outputs itself."""

    def backward_ends(self) -> None:
        """After the pass."""


_listeners: list[Listener] = []
_original: Any = None
_ours: Any = None  # what stands in the place of torch.autograd.backward


def _wrapped(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
    for listener in tuple(_listeners):
        listener.backward_begins(tensors, grad_tensors is not None)
    result = _original(tensors, grad_tensors, *args, **kwargs)
    for listener in tuple(_listeners):
        listener.backward_ends()
    return result


def listen(listener: Listener) -> None:
    """Tell ``listener`` of every backward pass."""
    global _original, _ours
    _ours = _ours or torch.compiler.disable(_wrapped)
    if not _listeners and torch.autograd.backward is not _ours:
        _original = torch.autograd.backward
        torch.autograd.backward = _ours
    _listeners.append(listener)


def stop(listener: Listener) -> None:
    """Tell ``listener`` no more; the last one takes the wrapper away, unless somebody wrapped it again."""
    if listener in _listeners:
        _listeners.remove(listener)
    if not _listeners and torch.autograd.backward is _ours:
        torch.autograd.backward = _original
