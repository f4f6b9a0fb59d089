"""The scene of one pass: which calls are running, what produced which tensor, which sites were met and shown."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from torch import Tensor, nn

from netvitals.capture.engine.gathering import Gathering, Place, intact, sight_versions
from netvitals.capture.engine.panel import Panel, SiteSight, aside, say
from netvitals.capture.engine.parts import Part
from netvitals.capture.engine.trail import UNKNOWN, Origin, Trail, channel_dim
from netvitals.capture.reading import Sheet
from netvitals.capture.sight import ActivationSight, LinearSight, TensorSight
from netvitals.capture.site import Kind, Site, Unseen


class Frame:
    """One running call of a module."""

    __slots__ = ("added", "f", "module", "origin", "part", "x")

    def __init__(self, module: nn.Module, part: Part) -> None:
        self.module = module
        self.part = part
        self.added = False          # an addition of two activations happened in this forward itself
        self.x: Tensor | None = None
        self.origin = UNKNOWN       # what produced x
        self.f: Callable[[Tensor], Tensor] | None = None


class Scene:
    """Names the sites of a pass in the order they come, and shows each to the vital signs at once.

    Its methods are called inside :class:`~netvitals.capture.panel.aside`.
    """

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self.sites: dict[str, Site] = {}
        self.unseen: dict[str, Unseen] = {}
        self.frames: list[Frame] = []
        self.trail = Trail()
        self.blind = True       # inside a module that is looked at as a whole, or no pass is going on
        self.sheet: Sheet | None = None
        self.gathering = Gathering()
        self.short = False      # the pass goes only to sites that are known already
        self.expected: int | None = None        # how many of them it should meet
        self.strayed = False    # it met others
        self._counts: dict[str, int] = {}

    def begin(self, inputs: Any) -> None:
        self._counts.clear()
        self.gathering.clear()
        self.trail.clear()
        for tensor in tensors(inputs):
            self.trail.mark(tensor, "input")
        self.blind = False

    def end(self) -> None:
        self.frames.clear()
        self.trail.clear()
        self.blind = True

    def cannot_see(self, unseen: Unseen) -> None:
        self.unseen.setdefault(unseen.name, unseen)

    def give_up(self, error: Exception) -> None:
        """An error of our own: say it, look no further in this pass, let training go on."""
        where = self.frames[-1].part.name if self.frames else ""
        self.blind = True
        self.sheet = None
        say(f"looking at {where or 'the model'!r} failed ({type(error).__name__}: {error}); this pass is not measured")

    # ---------------------------------------------------------------- sites

    def activation(self, name: str, op: str, owner: str, x: Tensor, origin: Origin, value: Any,
                   f: Callable[[Tensor], Any], alike: Hashable = None) -> None:
        if not isinstance(value, Tensor) or value.shape != x.shape:
            self.cannot_see(Unseen(name, "its output has another shape than its input"))
            return
        site = self._site(name, "activation", op, origin, owner, x, origin.channel_dim)
        if site is None:
            return
        if not self.short:
            self.trail.mark(value, "other", origin.channel_dim)
        self._show("activation", ActivationSight(site, x.detach(), value.detach(), f, alike, self.gathering.room),
                   value)

    def linear(self, name: str, module: nn.Module, x: Tensor, origin: Origin, value: Tensor, dim: int) -> None:
        if not self.short:
            self.trail.mark(value, "linear", dim)
        site = self._site(name, "linear", type(module).__name__, origin, name, value, dim)
        if site is None:
            return
        self._show("linear", LinearSight(site, x.detach(), value.detach(), module), value)

    def tensor(self, name: str, kind: Kind, op: str, origin: Origin, value: Tensor, owner: str,
               module: nn.Module | None = None) -> None:
        site = self._site(name, kind, op, origin, owner, value, self.trail.origin(value).channel_dim)
        if site is not None:
            self._show(f"tensor of {kind}", TensorSight(site, value.detach(), module, self.gathering.room), value)

    def _site(self, name: str, kind: Kind, op: str, origin: Origin, owner: str, tensor: Tensor,
              layout: int | None) -> Site | None:
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

    def _show(self, method: str, sight: SiteSight, value: Tensor) -> None:
        sheet, panel = self.sheet, self.panel
        if sheet is None:
            return
        place = self.gathering.place(sight, panel) if isinstance(sight, ActivationSight) else None
        alone = False if place is not None else None        # who takes stacks will see it in one
        if panel.wants(method, together=alone):
            panel.show(method, sheet, sight, together=alone)
        if value.requires_grad and panel.wants(f"gradient of {sight.site.kind}"):
            self._await_gradient(sheet, sight, value, place)

    def show_gathered(self) -> None:
        """The forward pass is over: show what was gathered for stacks."""
        if self.short and self.expected is not None and sum(self._counts.values()) != self.expected:
            self.strayed = True
        if self.sheet is not None:
            self.gathering.show(self.panel, self.sheet, self.cannot_see)

    def settle(self) -> None:
        """The backward pass is over: show the gradients of stacks that are not complete."""
        if self.sheet is not None:
            self.gathering.settle(self.panel, self.sheet)

    def _await_gradient(self, sheet: Sheet, sight: SiteSight, value: Tensor, place: Place | None) -> None:
        panel, method = self.panel, f"gradient of {sight.site.kind}"
        versions = sight_versions(sight)
        waiting = True

        def arrived(g: Tensor) -> None:
            nonlocal waiting
            if not waiting or self.sheet is not sheet:
                return
            waiting = False         # a second backward pass through the same graph is not looked at
            alone = None
            with aside():
                if place is not None and panel.wants(method, together=True):
                    self.gathering.gradient(place, g, panel, sheet)
                    alone = False
                if panel.wants(method, together=alone):
                    shown = intact(sight, versions)
                    if shown is not None:
                        panel.show(method, sheet, shown, g.detach(), together=alone)
                    else:
                        self.cannot_see(Unseen(sight.site.name + " (gradient)",
                                               "its tensor was overwritten in place before the gradient arrived"))

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
