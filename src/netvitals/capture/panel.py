"""The vital signs on duty: who looks on which step, and what happens when one of them fails."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from netvitals.capture.preserve import rng_state, set_rng_state
from netvitals.capture.reading import Sheet
from netvitals.capture.sight import ActivationSight, LinearSight, ParameterSight, TensorSight
from netvitals.capture.vital import Vital

METHODS = ("activation", "linear", "tensor", "gradient", "parameters")
SiteSight = ActivationSight | LinearSight | TensorSight


class Panel:
    """Calls every vital sign that is due, shields training from their errors, and their random draws from it.

    Args:
        vitals: instances with a ``name`` and some of the methods of :class:`~netvitals.capture.Vital`.
    """

    def __init__(self, vitals: Iterable[Any]) -> None:
        self.vitals = list(vitals)
        for vital in self.vitals:
            check_vital(vital)
        names = [v.name for v in self.vitals]
        if twice := {n for n in names if names.count(n) > 1}:
            raise ValueError(f"two vital signs are called {sorted(twice)[0]!r}; their readings could not be told apart")
        self.off: set[tuple[str, str]] = set()      # (vital, site) that failed once
        self._due: dict[str, list[tuple[str, Any, bool]]] = {m: [] for m in METHODS}

    def convene(self, look: int) -> None:
        """Choose who looks on the ``look``-th measured step (counted from 0)."""
        due = [v for v in self.vitals if look % max(1, getattr(v, "cadence", 1)) == 0]
        for method in METHODS:
            self._due[method] = [(v.name, getattr(v, method), not type(v).__module__.startswith("netvitals."))
                                 for v in due if _has(v, method)]

    def wants(self, method: str) -> bool:
        return bool(self._due[method])

    def show(self, method: str, sheet: Sheet, sight: SiteSight | ParameterSight, *more: Tensor) -> None:
        """Let every vital sign that is due look at ``sight``. Call with autograd and torch function modes off."""
        site = sight.site.name if not isinstance(sight, ParameterSight) else "parameters"
        for name, look, foreign in self._due[method]:
            if self.off and (name, site) in self.off:
                continue
            sheet.vital = name
            try:
                if foreign:     # a user's own vital sign may draw random numbers; training must not feel it
                    state = rng_state()
                    try:
                        look(sheet, sight, *more)
                    finally:
                        set_rng_state(state)
                else:
                    look(sheet, sight, *more)
            except Exception as error:
                self.off.add((name, site))
                say(f"vital sign {name!r} failed at {site!r} and is off there from now on: "
                    f"{type(error).__name__}: {error}")


def check_vital(vital: Any) -> None:
    if isinstance(vital, type) or not isinstance(getattr(vital, "name", None), str) or not vital.name:
        raise TypeError(f"a vital sign is an instance with a name, got {vital!r}; "
                        "write a class with a name and a method such as activation(sheet, sight)")
    if not any(_has(vital, m) for m in METHODS):
        raise TypeError(f"vital sign {vital.name!r} has none of the methods {', '.join(METHODS)}, so it sees nothing")


def _has(vital: Any, method: str) -> bool:
    own = getattr(type(vital), method, None)
    return callable(getattr(vital, method, None)) and own is not getattr(Vital, method)


def say(sentence: str) -> None:
    """Tell the user once and go on, also where warnings are turned into errors."""
    try:
        warnings.warn(f"netvitals: {sentence}", RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        logging.getLogger("netvitals").warning(sentence)


class aside:
    """A place for our own computations inside a user's pass: no autograd, no torch function modes, no autocast."""

    __slots__ = ("_autocast", "_grad", "_modes")

    def __enter__(self) -> None:
        self._modes = torch._C.DisableTorchFunction()
        self._modes.__enter__()
        self._grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        self._autocast = [device for device in _AUTOCAST if torch.is_autocast_enabled(device)]
        for device in self._autocast:
            torch.set_autocast_enabled(device, False)

    def __exit__(self, *_: object) -> None:
        for device in self._autocast:
            torch.set_autocast_enabled(device, True)
        torch._C._set_grad_enabled(self._grad)
        self._modes.__exit__(None, None, None)


_AUTOCAST = ("cpu", "cuda")
