"""The state of one pass: which calls are running, which sites were met, and how each is shown to the vital signs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from netvitals._help import hint
from netvitals.anatomy import Anatomy
from netvitals.capture.channels import Stacks
from netvitals.capture.engine.hook import Hook
from netvitals.capture.engine.modules import ModuleInfo
from netvitals.capture.engine.pass_plan import PassPlan
from netvitals.capture.engine.planning.origins import Origin
from netvitals.capture.engine.planning.plan import Plan
from netvitals.capture.engine.schedule import Schedule, SiteView, detached_context, warn
from netvitals.capture.recorder import Recorder
from netvitals.capture.shards import local
from netvitals.capture.site import Kind, Site
from netvitals.capture.views import ActivationView, HeadsView, LinearView, ProductView, RouterView, TensorView

Await = Callable[[Callable[[Tensor], None]], None]  # has a function called with the gradient when it arrives


def channel_dim(tensor: Tensor, known: int | None) -> int:
    """The dimension of channels: as the producing layer says, else 1 for 2-D and images, the last for (B, T, F)."""
    if tensor.ndim <= 2:
        return min(1, tensor.ndim - 1) if tensor.ndim else 0
    if known is not None:
        return known
    return -1 if tensor.ndim == 3 else 1


class Frame:
    """One running call of a module."""

    __slots__ = ("call", "f", "hidden", "module", "module_info", "x")

    def __init__(self, module: nn.Module, module_info: ModuleInfo, call: int, hidden: bool = False) -> None:
        self.module = module
        self.module_info = module_info
        self.call = call
        self.hidden = hidden  # it runs inside a part that is measured as a whole
        self.x: Tensor | None = None
        self.f: Callable[[Tensor], Tensor] | None = None

    @property
    def site(self) -> str:
        name = self.module_info.name or "model"
        return name if self.call == 1 else f"{name}#{self.call}"


class PassState:
    """Knows the sites of a model and shows them; its methods are called inside
    :class:`~netvitals.capture.engine.schedule.detached_context`."""

    def __init__(self, schedule: Schedule, prefix: str = "") -> None:
        self.schedule = schedule
        self.prefix = prefix  # of the names of sites, where they are shown
        self.ever_called: set[str] = set()  # modules, in any pass
        self.sites: dict[str, Site] = {}
        self.present: dict[str, Site] = {}  # those that the last traced pass met
        self.specs: dict[str, str] = {}  # what is known of activations that are no modules
        self.skipped: dict[str, str] = {}  # place → why it could not be measured
        self.plan = Plan()
        self.anatomy: Anatomy | None = None  # as the last traced pass showed it, without its tensors
        self.time_first: frozenset[tuple[int, ...]] = frozenset()  # (positions, examples), where in that order
        self.frames: list[Frame] = []
        self.route = PassPlan(self.present)
        self.recorder: Recorder | None = None
        self.met = 0
        self._calls: dict[str, int] = {}
        self._stacks = Stacks()

    @property
    def found_by_operations(self) -> dict[str, str]:
        """Name → kind of the sites that the plan finds by their operations."""
        return {extra.site: extra.kind for extra in self.plan.extras}

    def begin(self) -> None:
        self.route.begin()
        self._calls.clear()
        self.met = 0

    def end(self) -> None:
        self.frames.clear()

    def called(self, name: str) -> int:
        """Which call of a module begins, or has come to its end where nobody saw it begin."""
        count = self._calls[name] = self._calls.get(name, 0) + 1
        if count == 1:
            self.ever_called.add(name)
        return count

    def cannot_see(self, place: str, reason: str) -> None:
        self.skipped.setdefault(place, reason)

    def give_up(self, error: Exception) -> None:
        """An error of our own: say it, look no further in this pass, let training go on."""
        where = self.frames[-1].module_info.name if self.frames else ""
        self.recorder = None
        warn(
            f"measuring {where or 'the model'!r} failed ({type(error).__name__}: {error}); the rest of this forward "
            "pass is not measured",
            "measurement-failed",
        )

    # ---------------------------------------------------------------- sites

    def activation(
        self, site: Site, x: Tensor, value: Tensor, f: Callable[[Tensor], Any], gradient: Await | None
    ) -> None:
        if value.shape != x.shape:
            self.cannot_see(site.name, "its output has a different shape from its input")
            self.sites.pop(site.name, None)
            self.present.pop(site.name, None)
            return
        if (own := self._own(site, x, value)) is not None:
            self._show("activation", ActivationView(site, own[0], own[1], f, self._stacks), gradient)

    def product(self, site: Site, first: Tensor, second: Tensor, gradient: Await | None) -> None:
        if (own := self._own(site, first, second)) is not None:
            self._show("product", ProductView(site, own[0], own[1]), gradient)

    def view(self, method: str, view: HeadsView | RouterView) -> None:
        """Show what has no gradient of its own."""
        self._show(method, view, None)

    def linear(self, site: Site, x: Tensor, value: Tensor, module: nn.Module, gradient: Await | None) -> None:
        if (own := self._own(site, x, value)) is not None:
            self._show("linear", LinearView(site, own[0], own[1], module), gradient)

    def tensor(self, site: Site, value: Tensor, module: nn.Module | None, gradient: Await | None) -> None:
        if (own := self._own(site, value)) is not None:
            self._show(f"tensor of {site.kind}", TensorView(site, own[0], module), gradient)

    def _own(self, site: Site, *given: Tensor) -> list[Tensor] | None:
        """What this rank holds of the tensors, off the graph; None where that is a sum which is not added up yet."""
        found = [t.detach() for t in given]
        if any(type(t) is not Tensor for t in found):
            try:
                found = [local(t) for t in found]
            except ValueError as error:
                self.cannot_see(site.name, str(error))
                return None
        return found

    def known(self, name: str) -> Site | None:
        """A site that an earlier pass has met."""
        self.met += 1
        site = self.present.get(name)
        if site is None:
            self.route.stray()
        return site

    def site(
        self,
        name: str,
        kind: Kind,
        op: str,
        origin: Origin,
        owner: str,
        tensor: Tensor,
        dim: int | None,
        role: str = "",
    ) -> Site:
        """A site as a traced pass finds it."""
        found = Site(
            name=name,
            kind=kind,
            op=op,
            follows=origin.follows,
            channel_dim=channel_dim(tensor, dim),
            module=owner,
            batch_dim=int(tensor.ndim == 3 and tuple(tensor.shape[:2]) in self.time_first),
            role=role,
        )
        if self.sites.get(name) != found:
            self.sites[name] = found
        self.present[name] = self.sites[name]
        return found

    # ---------------------------------------------------------------- showing

    def _show(self, method: str, view: SiteView, gradient: Await | None) -> None:
        recorder, schedule = self.recorder, self.schedule
        if recorder is None:
            return
        if self.prefix:
            module = f"{self.prefix}{view.site.module}".rstrip(".")
            root = self.prefix.rstrip(".")
            name = root if view.site.name == "model" else f"{self.prefix}{view.site.name}"
            view.site = replace(view.site, name=name, module=module)
        schedule.show(method, recorder, view)
        if gradient is not None and schedule.wants(f"gradient of {view.site.kind}"):
            self._await_gradient(recorder, view, gradient)

    def _await_gradient(self, recorder: Recorder, view: SiteView, gradient: Await) -> None:
        method, versions = f"gradient of {view.site.kind}", _versions(view)
        waiting = True

        def arrived(g: Tensor) -> None:
            nonlocal waiting
            if not waiting or self.recorder is not recorder:
                return
            waiting = False  # a second backward pass through the same graph is not measured
            shown = _intact(view, versions)
            if shown is None:
                why = "its tensor was overwritten in place before the gradient was computed"
                self.cannot_see(view.site.name.removeprefix(self.prefix) + " (gradient)", why)
                return
            own = self._own(view.site, g)
            if own is not None:
                with detached_context():
                    self.schedule.show(method, recorder, shown, *own)

        gradient(arrived)


def when_arrives(value: Tensor) -> Await | None:
    """How to wait for the gradient of a tensor."""
    if not value.requires_grad:
        return None

    def wait(arrived: Callable[[Tensor], None]) -> None:
        value.register_hook(Hook(arrived))

    return wait


def when_leaves(node: tuple[Any, int] | None) -> Await | None:
    """How to wait for the gradient of what a node of autograd's graph made, also if it was overwritten since."""
    if node is None:
        return None
    made, number = node

    def wait(arrived: Callable[[Tensor], None]) -> None:
        def before(gradients: tuple[Tensor | None, ...]) -> None:
            g = gradients[number]
            if g is not None:
                arrived(g)

        made.register_prehook(Hook(before))

    return wait


def _versions(view: SiteView) -> tuple[int, ...]:
    """How often each tensor of a view was written to so far."""
    if isinstance(view, ActivationView):
        return view.x._version, view.a._version
    if isinstance(view, ProductView):
        return view.first._version, view.second._version
    if isinstance(view, LinearView):
        return view.x._version, view.y._version
    return (view.value._version,) if isinstance(view, TensorView) else ()


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
        raise RuntimeError(
            f"the output of this layer was overwritten in place before its gradient was computed {hint('overwritten')}"
        )
