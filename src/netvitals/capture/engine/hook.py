"""Hooks that stay with the model they were put on."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from operator import itemgetter
from typing import Any

from torch import nn

_ASKED = "__prepare_scriptable__"  # what torch.jit.script calls on a module before it reads anything of it
_TABLES = ("_forward_pre_hooks", "_forward_hooks")
_FLAGS = ("_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")


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


class BeforeScripting:
    """What ``torch.jit.script`` asks a module before it compiles it: takes our hooks away, which torch would compile.

    A deep copy takes away the idle hooks that it has; a saved model has a callable of the standard library in its
    place, which gives the module.
    """

    __slots__ = ("_before", "_module", "_withdraw")

    def __init__(self, module: nn.Module, withdraw: Callable[[], None] | None = None) -> None:
        self._module = weakref.ref(module)
        self._withdraw = [] if withdraw is None else [withdraw]  # what takes the hooks away, one a watcher
        self._before = getattr(module, _ASKED, None)  # the user's own

    @staticmethod
    def put_on(module: nn.Module, withdraw: Callable[[], None]) -> None:
        """Have ``module`` give up our hooks when it is scripted."""
        mine = vars(module).get(_ASKED)
        if not isinstance(mine, BeforeScripting):
            vars(module)[_ASKED] = BeforeScripting(module, withdraw)
        elif withdraw not in mine._withdraw:
            mine._withdraw.append(withdraw)

    @staticmethod
    def take_off(module: nn.Module, withdraw: Callable[[], None] | None = None) -> None:
        """Leave the module as it was, unless another watcher's hooks are on it; without ``withdraw`` in any case."""
        mine = vars(module).get(_ASKED)
        if isinstance(mine, BeforeScripting):
            if withdraw in mine._withdraw:
                mine._withdraw.remove(withdraw)
            if withdraw is not None and mine._withdraw:
                return
            del vars(module)[_ASKED]
            if mine._before is not None and not hasattr(module, _ASKED):  # it was on the module, not on its class
                vars(module)[_ASKED] = mine._before

    def __call__(self) -> Any:
        module = self._module()
        assert module is not None
        if self._withdraw:
            for withdraw in tuple(self._withdraw):
                withdraw()
        else:
            for part in module.modules():
                _drop_idle(part)
                BeforeScripting.take_off(part)
        return module if self._before is None else self._before()

    def __deepcopy__(self, memo: dict[int, Any]) -> BeforeScripting:
        return BeforeScripting(memo[id(self._module())])  # the module is copied before what is on it

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return partial, (itemgetter(0), (self._module(),))


def _drop_idle(module: nn.Module) -> None:
    """Take away what a copy has of our hooks."""
    own = vars(module)
    for table in (own[name] for name in _TABLES):
        for key in [key for key, hook in table.items() if isinstance(getattr(hook, "__self__", None), nullcontext)]:
            del table[key]
            for flags in (own[name] for name in _FLAGS):
                flags.pop(key, None)
