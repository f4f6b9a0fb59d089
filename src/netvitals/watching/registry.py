"""Open watches: which model is watched, and how a watch ends that nobody closes.

A watch ends with the program, with a SIGTERM, or when nobody can reach it any more. A handler of the user's own is left
alone; ours is only there while a run is written and nobody else had one.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from torch import nn

from netvitals._help import hint
from netvitals.capture import Buffer, Observers, OptimizerHooks
from netvitals.watching.arguments import Together

if TYPE_CHECKING:
    from netvitals.checks import LoopChecks
    from netvitals.runs import RunWriter
    from netvitals.watching.api import Watch

LEVELS = 6  # how far from a watch its owner is looked for

_by_model: weakref.WeakKeyDictionary[nn.Module, weakref.ref[Watch]] = weakref.WeakKeyDictionary()
_left: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # models whose last watch was never closed
_writing: weakref.WeakSet[Watch] = weakref.WeakSet()


def add(
    watch: Watch, model: nn.Module, parts: tuple[Observers, OptimizerHooks, Buffer, RunWriter | None, LoopChecks | None]
) -> Any:
    """Note that ``model`` is watched; the finaliser that is returned ends the watch when nobody can reach it."""
    for one in _watched(model):
        _by_model[one] = weakref.ref(watch)
        _left.discard(one)
    if parts[3] is not None:
        _writing.add(watch)
        _listen()
    return weakref.finalize(watch, _abandoned, weakref.ref(model), *parts, os.getpid())


def remove(watch: Watch, model: nn.Module) -> None:
    """The watch is closed."""
    for one in _watched(model):
        known = _by_model.get(one)
        if known is not None and known() in (watch, None):
            _by_model.pop(one, None)
    _writing.discard(watch)
    _stop_listening()


def take_over(model: nn.Module) -> str:
    """End an earlier watch of ``model`` that nobody can close any more, and say so; '' if there was none.

    That includes a watch of an earlier notebook cell. One that somebody else still holds is a ``ValueError``.
    """
    return next((words for words in [_taken_over(one) for one in _watched(model)] if words), "")


def _taken_over(model: nn.Module) -> str:
    known = _by_model.get(model)
    if known is not None and known() is not None:
        gc.collect()
    earlier = known() if known is not None else None
    if earlier is not None:
        rerun = earlier._cell is not None and earlier._cell != cell()
        if not (earlier.yields or rerun) and (earlier._entered or _held_by_somebody(earlier)):
            raise ValueError(
                "this model is already watched; call close() on the first watch before starting another "
                f"{hint('already-watched')}"
            )
        earlier.close("never closed")
        _left.add(model)
    if model in _left:
        _left.discard(model)
        return "an earlier watch of this model was not closed; it has been closed, and the new watch replaces it"
    return ""


def cell() -> int | None:
    """The number of the notebook cell that runs now; None outside of notebooks."""
    shell = sys.modules.get("IPython")
    return getattr(shell.get_ipython(), "execution_count", None) if shell is not None else None


def _watched(model: nn.Module) -> list[nn.Module]:
    """The model; of several that are watched together each one."""
    return [model, *(model.children() if isinstance(model, Together) else ())]


def weak_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that does not keep its object alive, and does nothing once that is gone."""
    owner, function = weakref.ref(method.__self__), method.__func__  # type: ignore[attr-defined]

    def call(*args: Any) -> Any:
        known = owner()
        return None if known is None else function(known, *args)

    return call


def weak_list(things: Iterable[Any]) -> Callable[[], list[Any]]:
    """A call that gives those of ``things`` that are still there."""
    refs = [weakref.ref(thing) for thing in things]
    return lambda: [thing for ref in refs if (thing := ref()) is not None]


def _abandoned(
    model: weakref.ref[nn.Module],
    observer: Observers,
    hooks: OptimizerHooks,
    buffer: Buffer,
    writer: RunWriter | None,
    checks: LoopChecks | None,
    process: int,
) -> None:
    """What is left to do for a watch that is gone: at the end of the program, or when it became unreachable."""
    if os.getpid() != process:
        return
    observer.disarm()
    hooks.close()
    if checks is not None:
        checks.close()
    if (known := model()) is not None:
        _left.add(known)
    if writer is not None:
        buffer.close()
        writer.close("failed" if getattr(sys, "last_value", None) is not None else "never closed")
    with contextlib.suppress(ValueError):
        _stop_listening()


def _held_by_somebody(watch: Watch) -> bool:
    """Whether anything but frames that have ended, as a traceback keeps them, leads to ``watch``."""
    held = {id(value) for frame in _running() for value in frame.f_locals.values()}
    front: list[Any] = [watch]
    seen = {id(watch)}
    for _ in range(LEVELS):
        if any(id(one) in held for one in front):
            return True
        found = [one for one in gc.get_referrers(*front) if id(one) not in seen and one is not front]
        seen.update(map(id, found))
        if any(isinstance(one, types.ModuleType | type | types.FunctionType) or _is_module(one) for one in found):
            return True
        front = [one for one in found if not isinstance(one, types.FrameType)]  # running ones are not among them
        del found
        if not front:
            return False
    return True


def _is_module(one: Any) -> bool:
    """Whether these are the variables of a module."""
    return isinstance(one, dict) and "__name__" in one and "__builtins__" in one


def _running() -> list[types.FrameType]:
    """The frames of all threads, but for those of this file."""
    frames = []
    for top in sys._current_frames().values():
        frame: types.FrameType | None = top
        while frame is not None:
            if frame.f_code.co_filename != __file__:
                frames.append(frame)
            frame = frame.f_back
    return frames


def _listen() -> None:
    with contextlib.suppress(ValueError):  # a thread that may not set handlers
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminated)


def _stop_listening() -> None:
    if (
        not _writing
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is _terminated
    ):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminated(number: int, frame: types.FrameType | None) -> None:
    """Close what is written, then end as the signal would have ended the program without us."""
    mine = signal.getsignal(signal.SIGTERM) is _terminated
    for watch in list(_writing):
        with contextlib.suppress(Exception):
            watch.close("stopped by SIGTERM") if mine else watch.flush()
    if mine:  # else a handler that was set after ours called us: what happens next is its affair
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
