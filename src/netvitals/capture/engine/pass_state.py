"""The scene of one pass: which calls are running, what produced which tensor, which sites were met and shown."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from torch import Tensor, nn

from netvitals.capture.engine.gathering import Gathering, Place, intact, view_versions
from netvitals.capture.engine.modules import ModuleInfo
from netvitals.capture.engine.provenance import UNKNOWN, Origin, Provenance, channel_dim
from netvitals.capture.engine.schedule import Schedule, SiteView, detached_context, warn
from netvitals.capture.reading import Recorder
from netvitals.capture.site import Kind, Site
from netvitals.capture.views import ActivationView, LinearView, TensorView


class Frame:
    """One running call of a module."""

    __slots__ = ("added", "f", "module", "module_info", "origin", "x")

    def __init__(self, module: nn.Module, module_info: ModuleInfo) -> None:
        self.module = module
        self.module_info = module_info
        self.added = False  # an addition of two activations happened in this forward itself
        self.x: Tensor | None = None
        self.origin = UNKNOWN  # what produced x
        self.f: Callable[[Tensor], Tensor] | None = None


class PassState:
    """Names the sites of a pass in the order they come, and shows each to the vital signs at once.

    Its methods are called inside :class:`~netvitals.capture.panel.aside`.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.sites: dict[str, Site] = {}
        self.skipped: dict[str, str] = {}  # place → why it could not be looked at
        self.frames: list[Frame] = []
        self.provenance = Provenance()
        self.blind = True  # inside a module that is looked at as a whole, or no pass is going on
        self.recorder: Recorder | None = None
        self.gathering = Gathering()
        self.short = False  # the pass goes only to sites that are known already
        self.expected: int | None = None  # how many of them it should meet
        self.strayed = False  # it met others
        self._counts: dict[str, int] = {}

    def begin(self, inputs: Any) -> None:
        self._counts.clear()
        self.gathering.clear()
        self.provenance.clear()
        for tensor in tensors(inputs):
            self.provenance.mark(tensor, "input")
        self.blind = False

    def end(self) -> None:
        self.frames.clear()
        self.provenance.clear()
        self.blind = True

    def cannot_see(self, place: str, reason: str) -> None:
        self.skipped.setdefault(place, reason)

    def give_up(self, error: Exception) -> None:
        """An error of our own: say it, look no further in this pass, let training go on."""
        where = self.frames[-1].module_info.name if self.frames else ""
        self.blind = True
        self.recorder = None
        warn(f"looking at {where or 'the model'!r} failed ({type(error).__name__}: {error}); this pass is not measured")

    # ---------------------------------------------------------------- sites

    def activation(
        self,
        name: str,
        op: str,
        owner: str,
        x: Tensor,
        origin: Origin,
        value: Any,
        f: Callable[[Tensor], Any],
        alike: Hashable = None,
    ) -> None:
        if not isinstance(value, Tensor) or value.shape != x.shape:
            self.cannot_see(name, "its output has another shape than its input")
            return
        site = self._site(name, "activation", op, origin, owner, x, origin.channel_dim)
        if site is None:
            return
        if not self.short:
            self.provenance.mark(value, "other", origin.channel_dim)
        self._show(
            "activation", ActivationView(site, x.detach(), value.detach(), f, alike, self.gathering.memory), value
        )

    def linear(self, name: str, module: nn.Module, x: Tensor, origin: Origin, value: Tensor, dim: int) -> None:
        if not self.short:
            self.provenance.mark(value, "linear", dim)
        site = self._site(name, "linear", type(module).__name__, origin, name, value, dim)
        if site is None:
            return
        self._show("linear", LinearView(site, x.detach(), value.detach(), module), value)

    def tensor(
        self, name: str, kind: Kind, op: str, origin: Origin, value: Tensor, owner: str, module: nn.Module | None = None
    ) -> None:
        site = self._site(name, kind, op, origin, owner, value, self.provenance.origin(value).channel_dim)
        if site is not None:
            self._show(f"tensor of {kind}", TensorView(site, value.detach(), module, self.gathering.memory), value)

    def _site(
        self, name: str, kind: Kind, op: str, origin: Origin, owner: str, tensor: Tensor, layout: int | None
    ) -> Site | None:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        if count > 1:
            name = f"{name}#{count}"
        known = self.sites.get(name)
        if self.short:
            self.strayed = self.strayed or known is None
            return known
        dim = channel_dim(tensor, layout)
        if known is None or (known.kind, known.op, known.follows, known.channel_dim) != (kind, op, origin.follows, dim):
            known = self.sites[name] = Site(name, kind, op, origin.follows, dim, owner)
        return known

    # ---------------------------------------------------------------- showing

    def _show(self, method: str, view: SiteView, value: Tensor) -> None:
        recorder, schedule = self.recorder, self.schedule
        if recorder is None:
            return
        place = self.gathering.place(view, schedule) if isinstance(view, ActivationView) else None
        alone = False if place is not None else None  # who takes stacks will see it in one
        if schedule.wants(method, takes_stacks=alone):
            schedule.show(method, recorder, view, takes_stacks=alone)
        if value.requires_grad and schedule.wants(f"gradient of {view.site.kind}"):
            self._await_gradient(recorder, view, value, place)

    def show_gathered(self) -> None:
        """The forward pass is over: show what was gathered for stacks."""
        if self.short and self.expected is not None and sum(self._counts.values()) != self.expected:
            self.strayed = True
        if self.recorder is not None:
            self.gathering.show(self.schedule, self.recorder, self.cannot_see)

    def settle(self) -> None:
        """The backward pass is over: show the gradients of stacks that are not complete."""
        if self.recorder is not None:
            self.gathering.settle(self.schedule, self.recorder)

    def _await_gradient(self, recorder: Recorder, view: SiteView, value: Tensor, place: Place | None) -> None:
        schedule, method = self.schedule, f"gradient of {view.site.kind}"
        versions = view_versions(view)
        waiting = True

        def arrived(g: Tensor) -> None:
            nonlocal waiting
            if not waiting or self.recorder is not recorder:
                return
            waiting = False  # a second backward pass through the same graph is not looked at
            alone = None
            with detached_context():
                if place is not None and schedule.wants(method, takes_stacks=True):
                    self.gathering.gradient(place, g, schedule, recorder)
                    alone = False
                if schedule.wants(method, takes_stacks=alone):
                    shown = intact(view, versions)
                    if shown is not None:
                        schedule.show(method, recorder, shown, g.detach(), takes_stacks=alone)
                    else:
                        self.cannot_see(
                            view.site.name + " (gradient)",
                            "its tensor was overwritten in place before the gradient arrived",
                        )

        value.register_hook(arrived)


def tensors(nest: Any, depth: int = 4) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and dicts."""
    if isinstance(nest, Tensor):
        yield nest
    elif depth and isinstance(nest, dict):
        for item in nest.values():
            yield from tensors(item, depth - 1)
    elif depth and isinstance(nest, list | tuple):
        for item in nest:
            yield from tensors(item, depth - 1)
