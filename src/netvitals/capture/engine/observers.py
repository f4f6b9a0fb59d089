"""The roots of what is watched: a model, and every part of it that is called outside the model's own forward.

A ``LightningModule`` is seldom called itself, a container has no ``forward``, an encoder and a decoder are called one
after the other. Each part that is called by itself has its own observer; its sites have their names in the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from netvitals.anatomy import Anatomy
from netvitals.capture.engine.observer import Observer
from netvitals.capture.engine.schedule import Schedule
from netvitals.capture.engine.traced_pass import is_transformed
from netvitals.capture.recorder import Recorder
from netvitals.capture.site import Site

APART = "its parts are called one by one: what connects them is not known"


class Observers:
    """Observers of a model and of its parts, armed together; of each root the first pass of a step is measured.

    Args:
        model: what is watched; it may have no ``forward``.
        schedule: the vital signs to show the sites to.
        passive: look only at passes that autograd records, and also at parts that are called by themselves.

    >>> from netvitals.capture import Recorder, Schedule
    >>> from netvitals.vitals import Gates
    >>> schedule = Schedule([Gates()]); schedule.select(0)
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> roots = Observers(net, schedule, passive=True); roots.arm(Recorder(step=0))
    >>> loss = net(torch.ones(4, 2)).sum(); roots.disarm()
    >>> "1" in roots.sites
    True
    """

    def __init__(self, model: nn.Module, schedule: Schedule, *, passive: bool = True) -> None:
        self.model = model
        self.schedule = schedule
        self.whole = Observer(model, schedule, passive=passive)
        self.notes: dict[str, str] = {}  # what could not be measured for a reason that lies outside the model
        self._parts: dict[str, Observer] = {}
        self.also: Callable[[], None] | None = None  # done whenever hooks are taken away
        self._recorder: Recorder | None = None
        self.whole.withdraw = self._strip
        if passive:
            self.whole.outside = self._called

    @property
    def _all(self) -> list[tuple[str, Observer]]:
        return [("", self.whole), *self._parts.items()]

    # ---------------------------------------------------------------- what was seen

    @property
    def observed(self) -> bool:
        """A pass was seen since arming."""
        return any(o.observed for _, o in self._all)

    @property
    def compiled(self) -> str:
        """How a pass since arming ran in compiled code, and was not seen: ``inside`` or ``partly``; else ''."""
        return max(o.compiled for _, o in self._all)

    @property
    def raised(self) -> bool:
        """A pass since arming ended by an exception, and none has run through."""
        return any(o.raised for _, o in self._all) and not self.observed

    @property
    def passes(self) -> int:
        """Passes since arming, of the root that had most."""
        return max(o.passes for _, o in self._all)

    @property
    def sites(self) -> dict[str, Site]:
        return {site.name: site for name, o in self._all for site in (_named(name, s) for s in o.sites.values())}

    @property
    def specs(self) -> dict[str, str]:
        return {_place(name, site): spec for name, o in self._all for site, spec in o.specs.items()}

    @property
    def skipped(self) -> dict[str, str]:
        """Place → why it could not be measured."""
        apart = {"anatomy": APART} if self._parts and not self.whole.sites else {}
        found = {_place(name, place): why for name, o in self._all for place, why in o.skipped.items()}
        return {**found, **apart, **self.notes}

    @property
    def anatomy(self) -> Anatomy | None:
        return self.whole.anatomy

    @property
    def modules(self) -> dict[str, nn.Module]:
        return self.whole.modules

    # ---------------------------------------------------------------- passes

    def arm(self, recorder: Recorder) -> None:
        """Look at the next pass and write to ``recorder``."""
        self._recorder = recorder
        for _, observer in self._all:
            observer.arm(recorder)

    def disarm(self) -> None:
        """Take every hook away again."""
        self._recorder = None
        if self.also is not None:
            self.also()
        for _, observer in self._all:
            observer.disarm()

    def _strip(self) -> None:
        for _, observer in self._all:
            observer.strip()

    def _called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A part begins to run, and the model does not."""
        if not torch.is_grad_enabled() or is_transformed() or self.compiled or any(o.running for _, o in self._all):
            return
        if torch._C._current_graph_task_id() != -1:  # a checkpointed part runs again in the backward pass
            return
        name = self.whole.name_of(module)
        if self._recorder is None or not name or self.whole.has_met(name):
            return
        if any(name == known or name.startswith(f"{known}.") for known in self._parts):
            return
        for known in [k for k in self._parts if k.startswith(f"{name}.")]:
            self._parts.pop(known).disarm()
        observer = self._parts[name] = Observer(module, self.schedule, prefix=f"{name}.")
        observer.withdraw = self._strip
        observer.arm(self._recorder)
        observer.enter(module, args, kwargs)


def _named(root: str, site: Site) -> Site:
    return replace(site, name=_place(root, site.name), module=_place(root, site.module or "model")) if root else site


def _place(root: str, name: str) -> str:
    """The name in the model of a place in a part of it.

    >>> _place("encoder", "0.weight"), _place("encoder", "model"), _place("", "0")
    ('encoder.0.weight', 'encoder', '0')
    """
    return (root if name == "model" else f"{root}.{name}") if root else name
