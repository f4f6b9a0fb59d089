"""Functional calls: a torch function mode that sees ``F.gelu(x)``, ``x.tanh()``, ``x + y`` inside a measured pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from netvitals.capture.engine.functions import MEANING, RESHAPING, FunctionMeaning
from netvitals.capture.engine.modules import Replay
from netvitals.capture.engine.pass_state import UNKNOWN, Frame, Origin, PassState
from netvitals.capture.engine.roles import REASONS
from netvitals.capture.engine.schedule import detached_context

_SHOWN = frozenset({"activation", "ambiguous", "clamp", "attention"})


class _Input(NamedTuple):
    x: Tensor  # a copy where the function overwrites it
    origin: Origin
    f: Callable[[Tensor], Any]  # the function of this one argument, to be run again


class FunctionCalls(TorchFunctionMode):
    """Tells the state of a pass what functional calls do. Inside a call the mode is off: what torch calls is not seen.

    Args:
        state: of the pass in which the calls happen; while it is blind they pass unseen.
    """

    def __init__(self, state: PassState) -> None:
        super().__init__()
        self._state = state
        self._on = False

    def begin(self) -> None:
        if not self._on:
            self.__enter__()
            self._on = True

    def end(self) -> None:
        if self._on:
            self._on = False
            self.__exit__(None, None, None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        meaning = MEANING.get(func)
        if meaning is None or self._state.blind:
            return func(*args, **kwargs) if kwargs else func(*args)
        return self._seen(meaning, func, args, kwargs or {})

    def _seen(self, meaning: FunctionMeaning, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x = args[0] if args else kwargs.get("input", kwargs.get("self"))
        given = None
        try:
            if meaning.what in ("activation", "ambiguous", "clamp"):
                given = self._activation_input(meaning, func, x, args, kwargs)
        except Exception as error:
            self._state.give_up(error)
        output = func(*args, **kwargs)
        try:
            if self._state.frames:
                if meaning.what in _SHOWN:
                    with detached_context():
                        self._follow(meaning, func, x, given, args, kwargs, output)
                else:
                    self._follow(meaning, func, x, given, args, kwargs, output)
        except Exception as error:
            self._state.give_up(error)
        return output

    def _activation_input(
        self, meaning: FunctionMeaning, func: Any, x: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Input | None:
        if not isinstance(x, Tensor) or not x.is_floating_point() or "out" in kwargs:
            return None
        origin = self._state.provenance.origin(x)
        if meaning.what == "ambiguous" and origin.follows not in ("linear", "bn_direct", "norm_direct", "post_add"):
            return None
        if meaning.what == "clamp" and not _is_relu(args, kwargs):
            return None
        in_place = meaning.in_place or bool(kwargs.get("inplace")) or (len(args) > 1 and args[-1] is True)
        f = _of_one(func, args, kwargs, in_place)
        if meaning.random:
            f = Replay(f, x.device)
        return _Input(x.detach().clone() if in_place else x, origin, f)

    def _follow(
        self,
        meaning: FunctionMeaning,
        func: Any,
        x: Any,
        given: _Input | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
    ) -> None:
        state, provenance, what = self._state, self._state.provenance, meaning.what
        frame = state.frames[-1]
        owner = frame.module_info.name
        if given is not None:
            op = "relu" if what == "clamp" else meaning.op
            state.activation(_named(owner, op), op, owner, given.x, given.origin, output, given.f)
        elif what == "moving" and isinstance(x, Tensor) and isinstance(output, Tensor):
            origin = provenance.origin(x)
            provenance.mark(output, origin.follows, None if meaning.op in RESHAPING else origin.channel_dim)
        elif what == "splitting" and isinstance(x, Tensor):
            origin = provenance.origin(x)
            for piece in output:
                provenance.mark(piece, origin.follows, origin.channel_dim if piece.ndim == x.ndim else None)
        elif what == "addition":
            self._addition(frame, x, args[1] if len(args) > 1 else kwargs.get("other"), output)
        elif what == "mixing":
            state.cannot_see(_named(owner, meaning.op), REASONS["mixing"])
        elif what == "maximum":
            if self._is_maxout(x, args, kwargs):
                state.cannot_see(_named(owner, "maxout"), REASONS["mixing"])
        elif what == "attention":
            name = _named(owner, meaning.op)
            state.cannot_see(name, "the softmax runs inside a fused kernel; only the output is looked at")
            state.tensor(name, "attention", meaning.op, UNKNOWN, output, owner)
        elif what == "linear" or what == "convolution":
            provenance.mark(output, "linear", 1 if what == "convolution" else -1)
            state.cannot_see(
                _named(owner, meaning.op),
                "a layer called as a function has no module; its parameters are looked at under their own names",
            )
        elif what in ("batch norm", "channel norm", "last norm"):
            provenance.mark(
                output, "bn_direct" if what == "batch norm" else "norm_direct", -1 if what == "last norm" else 1
            )

    def _is_maxout(self, x: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """The larger of two layers' outputs, or the largest along an axis into which the channels were folded; a
        maximum over whole tokens or pixels, where channels keep their axis, is pooling."""
        others = [v for v in (*args[1:2], *(kwargs.get(k) for k in ("dim", "other"))) if v is not None]
        if not others or not isinstance(x, Tensor) or not x.is_floating_point():
            return False
        terms = [x, others[0]] if isinstance(others[0], Tensor) else [x]
        origins = [self._state.provenance.origin(t) for t in terms]
        return all(o.follows in ("linear", "bn_direct", "norm_direct") for o in origins) and (
            len(terms) == 2 or origins[0].channel_dim is None
        )

    def _addition(self, frame: Frame, x: Any, y: Any, output: Any) -> None:
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return
        provenance, terms = self._state.provenance, [t for t in (x, y) if isinstance(t, Tensor)]
        layout = next((d for d in (provenance.origin(t).channel_dim for t in terms) if d is not None), None)
        states = [t for t in terms if t.ndim > 1 and not isinstance(t, nn.Parameter)]
        if len(states) == 2:
            frame.added = True
            provenance.mark(output, "post_add", layout)
        elif states:  # a bias or a constant: what was there before still tells the distribution
            provenance.mark(output, provenance.origin(states[0]).follows, layout)


def _named(owner: str, op: str) -> str:
    return f"{owner}.{op}()" if owner else f"{op}()"


def _of_one(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], in_place: bool) -> Callable[[Tensor], Any]:
    """``func`` as a function of its first argument alone, which it leaves as it is."""
    rest, named = args[1:], {k: v for k, v in kwargs.items() if k not in ("input", "self")}
    if not in_place and not rest and not named:
        return func
    return lambda t: func(t.clone() if in_place else t, *rest, **named)


def _is_relu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    low = args[1] if len(args) > 1 else kwargs.get("min")
    high = args[2] if len(args) > 2 else kwargs.get("max")
    return isinstance(low, int | float) and low == 0 and high is None


def is_transformed() -> bool:
    """Whether a ``torch.func`` transform is running: its tensors must not leave it."""
    peek = getattr(torch._C._functorch, "peek_interpreter_stack", None)
    return peek is not None and peek() is not None
