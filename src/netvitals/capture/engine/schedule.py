"""The schedule of vital signs: who looks on which step, and what happens when one of them fails."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Set
from textwrap import shorten
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from netvitals._device import AUTOCAST
from netvitals._help import hint
from netvitals.anatomy import rng_state, set_rng_state
from netvitals.capture.recorder import Recorder
from netvitals.capture.views import (
    ActivationView,
    HeadsView,
    LinearView,
    ParameterView,
    ProductView,
    RouterView,
    TensorView,
    channels_of,
)
from netvitals.capture.vital import KINDS, Vital, WatchContext

CAPTURED = (
    "its pass goes into a CUDA graph, which is replayed without asking anybody: pass probe=(x, y, loss_fn) to watch, "
    "and call step() after each replay"
)
EARLY_MEASUREMENTS = 20  # on which a vital sign that calms down later looks more often
METHODS = ("activation", "product", "heads", "router", "linear", "tensor", "gradient", "parameters")
SiteView = ActivationView | ProductView | HeadsView | RouterView | LinearView | TensorView
View = SiteView | ParameterView


class Schedule:
    """Calls every vital sign that is due, shields training from their errors, and their random draws from it.

    Args:
        vitals: instances with a ``name`` and some of the methods of :class:`~netvitals.capture.Vital`.

    >>> from netvitals.vitals import Gates, Rank
    >>> schedule = Schedule([Gates(), Rank()])
    >>> schedule.select(0); schedule.wants("activation")
    True
    """

    def __init__(self, vitals: Iterable[Any]) -> None:
        self.vitals = list(vitals)
        for vital in self.vitals:
            check_vital(vital)
        names = [v.name for v in self.vitals]
        if twice := {n for n in names if names.count(n) > 1}:
            raise ValueError(
                f"two vital signs have the name {sorted(twice)[0]!r}, so their measurements would be mixed up: rename "
                f"one {hint('vital-unsound')}"
            )
        self.off: set[tuple[str, str]] = set()  # (vital, site) that failed once
        self._due = _callbacks([])
        self._callbacks: dict[tuple[object, ...], Due] = {}
        self._observed: dict[str, int] = {}  # step on which each looked last

    def begin(self, context: WatchContext) -> None:
        """Let every vital sign take from ``context`` what it needs before the first look; what is missing is said."""
        for vital in self.vitals:
            begin = getattr(vital, "begin", None)
            if callable(begin):
                begin(context)

    def select(self, observe: int, step: int = 0) -> None:
        """Choose who looks on the ``observe``-th measured step (counted from 0), which is training step ``step``."""
        due = [
            v
            for v in self.vitals
            if observe % _every(v, observe) == 0
            and (v.name not in self._observed or step - self._observed[v.name] >= getattr(v, "min_steps", 1))
        ]
        self._observed.update((v.name, step) for v in due)
        # a method with an interval of its own sits this look out
        resting = {
            (v.name, method)
            for v in due
            for method, every in getattr(v, "every_by_method", {}).items()
            if observe % every
        }
        key = (*(v.name for v in due), *sorted(resting))
        if key not in self._callbacks:
            self._callbacks[key] = _callbacks(due, resting)
        self._due = self._callbacks[key]

    def wants(self, method: str) -> bool:
        """Whether any vital sign that is due has this ``method``."""
        return bool(self._due[method])

    def looks_at_passes(self, vital: Any) -> bool:
        """Whether a vital sign looks at anything but parameters."""
        return any(_has(vital, method) for method in METHODS if method != "parameters")

    @property
    def reads_steps(self) -> bool:
        """Whether any that looks at the parameters wants their gradients and what they were before the step."""
        return any(callback.reads_steps for callback in self._due["parameters"])

    def wanted_kinds(self) -> frozenset[str]:
        """Kinds of sites that somebody looks at."""
        forward = {kind: kind if kind in METHODS else f"tensor of {kind}" for kind in KINDS}
        known = lambda k: self.wants(f"gradient of {k}") and k not in ("heads", "router")  # which have no one output
        return frozenset(k for k in KINDS if known(k) or self.wants(forward[k]))

    def show(self, method: str, recorder: Recorder, view: View, *more: Tensor) -> None:
        """Let the vital signs that are due look at ``view`` with ``method`` and write to ``recorder``. Call with
        autograd and torch function modes off.
        """
        site = "parameters" if isinstance(view, ParameterView) else view.site.name
        recorder.channels = 0 if recorder.part.places == 1 or isinstance(view, ParameterView) else channels_of(view)
        for callback in self._due[method]:
            if (callback.name, site) in self.off:
                continue
            recorder.same = method == "parameters"
            if isinstance(view, ParameterView) and view.pieces and not callback.takes_pieces:
                recorder.skipped[f"{callback.name}: parameters"] = "no rank has the full parameters"
                continue
            try:
                callback.call(recorder, view, *more)
            except Exception as error:
                first = all(name != callback.name for name, _ in self.off)
                self.off.add((callback.name, site))
                what = f"{type(error).__name__}: {error}"
                recorder.skipped[f"{callback.name}: {site}"] = (
                    f"it failed at this site and is turned off there: {what}"[:400]
                )
                if first:  # the other places are in ``skipped``: there may be a thousand
                    warn(
                        f"the vital sign {callback.name!r} failed at {site!r} and is turned off at this site: {what}",
                        "vital-failed",
                    )


class Callback(NamedTuple):
    """One method of one vital sign."""

    name: str
    observe: Any
    foreign: bool  # a user's own vital sign may draw random numbers; training must not feel it
    takes_pieces: bool = False
    reads_steps: bool = True

    def call(self, recorder: Recorder, *args: Any) -> None:
        recorder.vital = self.name
        if not self.foreign:
            self.observe(recorder, *args)
            return
        state = rng_state()
        try:
            self.observe(recorder, *args)
        finally:
            set_rng_state(state)


Due = dict[str, list[Callback]]


def _callbacks(vitals: list[Any], resting: Set[tuple[str, str]] = frozenset()) -> Due:
    """Who looks at what, by method and, for tensors and gradients, by kind of site."""
    due: Due = {}
    for method in METHODS:
        found = [(v, _callback(v, method)) for v in vitals if _has(v, method) and (v.name, method) not in resting]
        due[method] = [callback for _, callback in found]
        chosen = {"gradient": "gradients_of", "tensor": "tensors_of"}.get(method)
        if chosen is not None:  # to wait for a gradient that nobody looks at costs time
            for kind in KINDS:
                due[f"{method} of {kind}"] = [callback for v, callback in found if kind in getattr(v, chosen, KINDS)]
    return due


def _every(vital: Any, observe: int) -> int:
    every = max(1, getattr(vital, "every", 1))
    return every if observe < EARLY_MEASUREMENTS else max(every, getattr(vital, "later_every", 1))


def _callback(vital: Any, method: str) -> Callback:
    foreign = not type(vital).__module__.startswith("netvitals.")
    return Callback(
        vital.name,
        getattr(vital, method),
        foreign,
        getattr(vital, "takes_pieces", False),
        getattr(vital, "reads_steps", True),
    )


def check_vital(vital: Any) -> None:
    """Raise a ``TypeError`` for what is no vital sign: an instance with a name and at least one method that looks."""
    if isinstance(vital, type) or not isinstance(getattr(vital, "name", None), str) or not vital.name:
        raise TypeError(
            f"a vital sign must be an object with an attribute name, got {vital!r}. Write a class with a name and a "
            f"method such as activation(recorder, view) {hint('vital-unsound')}"
        )
    if not any(_has(vital, m) for m in METHODS):
        raise TypeError(
            f"the vital sign {vital.name!r} has none of the methods {', '.join(METHODS)}, so it would measure nothing "
            f"{hint('vital-unsound')}"
        )


def _has(vital: Any, method: str) -> bool:
    own = getattr(type(vital), method, None)
    return callable(getattr(vital, method, None)) and own is not getattr(Vital, method)


def warn(sentence: str, trouble: str | None = None) -> None:
    """Tell the user and go on, also where warnings are turned into errors: then the sentence is logged.

    Args:
        sentence: what happened; cut after 400 characters, for torch may list every backend it knows.
        trouble: what ``netvitals explain`` is to be asked; the sentence ends with it.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always"); warn("the model has no activation")
    >>> str(caught[0].message)
    'netvitals: the model has no activation'
    """
    sentence = shorten(sentence, 400, placeholder=" …") + (f" {hint(trouble)}" if trouble else "")
    try:
        warnings.warn(f"netvitals: {sentence}", RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        logging.getLogger("netvitals").warning(sentence)


class detached_context:
    """A place for our own computations inside a user's pass: no autograd, no modes of torch, no autocast.

    What autograd saves in there is ours: the hooks that checkpointing puts on saved tensors do not see it.

    >>> x = torch.ones(2, requires_grad=True)
    >>> with detached_context():
    ...     y = 2 * x
    >>> y.requires_grad, (2 * x).requires_grad
    (False, True)
    """

    __slots__ = ("_autocast", "_dispatch", "_grad", "_modes", "_saved")

    def __enter__(self) -> None:
        self._modes = torch._C.DisableTorchFunction()
        self._modes.__enter__()
        self._dispatch = torch._C._DisableTorchDispatch() if torch._C._len_torch_dispatch_stack() else None
        if self._dispatch is not None:
            self._dispatch.__enter__()
        self._grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        self._autocast = [device for device in AUTOCAST if torch.is_autocast_enabled(device)]
        for device in self._autocast:
            torch.set_autocast_enabled(device, False)
        self._saved = None
        if _saved_tensors_hook is None or _saved_tensors_hook(False) is not None:
            self._saved = saved_tensors_hooks(_same, _same)
            self._saved.__enter__()

    def __exit__(self, *_: object) -> None:
        if self._saved is not None:
            self._saved.__exit__(None, None, None)
        for device in self._autocast:
            torch.set_autocast_enabled(device, True)
        torch._C._set_grad_enabled(self._grad)
        if self._dispatch is not None:
            self._dispatch.__exit__(None, None, None)
        self._modes.__exit__(None, None, None)


def _same(tensor: Tensor) -> Tensor:
    return tensor


_saved_tensors_hook = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
