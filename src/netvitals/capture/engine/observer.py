"""The looker: follows one forward pass and its backward pass, finds the sites, and shows them to the vital signs.

While armed it has hooks on the modules of the model and, between entry and exit of the model's forward, a torch
function mode that sees functional calls. Unarmed it leaves nothing behind. Tensors are reduced at once, in the hook;
none is kept but what a gradient that is still to come will be compared with.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from netvitals.capture.engine.function_calls import FunctionCalls, is_transformed
from netvitals.capture.engine.hook import Hook
from netvitals.capture.engine.modules import ModuleInfo, Modules
from netvitals.capture.engine.pass_state import Frame, PassState, tensors
from netvitals.capture.engine.provenance import UNKNOWN
from netvitals.capture.engine.replay import Replay
from netvitals.capture.engine.roles import BATCH_NORMS, CHANNEL_NORMS, CONVOLUTIONS
from netvitals.capture.engine.schedule import Schedule, detached_context
from netvitals.capture.reading import Recorder
from netvitals.capture.site import Site

FULL = 20  # every so many passes of a model are looked at everywhere


class Observer:
    """Looks at the next forward pass of ``model``, and the backward pass that follows, when armed.

    A pass after the first one (gradient accumulation) is not looked at until the looker is armed again.

    Args:
        model: the module whose call is looked at.
        panel: the vital signs to show the sites to.
        passive: look only at passes that autograd records (a user's validation pass is none of our business).

    ``sites`` and ``skipped`` hold, by name, what was met in all passes so far.
    """

    def __init__(self, model: nn.Module, schedule: Schedule, *, passive: bool = True) -> None:
        self.model = model
        self.schedule = schedule
        self.passive = passive
        self.observed = False  # a pass was seen since arming
        self.modules: dict[str, nn.Module] = {}  # of the model as last armed, by name
        self._state = PassState(schedule)
        self._survey = Modules(model, self._state.cannot_see)
        self._parts: dict[nn.Module, ModuleInfo] = {}
        self._calls = FunctionCalls(self._state)
        self._handles: list[Any] = []
        self._passes = 0
        self._routes: dict[frozenset[str], list[nn.Module] | None] = {}
        self._expected: dict[frozenset[str], int] = {}
        self._enter_hook, self._leave_hook = Hook(self._entering), Hook(self._leaving)

    @property
    def sites(self) -> dict[str, Site]:
        return self._state.sites

    @property
    def skipped(self) -> dict[str, str]:
        return self._state.skipped

    def arm(self, recorder: Recorder) -> None:
        """Put the hooks in place; the next pass is looked at and written to ``recorder``."""
        self.disarm()
        self._state.recorder, self.observed = recorder, False
        for module in self._route():
            module_info = self._parts[module]
            if not self._state.short or module is self.model or module_info.in_place or module_info.replays:
                self._handles.append(module.register_forward_pre_hook(self._enter_hook, with_kwargs=True))
            # called on an exception too, so that neither the mode nor a frame outlives its call
            self._handles.append(module.register_forward_hook(self._leave_hook, with_kwargs=True, always_call=True))

    def _route(self) -> list[nn.Module]:
        """The modules that get hooks on this pass.

        Once the sites are known, a pass goes only to those that somebody looks at, and without the mode if none of
        them is a functional call. Every ``FULL``-th pass, and the one after a pass that met other sites than it
        expected, goes everywhere: a model may change.
        """
        state = self._state
        wanted = frozenset(self.schedule.wanted_kinds())
        state.short = self._passes % FULL != 0 and not state.strayed
        if not state.short:
            state.strayed = False
            self._routes.clear()
            self._parts = self._survey.survey()
            self.modules = self._survey.modules
            if self._parts[self.model].role == "compiled":
                return []
        elif wanted not in self._routes:
            met = [site for site in state.sites.values() if site.kind in wanted]
            if any("()" in site.name for site in met):
                self._routes[wanted] = None
            else:
                owners = {site.module for site in met}
                self._routes[wanted] = [
                    m for m, module_info in self._parts.items() if m is self.model or module_info.name in owners
                ]
            outputs = sum(site.kind == "output" for site in state.sites.values())  # met on every pass
            self._expected[wanted] = outputs + sum(site.kind != "output" for site in met)
        route = self._routes.get(wanted)
        state.short = state.short and route is not None
        state.expected = self._expected[wanted] if state.short else None
        return (
            route
            if route is not None
            else [m for m, module_info in self._parts.items() if module_info.role != "container" or m is self.model]
        )

    def disarm(self) -> None:
        """Take every hook away again. Gradients that arrive later are not looked at."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._state.recorder = None
        self._end()

    def settle(self) -> None:
        """The backward pass is over, as far as the caller knows."""
        try:
            with detached_context():
                self._state.settle()
        except Exception as error:
            self._state.give_up(error)

    def _finish(self) -> None:
        self._end()
        try:
            self._state.show_gathered()
        except Exception as error:
            self._state.give_up(error)

    def _end(self) -> None:
        self._calls.end()
        self._state.end()

    def _entering(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        state = self._state
        if state.frames:
            if not state.blind:
                with torch._C.DisableTorchFunction():  # even to ask a tensor for its shape is a torch function
                    self._enter(module, args, kwargs)
        elif module is self.model and not self.observed and (torch.is_grad_enabled() or not self.passive):
            if is_transformed():
                state.cannot_see("model", "it runs inside a torch.func transform")
                return
            self.observed = True
            self._passes += 1
            state.begin((args, kwargs))
            if not state.short:
                self._calls.begin()
            with torch._C.DisableTorchFunction():
                self._enter(module, args, kwargs)

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        state = self._state
        module_info = self._parts.get(module)
        if module_info is None:
            return
        frame = Frame(module, module_info)
        state.frames.append(frame)
        try:
            if module_info.role == "compiled":
                self._calls.end()
            elif module_info.role not in ("plain", "container"):
                self._prepare(frame, args, kwargs)
        except Exception as error:
            state.give_up(error)

    def _prepare(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before a part runs: keep its input; from here until it leaves, what happens inside is its own affair."""
        module_info = frame.module_info
        x = args[0] if args and isinstance(args[0], Tensor) else next(tensors((args, kwargs)), None)
        if x is not None:
            frame.origin = self._state.provenance.origin(x)
        self._state.blind = True
        if module_info.replays and not module_info.tried:
            self._survey.try_out(frame.module, module_info, x)
            if module_info.role == "plain":
                self._state.blind = False
                return
        if module_info.role == "activation" and x is not None:
            if module_info.replays:
                frame.f = Replay(frame.module, x.device, in_place=module_info.in_place)
            frame.x = x.detach().clone() if module_info.in_place else x
        elif module_info.role == "linear" or module_info.role == "norm":
            frame.x = x

    def _leaving(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        state = self._state
        if not state.frames or (state.blind and state.frames[-1].module is not module and module is not self.model):
            return  # no pass, or inside a part that is looked at as a whole
        with detached_context():
            if state.short and state.frames[-1].module is not module and module is not self.model:
                frame = Frame(module, self._parts[module])  # on a short pass most have no hook before they run
                frame.x = args[0] if args and isinstance(args[0], Tensor) else next(tensors((args, kwargs)), None)
            else:
                frame = state.frames.pop()
                while frame.module is not module and state.frames:
                    frame = state.frames.pop()
            self._leave(frame, output)
            if not state.frames:
                self._finish()

    def _leave(self, frame: Frame, output: Any) -> None:
        state = self._state
        state.blind = True  # vital signs may run parts of the model again
        try:
            if frame.module_info.role == "compiled":
                self._calls.begin()
            value = output if isinstance(output, Tensor) else next(tensors(output), None)
            if value is not None and value.is_floating_point():
                self._observe(frame, value)
            state.blind = False
        except Exception as error:
            state.give_up(error)

    def _observe(self, frame: Frame, value: Tensor) -> None:
        state, module_info, module = self._state, frame.module_info, frame.module
        name, op = module_info.name or "model", type(module).__name__
        if frame.x is not None and module_info.role == "activation":
            f = frame.f or (module.forward if not module_info.in_place else lambda x: module.forward(x.clone()))
            state.activation(name, op, module_info.name, frame.x, frame.origin, value, f, module_info.alike)
        elif frame.x is not None and module_info.role == "linear":
            state.linear(name, module, frame.x, frame.origin, value, 1 if isinstance(module, CONVOLUTIONS) else -1)
        elif frame.x is not None and module_info.role == "norm":
            dim = 1 if isinstance(module, CHANNEL_NORMS) else frame.origin.channel_dim if value.ndim > 3 else -1
            state.provenance.mark(value, "bn_direct" if isinstance(module, BATCH_NORMS) else "norm_direct", dim)
            state.tensor(name, "norm", op, frame.origin, value, module_info.name, module)
        elif module_info.role == "attention":
            state.provenance.mark(value, "linear", -1)
            state.tensor(name, "attention", op, UNKNOWN, value, module_info.name, module)
        elif state.frames and (frame.added and module_info.trains if not state.short else name in state.sites):
            state.tensor(name, "stream", op, state.provenance.origin(value), value, module_info.name, module)
        if not state.frames:
            taken = any(p.name == "output" for p in self._parts.values())
            state.tensor("output()" if taken else "output", "output", op, state.provenance.origin(value), value, "")
