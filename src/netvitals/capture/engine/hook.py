"""Hooks that stay with the model they were put on, and one that waits for a model without touching it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook


class Hook:
    """A hook that a copied or saved model does not carry along: the copy gets one that does nothing, and that loads
    where there is no netvitals.

    >>> import copy
    >>> seen = []
    >>> hook = Hook(seen.append)
    >>> hook(1); copy.deepcopy(hook)(2)
    >>> seen
    [1]
    """

    __slots__ = ("call",)
    of_a_watch = True  # a measurement that the user asks for meanwhile does without it

    def __init__(self, call: Callable[..., None]) -> None:
        self.call = call

    def __call__(self, *args: Any) -> None:
        self.call(*args)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # a method of the standard library that takes anything and does nothing: the copy needs no netvitals
        return getattr, (nullcontext(), "__exit__")


class Arrival:
    """Waits for the next call of one module by hooks that torch calls for all modules: the module itself carries none.

    Args:
        model: the module that is waited for.
        arrives: called with its arguments and keywords before it runs; True ends the waiting.

    >>> net, seen = nn.Linear(1, 1), []
    >>> arrival = Arrival(net, lambda args, kwargs: bool(seen.append(sorted(kwargs))) or True)
    >>> arrival.wait()
    >>> import torch
    >>> _ = net(input=torch.ones(1, 1)), net(torch.ones(1, 1))
    >>> seen, len(net._forward_pre_hooks) + len(net._forward_pre_hooks_with_kwargs)
    ([['input']], 0)
    """

    def __init__(self, model: nn.Module, arrives: Callable[[tuple[Any, ...], dict[str, Any]], bool]) -> None:
        self._model, self._arrives = model, arrives
        self._handles: list[Any] = []

    def wait(self) -> None:
        """Begin to wait."""
        self.leave()
        self._handles = [register_module_forward_pre_hook(Hook(f)) for f in (self._meet, self._begin)]

    def leave(self) -> None:
        """Wait no longer."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _meet(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        # a hook for all modules gets no keywords, unless the module lists its number among those that do
        if module is self._model and self._handles:
            module._forward_pre_hooks_with_kwargs[self._handles[1].id] = True

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if module is not self._model or kwargs is None or not self._handles:
            return
        module._forward_pre_hooks_with_kwargs.pop(self._handles[1].id, None)
        if self._arrives(args, kwargs):
            self.leave()
