"""The looker: follows one forward pass and its backward pass, finds the sites, and shows them to the vital signs.

While armed it has hooks on the modules of the model and, between entry and exit of the model's forward, a torch
function mode that sees functional calls. Unarmed it leaves nothing behind. Tensors are reduced at once, in the hook;
none is kept but what a gradient that is still to come will be compared with.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from netvitals.capture.engine.calls import Calls, is_transformed
from netvitals.capture.engine.hook import Hook
from netvitals.capture.engine.panel import Panel, aside
from netvitals.capture.engine.parts import Part, Parts
from netvitals.capture.engine.replay import Replay
from netvitals.capture.engine.roles import BATCH_NORMS, CHANNEL_NORMS, CONVOLUTIONS
from netvitals.capture.engine.scene import Frame, Scene, tensors
from netvitals.capture.engine.trail import UNKNOWN
from netvitals.capture.reading import Sheet
from netvitals.capture.site import Site, Unseen

FULL = 20       # every so many passes of a model are looked at everywhere


class Looker:
    """Looks at the next forward pass of ``model``, and the backward pass that follows, when armed.

    A pass after the first one (gradient accumulation) is not looked at until the looker is armed again.

    Args:
        model: the module whose call is looked at.
        panel: the vital signs to show the sites to.
        passive: look only at passes that autograd records (a user's validation pass is none of our business).

    ``sites`` and ``unseen`` hold, by name, what was met in all passes so far.
    """

    def __init__(self, model: nn.Module, panel: Panel, *, passive: bool = True) -> None:
        self.model = model
        self.panel = panel
        self.passive = passive
        self.looked = False         # a pass was seen since arming
        self.modules: dict[str, nn.Module] = {}     # of the model as last armed, by name
        self._scene = Scene(panel)
        self._survey = Parts(model, self._scene.cannot_see)
        self._parts: dict[nn.Module, Part] = {}
        self._calls = Calls(self._scene)
        self._handles: list[Any] = []
        self._passes = 0
        self._routes: dict[frozenset[str], list[nn.Module] | None] = {}
        self._expected: dict[frozenset[str], int] = {}
        self._enter_hook, self._leave_hook = Hook(self._entering), Hook(self._leaving)

    @property
    def sites(self) -> dict[str, Site]:
        return self._scene.sites

    @property
    def unseen(self) -> dict[str, Unseen]:
        return self._scene.unseen

    def arm(self, sheet: Sheet) -> None:
        """Put the hooks in place; the next pass is looked at and written to ``sheet``."""
        self.disarm()
        self._scene.sheet, self.looked = sheet, False
        for module in self._route():
            part = self._parts[module]
            if not self._scene.short or module is self.model or part.in_place or part.replays:
                self._handles.append(module.register_forward_pre_hook(self._enter_hook, with_kwargs=True))
            # called on an exception too, so that neither the mode nor a frame outlives its call
            self._handles.append(module.register_forward_hook(self._leave_hook, with_kwargs=True, always_call=True))

    def _route(self) -> list[nn.Module]:
        """The modules that get hooks on this pass.

        Once the sites are known, a pass goes only to those that somebody looks at, and without the mode if none of
        them is a functional call. Every ``FULL``-th pass, and the one after a pass that met other sites than it
        expected, goes everywhere: a model may change.
        """
        scene = self._scene
        wanted = frozenset(self.panel.wanted_kinds())
        scene.short = self._passes % FULL != 0 and not scene.strayed
        if not scene.short:
            scene.strayed = False
            self._routes.clear()
            self._parts = self._survey.survey()
            self.modules = self._survey.modules
            if self._parts[self.model].role == "compiled":
                return []
        elif wanted not in self._routes:
            met = [site for site in scene.sites.values() if site.kind in wanted]
            if any("()" in site.name for site in met):
                self._routes[wanted] = None
            else:
                owners = {site.module for site in met}
                self._routes[wanted] = [m for m, part in self._parts.items() if m is self.model or part.name in owners]
            outputs = sum(site.kind == "output" for site in scene.sites.values())       # met on every pass
            self._expected[wanted] = outputs + sum(site.kind != "output" for site in met)
        route = self._routes.get(wanted)
        scene.short = scene.short and route is not None
        scene.expected = self._expected[wanted] if scene.short else None
        return route if route is not None else [m for m, part in self._parts.items()
                                                if part.role != "container" or m is self.model]

    def disarm(self) -> None:
        """Take every hook away again. Gradients that arrive later are not looked at."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._scene.sheet = None
        self._end()

    def settle(self) -> None:
        """The backward pass is over, as far as the caller knows."""
        try:
            with aside():
                self._scene.settle()
        except Exception as error:
            self._scene.give_up(error)

    def _finish(self) -> None:
        self._end()
        try:
            self._scene.show_gathered()
        except Exception as error:
            self._scene.give_up(error)

    def _end(self) -> None:
        self._calls.end()
        self._scene.end()

    def _entering(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        scene = self._scene
        if scene.frames:
            if not scene.blind:
                with torch._C.DisableTorchFunction():       # even to ask a tensor for its shape is a torch function
                    self._enter(module, args, kwargs)
        elif module is self.model and not self.looked and (torch.is_grad_enabled() or not self.passive):
            if is_transformed():
                scene.cannot_see(Unseen("model", "it runs inside a torch.func transform"))
                return
            self.looked = True
            self._passes += 1
            scene.begin((args, kwargs))
            if not scene.short:
                self._calls.begin()
            with torch._C.DisableTorchFunction():
                self._enter(module, args, kwargs)

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        scene = self._scene
        part = self._parts.get(module)
        if part is None:
            return
        frame = Frame(module, part)
        scene.frames.append(frame)
        try:
            if part.role == "compiled":
                self._calls.end()
            elif part.role not in ("plain", "container"):
                self._prepare(frame, args, kwargs)
        except Exception as error:
            scene.give_up(error)

    def _prepare(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before a part runs: keep its input; from here until it leaves, what happens inside is its own affair."""
        part = frame.part
        x = args[0] if args and isinstance(args[0], Tensor) else next(tensors((args, kwargs)), None)
        if x is not None:
            frame.origin = self._scene.trail.origin(x)
        self._scene.blind = True
        if part.replays and not part.tried:
            self._survey.try_out(frame.module, part, x)
            if part.role == "plain":
                self._scene.blind = False
                return
        if part.role == "activation" and x is not None:
            if part.replays:
                frame.f = Replay(frame.module, x.device, in_place=part.in_place)
            frame.x = x.detach().clone() if part.in_place else x
        elif part.role == "linear" or part.role == "norm":
            frame.x = x

    def _leaving(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        scene = self._scene
        if not scene.frames or (scene.blind and scene.frames[-1].module is not module and module is not self.model):
            return      # no pass, or inside a part that is looked at as a whole
        with aside():
            if scene.short and scene.frames[-1].module is not module and module is not self.model:
                frame = Frame(module, self._parts[module])      # on a short pass most have no hook before they run
                frame.x = args[0] if args and isinstance(args[0], Tensor) else next(tensors((args, kwargs)), None)
            else:
                frame = scene.frames.pop()
                while frame.module is not module and scene.frames:
                    frame = scene.frames.pop()
            self._leave(frame, output)
            if not scene.frames:
                self._finish()

    def _leave(self, frame: Frame, output: Any) -> None:
        scene = self._scene
        scene.blind = True      # vital signs may run parts of the model again
        try:
            if frame.part.role == "compiled":
                self._calls.begin()
            value = output if isinstance(output, Tensor) else next(tensors(output), None)
            if value is not None and value.is_floating_point():
                self._look_at(frame, value)
            scene.blind = False
        except Exception as error:
            scene.give_up(error)

    def _look_at(self, frame: Frame, value: Tensor) -> None:
        scene, part, module = self._scene, frame.part, frame.module
        name, op = part.name or "model", type(module).__name__
        if frame.x is not None and part.role == "activation":
            f = frame.f or (module.forward if not part.in_place else lambda x: module.forward(x.clone()))
            scene.activation(name, op, part.name, frame.x, frame.origin, value, f, part.alike)
        elif frame.x is not None and part.role == "linear":
            scene.linear(name, module, frame.x, frame.origin, value, 1 if isinstance(module, CONVOLUTIONS) else -1)
        elif frame.x is not None and part.role == "norm":
            dim = 1 if isinstance(module, CHANNEL_NORMS) else frame.origin.channel_dim if value.ndim > 3 else -1
            scene.trail.mark(value, "bn_direct" if isinstance(module, BATCH_NORMS) else "norm_direct", dim)
            scene.tensor(name, "norm", op, frame.origin, value, part.name, module)
        elif part.role == "attention":
            scene.trail.mark(value, "linear", -1)
            scene.tensor(name, "attention", op, UNKNOWN, value, part.name, module)
        elif scene.frames and (frame.added and part.trains if not scene.short else name in scene.sites):
            scene.tensor(name, "stream", op, scene.trail.origin(value), value, part.name, module)
        if not scene.frames:
            taken = any(p.name == "output" for p in self._parts.values())
            scene.tensor("output()" if taken else "output", "output", op, scene.trail.origin(value), value, "")
