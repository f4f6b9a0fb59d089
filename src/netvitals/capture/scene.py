"""The scene of one pass: which calls are running, what produced which tensor, which sites were met and shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.capture.panel import Panel, SiteSight, aside, say
from netvitals.capture.parts import Part
from netvitals.capture.reading import Sheet
from netvitals.capture.sight import ActivationSight, LinearSight, TensorSight
from netvitals.capture.site import Kind, Site, Unseen
from netvitals.capture.trail import UNKNOWN, Origin, Trail, channel_dim


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
    """Names the sites of a pass in the order they come, and shows each to the vital signs at once."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self.sites: dict[str, Site] = {}
        self.unseen: dict[str, Unseen] = {}
        self.frames: list[Frame] = []
        self.trail = Trail()
        self.blind = True       # inside a module that is looked at as a whole, or no pass is going on
        self.sheet: Sheet | None = None
        self._counts: dict[str, int] = {}

    def begin(self, inputs: Any) -> None:
        self._counts.clear()
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
                   f: Callable[[Tensor], Any]) -> None:
        if not isinstance(value, Tensor) or value.shape != x.shape:
            self.cannot_see(Unseen(name, "its output has another shape than its input"))
            return
        site = self._site(name, "activation", op, origin, owner, channel_dim(x, origin.channel_dim))
        self.trail.mark(value, "other", origin.channel_dim)
        self._show("activation", ActivationSight(site, x.detach(), value.detach(), f), value)

    def linear(self, name: str, module: nn.Module, x: Tensor, origin: Origin, value: Tensor, dim: int) -> None:
        self.trail.mark(value, "linear", dim)
        site = self._site(name, "linear", type(module).__name__, origin, name, channel_dim(value, dim))
        self._show("linear", LinearSight(site, x.detach(), value.detach(), module), value)

    def tensor(self, name: str, kind: Kind, op: str, origin: Origin, value: Tensor, owner: str,
               module: nn.Module | None = None) -> None:
        dim = channel_dim(value, self.trail.origin(value).channel_dim)
        self._show("tensor", TensorSight(self._site(name, kind, op, origin, owner, dim), value.detach(), module), value)

    def _site(self, name: str, kind: Kind, op: str, origin: Origin, owner: str, dim: int) -> Site:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        if count > 1:
            name = f"{name}#{count}"
        known = self.sites.get(name)
        if known is None or (known.kind, known.op, known.follows, known.channel_dim) != (kind, op, origin.follows, dim):
            known = self.sites[name] = Site(name, kind, op, origin.follows, dim, owner)
        return known

    # ---------------------------------------------------------------- showing

    def _show(self, method: str, sight: SiteSight, value: Tensor) -> None:
        sheet = self.sheet
        if sheet is None:
            return
        if self.panel.wants(method):
            with aside():
                self.panel.show(method, sheet, sight)
        if value.requires_grad and self.panel.wants("gradient"):
            self._await_gradient(sheet, sight, value)

    def _await_gradient(self, sheet: Sheet, sight: SiteSight, value: Tensor) -> None:
        kept = [t for t in (getattr(sight, key, None) for key in ("x", "a", "y", "value")) if t is not None]
        versions = [t._version for t in kept]
        waiting = True

        def arrived(g: Tensor) -> None:
            nonlocal waiting
            if not waiting or self.sheet is not sheet:
                return
            waiting = False         # a second backward pass through the same graph is not looked at
            if [t._version for t in kept] != versions:
                self.cannot_see(Unseen(sight.site.name + " (gradient)",
                                       "its tensor was overwritten in place before the gradient arrived"))
                return
            with aside():
                self.panel.show("gradient", sheet, sight, g.detach())

        with torch._C.DisableTorchFunction():
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
