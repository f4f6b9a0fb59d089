"""Gathering like activations of one pass, so that they can be looked at together when it ends.

A site is gathered only from its second look on, when it is known that nothing overwrites its tensors before the pass
ends; big tensors never are: they would be copied, and there is nothing to gain.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from netvitals.capture.engine.schedule import Schedule, SiteView
from netvitals.capture.reading import Recorder
from netvitals.capture.stack import ActivationStack, GatheredStack, Scratch
from netvitals.capture.views import ActivationView, LinearView, channel_view

LARGEST = 1 << 16  # elements of a site that is gathered
TOGETHER = 1 << 20  # elements of a stack
KEPT = 8  # stacks of a pass whose memory is kept from look to look


@dataclass
class Place:
    """A site's place in a stack that is yet to be made."""

    view: ActivationView
    versions: tuple[int, ...]
    bundle: Bundle | None = None
    index: int = 0


@dataclass
class Bundle:
    """A stack and the gradients that have arrived for it."""

    stack: ActivationStack
    dim: int
    gradients: dict[int, Tensor] = field(default_factory=dict)
    shown: bool = False


class Gathering:
    """The like activations of one pass."""

    def __init__(self) -> None:
        self._calm: set[str] = set()  # sites whose tensors outlive the pass unchanged
        self._tried: list[Place] = []
        self._groups: dict[Hashable, list[Place]] = {}
        self._bundles: list[Bundle] = []
        self.memory = Scratch()

    def clear(self) -> None:
        self._tried, self._groups, self._bundles = [], {}, []

    def place(self, view: ActivationView, schedule: Schedule) -> Place | None:
        """Where this view is gathered, if it is; a site that is met for the first time is only tried."""
        x, site = view.x, view.site
        if (
            view.alike is None
            or x.numel() > LARGEST
            or not (
                schedule.wants("activation", takes_stacks=True)
                or schedule.wants("gradient of activation", takes_stacks=True)
            )
        ):
            return None
        place = Place(view, view_versions(view))
        if site.name not in self._calm:
            self._tried.append(place)
            return None
        key = (view.alike, x.shape, x.dtype, x.device, site.channel_dim)
        self._groups.setdefault(key, []).append(place)
        return place

    def show(self, schedule: Schedule, recorder: Recorder, cannot_see: Callable[[str, str], None]) -> None:
        """At the end of a forward pass: make the stacks, and show them."""
        self._calm.update(p.view.site.name for p in self._tried if _unchanged(p))
        self._tried = []
        groups, self._groups = self._groups, {}
        for group in groups.values():
            for place in [p for p in group if not _unchanged(p)]:
                self._calm.discard(place.view.site.name)
                cannot_see(place.view.site.name, "its tensor was overwritten in place on one measured step")
                group.remove(place)
            if not group:
                continue
            most = max(1, TOGETHER // group[0].view.x.numel())
            for start in range(0, len(group), most):
                self._bundle(group[start : start + most], schedule, recorder)

    def _bundle(self, places: list[Place], schedule: Schedule, recorder: Recorder) -> None:
        views = [p.view for p in places]
        first = views[0]
        x, a = ([channel_view(getattr(s, key), first.site.channel_dim) for s in views] for key in ("x", "a"))
        stack = GatheredStack(
            tuple(s.site for s in views),
            x,
            a,
            first.f,
            tuple(first.x.shape),
            first.x.dtype,
            self.memory,
            len(self._bundles) if len(self._bundles) < KEPT else None,
        )
        if schedule.wants("gradient of activation", takes_stacks=True):
            _ = stack.x, stack.a  # now: when the gradient arrives they may have been overwritten
        bundle = Bundle(stack, first.site.channel_dim)
        for index, place in enumerate(places):
            place.bundle, place.index = bundle, index
        self._bundles.append(bundle)
        schedule.show("activation", recorder, bundle.stack, takes_stacks=True)

    def gradient(self, place: Place, g: Tensor, schedule: Schedule, recorder: Recorder) -> None:
        """A gradient has arrived; when it was the last one of its stack, the stack is shown."""
        bundle = place.bundle
        if bundle is None:
            return
        bundle.gradients[place.index] = g.detach()
        if len(bundle.gradients) == len(bundle.stack.sites):
            self._show_gradients(bundle, schedule, recorder)

    def settle(self, schedule: Schedule, recorder: Recorder) -> None:
        """No more gradients will come: show the stacks that wait for some."""
        for bundle in self._bundles:
            if bundle.gradients and not bundle.shown:
                self._show_gradients(bundle, schedule, recorder)
        self._bundles = []

    def _show_gradients(self, bundle: Bundle, schedule: Schedule, recorder: Recorder) -> None:
        bundle.shown = True
        indices = sorted(bundle.gradients)
        g = torch.stack([channel_view(bundle.gradients[i], bundle.dim) for i in indices])
        schedule.show("gradient of activation", recorder, bundle.stack.some(indices), g, takes_stacks=True)
        bundle.gradients = {}


def view_versions(view: SiteView) -> tuple[int, ...]:
    """How often each tensor of a view was written to so far."""
    if isinstance(view, ActivationView):
        return view.x._version, view.a._version
    return (view.x._version, view.y._version) if isinstance(view, LinearView) else (view.value._version,)


def intact(view: SiteView, versions: tuple[int, ...]) -> SiteView | None:
    """The view if its tensors are as they were; a layer without its output if only that was overwritten."""
    now = view_versions(view)
    if now == versions:
        return view
    if isinstance(view, LinearView) and now[0] == versions[0]:
        return LinearView(view.site, view.x, Overwritten(), view.module)  # type: ignore[arg-type]
    return None


class Overwritten:
    """Stands for a tensor that an operation in place has destroyed."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("the output of this layer was overwritten in place before its gradient arrived")


def _unchanged(place: Place) -> bool:
    return view_versions(place.view) == place.versions
