"""Hooks that stay with the model they were put on."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import nn

_ASKED = "__prepare_scriptable__"  # what torch.jit.script calls on a module before it reads anything of it
_EVAL_FRAME = os.path.join(os.path.dirname(torch.__file__), "_dynamo", "eval_frame.py")
_TABLES = ("_forward_pre_hooks", "_forward_hooks")
_FLAGS = ("_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")


class Hook:
    """A hook that torch.compile never traces, and that a copied or saved model does not carry along: the copy gets one
    that does nothing, and that loads where there is no netvitals.

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
        if not hasattr(Hook.__call__, "_torchdynamo_disable"):  # not when the class is made: that imports Dynamo
            Hook.__call__ = torch.compiler.disable(Hook.__call__)  # type: ignore[method-assign]

    def __call__(self, *args: Any) -> None:
        self.call(*args)

    def before(self, module: nn.Module, **options: Any) -> OnModule:
        """Be called before ``module`` runs."""
        return OnModule(module.register_forward_pre_hook(self, **options))

    def after(self, module: nn.Module, **options: Any) -> OnModule:
        """Be called after ``module`` has run."""
        return OnModule(module.register_forward_hook(self, **options))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # a method of the standard library that takes anything and does nothing: the copy needs no netvitals
        return getattr, (nullcontext(), "__exit__")


def runs_in_compiled_code() -> bool:
    """Whether the hook that asks was called by a frame that torch.compile runs, not by plain Python."""
    frame, outer = sys._getframe(1), 0
    while frame is not None:
        if frame.f_code.co_filename == _EVAL_FRAME:
            outer += 1
            if outer == 2:  # the first is the hook's own, which keeps it outside
                return not frame.f_code.co_qualname.startswith("DisableContext")
        frame = frame.f_back  # type: ignore[assignment]
    return False


class OnModule:
    """A hook that is on a module; it is out of the way while torch.compile traces.

    What is compiled does not know of the hook, and does not call it: with and without hooks the same code runs, and
    nothing is compiled anew where they come and go.
    """

    __slots__ = ("__weakref__", "_handle", "_taken")

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._taken: list[tuple[Any, list[Any], Any]] = []  # table, its keys in order, what stood at ours
        _on_modules.add(self)
        _hear_of_compilation()

    def remove(self) -> None:
        """Take the hook off."""
        self._taken = []
        self._handle.remove()
        _on_modules.discard(self)

    def hide(self) -> None:
        """Take the hook off for a while."""
        tables = [self._handle.hooks_dict_ref(), *(ref() for ref in self._handle.extra_dict_ref)]
        for table in tables:
            if table is not None and self._handle.id in table:
                order = list(table)
                self._taken.append((table, order, table.pop(self._handle.id)))

    def show(self) -> None:
        """Put it back where it was."""
        for table, order, value in self._taken:
            table[self._handle.id] = value
            for key in order[order.index(self._handle.id) + 1 :]:
                if key in table:
                    table.move_to_end(key)
        self._taken = []


_on_modules: weakref.WeakSet[OnModule] = weakref.WeakSet()
_listeners: weakref.WeakSet[Any] = weakref.WeakSet()
_hidden: list[OnModule] = []


def tell_of_compilation(listener: Any) -> None:
    """Call ``listener.compiling()`` whenever torch.compile begins to trace."""
    _listeners.add(listener)


def _hear_of_compilation() -> None:
    """Hear of the beginning and the end of each trace of torch.compile, also after ``torch.compiler.reset``."""
    from torch._dynamo.callback import callback_handler

    if _tracing_begins not in callback_handler.start_callbacks:
        callback_handler.register_start_callback(_tracing_begins)
        callback_handler.register_end_callback(_tracing_ends)


def _tracing_begins(*_: Any) -> None:
    for listener in list(_listeners):
        listener.compiling()
    _hidden.extend(_on_modules)
    for hook in _hidden:
        hook.hide()


def _tracing_ends(*_: Any) -> None:
    while _hidden:  # the last one first: the order that each table had before
        _hidden.pop().show()


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
