"""The state of one pass: which calls are running, what produced which tensor, which sites were met and shown."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import Tensor, nn

from netvitals.capture.engine.modules import ModuleInfo
from netvitals.capture.engine.route import Route
from netvitals.capture.engine.schedule import Schedule, SiteView, detached_context, warn
from netvitals.capture.reading import Recorder
from netvitals.capture.site import Follows, Kind, Site
from netvitals.capture.views import ActivationView, LinearView, TensorView


class Origin(NamedTuple):
    """What produced a tensor, and its dimension of channels where that is known."""

    follows: Follows = "other"
    channel_dim: int | None = None


UNKNOWN = Origin()


class Provenance:
    """Remembers the origin of live tensors without keeping them alive.

    >>> import torch
    >>> provenance, x = Provenance(), torch.zeros(2, 3)
    >>> provenance.mark(x, "input")
    >>> provenance.origin(x).follows, provenance.origin(torch.zeros(1)).follows
    ('input', 'other')
    """

    def __init__(self) -> None:
        self._marks: dict[int, tuple[weakref.ref[Tensor], Origin]] = {}

    def mark(self, tensor: Tensor, follows: Follows, channel_dim: int | None = None) -> None:
        self._marks[id(tensor)] = (weakref.ref(tensor), Origin(follows, channel_dim))

    def origin(self, tensor: Tensor) -> Origin:
        mark = self._marks.get(id(tensor))
        # the id of a tensor that is gone may belong to another one by now
        return mark[1] if mark is not None and mark[0]() is tensor else UNKNOWN

    def clear(self) -> None:
        self._marks.clear()


def channel_dim(tensor: Tensor, known: int | None) -> int:
    """The dimension of channels: as the producing layer says, else 1 for 2-D and images, the last for (B, T, F)."""
    if tensor.ndim <= 2:
        return min(1, tensor.ndim - 1) if tensor.ndim else 0
    if known is not None:
        return known
    return -1 if tensor.ndim == 3 else 1


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

    Its methods are called inside :class:`~netvitals.capture.engine.schedule.detached_context`.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.sites: dict[str, Site] = {}
        self.skipped: dict[str, str] = {}  # place → why it could not be looked at
        self.frames: list[Frame] = []
        self.provenance = Provenance()
        self.route = Route(self.sites)
        self.blind = True  # inside a module that is looked at as a whole, or no pass is going on
        self.recorder: Recorder | None = None
        self._counts: dict[str, int] = {}

    def begin(self, inputs: Any) -> None:
        self.route.begin()
        self._counts.clear()
        self.provenance.clear()
        for tensor in tensors(inputs):
            self.provenance.mark(tensor, "input")
        self.blind = False

    def complete(self) -> None:
        """The forward pass has come to its end."""
        self.route.end(sum(self._counts.values()))
        self.end()

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
        self, name: str, op: str, owner: str, x: Tensor, origin: Origin, value: Any, f: Callable[[Tensor], Any]
    ) -> None:
        if not isinstance(value, Tensor) or value.shape != x.shape:
            self.cannot_see(name, "its output has another shape than its input")
            return
        site = self._site(name, "activation", op, origin, owner, x, origin.channel_dim)
        self.mark(value, "other", origin.channel_dim)
        if site is not None:
            self._show("activation", ActivationView(site, x.detach(), value.detach(), f), value)

    def linear(self, name: str, module: nn.Module, x: Tensor, origin: Origin, value: Tensor, dim: int) -> None:
        self.mark(value, "linear", dim)
        site = self._site(name, "linear", type(module).__name__, origin, name, value, dim)
        if site is not None:
            self._show("linear", LinearView(site, x.detach(), value.detach(), module), value)

    def tensor(
        self, name: str, kind: Kind, op: str, origin: Origin, value: Tensor, owner: str, module: nn.Module | None = None
    ) -> None:
        site = self._site(name, kind, op, origin, owner, value, self.provenance.origin(value).channel_dim)
        if site is not None:
            self._show(f"tensor of {kind}", TensorView(site, value.detach(), module), value)

    def mark(self, value: Tensor, follows: Follows, channel_dim: int | None = None) -> None:
        """Note what produced a tensor; on a short pass every site knows that already."""
        if not self.route.short:
            self.provenance.mark(value, follows, channel_dim)

    def _site(
        self, name: str, kind: Kind, op: str, origin: Origin, owner: str, tensor: Tensor, layout: int | None
    ) -> Site | None:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        if count > 1:
            name = f"{name}#{count}"
        known = self.sites.get(name)
        if self.route.short:
            if known is None:
                self.route.stray()
            return known
        dim = channel_dim(tensor, layout)
        if known is None or (known.kind, known.op, known.follows, known.channel_dim) != (kind, op, origin.follows, dim):
            known = self.sites[name] = Site(
                name=name, kind=kind, op=op, follows=origin.follows, channel_dim=dim, module=owner
            )
        return known

    # ---------------------------------------------------------------- showing

    def _show(self, method: str, view: SiteView, value: Tensor) -> None:
        recorder, schedule = self.recorder, self.schedule
        if recorder is None:
            return
        schedule.show(method, recorder, view)
        if value.requires_grad and schedule.wants(f"gradient of {view.site.kind}"):
            self._await_gradient(recorder, view, value)

    def _await_gradient(self, recorder: Recorder, view: SiteView, value: Tensor) -> None:
        method, versions = f"gradient of {view.site.kind}", _versions(view)
        waiting = True

        def arrived(g: Tensor) -> None:
            nonlocal waiting
            if not waiting or self.recorder is not recorder:
                return
            waiting = False  # a second backward pass through the same graph is not looked at
            shown = _intact(view, versions)
            if shown is None:
                why = "its tensor was overwritten in place before the gradient arrived"
                self.cannot_see(view.site.name + " (gradient)", why)
                return
            with detached_context():
                self.schedule.show(method, recorder, shown, g.detach())

        value.register_hook(arrived)


def _versions(view: SiteView) -> tuple[int, ...]:
    """How often each tensor of a view was written to so far."""
    if isinstance(view, ActivationView):
        return view.x._version, view.a._version
    return (view.x._version, view.y._version) if isinstance(view, LinearView) else (view.value._version,)


def _intact(view: SiteView, versions: tuple[int, ...]) -> SiteView | None:
    """The view if its tensors are as they were; a layer without its output if only that was overwritten."""
    now = _versions(view)
    if now == versions:
        return view
    if isinstance(view, LinearView) and now[0] == versions[0]:
        return LinearView(view.site, view.x, Overwritten(), view.module)  # type: ignore[arg-type]
    return None


class Overwritten:
    """Stands for a tensor that an operation in place has destroyed."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("the output of this layer was overwritten in place before its gradient arrived")


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
