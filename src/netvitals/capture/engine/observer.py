"""The observer: follows one forward pass and its backward pass, finds the sites, and shows them to the vital signs.

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
from netvitals.capture.engine.modules import ModuleInfo, Modules, Replay
from netvitals.capture.engine.pass_state import UNKNOWN, Frame, PassState, tensors
from netvitals.capture.engine.roles import BATCH_NORMS, CHANNEL_NORMS, CONVOLUTIONS
from netvitals.capture.engine.schedule import Schedule, detached_context
from netvitals.capture.reading import Recorder
from netvitals.capture.site import Site


class Observer:
    """Looks at the next forward pass of ``model``, and the backward pass that follows, when armed.

    A pass after the first one (gradient accumulation) is not looked at until the observer is armed again.

    Args:
        model: the module whose call is looked at.
        schedule: the vital signs to show the sites to.
        passive: look only at passes that autograd records (a user's validation pass is none of our business).

    ``sites`` and ``skipped`` hold, by name, what was met in all passes so far.
    """

    def __init__(self, model: nn.Module, schedule: Schedule, *, passive: bool = True) -> None:
        self.model = model
        self.schedule = schedule
        self.passive = passive
        self.observed = False  # a pass was seen since arming
        self._state = PassState(schedule)
        self._modules = Modules(model, self._state.cannot_see)
        self._known: dict[nn.Module, ModuleInfo] = {}
        self._calls = FunctionCalls(self._state)
        self._handles: list[Any] = []
        self._enter_hook, self._leave_hook = Hook(self._entering), Hook(self._leaving)

    @property
    def sites(self) -> dict[str, Site]:
        return self._state.sites

    @property
    def skipped(self) -> dict[str, str]:
        """Place → why it could not be looked at."""
        return self._state.skipped

    @property
    def modules(self) -> dict[str, nn.Module]:
        """Of the model as last read, by name."""
        return self._modules.modules

    # ---------------------------------------------------------------- hooks

    def arm(self, recorder: Recorder) -> None:
        """Put the hooks in place; the next pass is looked at and written to ``recorder``."""
        self.disarm()
        self._state.recorder, self.observed = recorder, False
        route = self._state.route
        stops = route.choose(self.schedule.wanted_kinds())
        if route.anew:
            self._known = self._modules.survey()
        if self._known[self.model].role == "compiled":
            return
        for module, info in self._known.items():
            if module is self.model or (info.role != "container" if stops is None else info.name in stops):
                self._hook(module, info, before=not route.short or info.in_place or info.replays)

    def _hook(self, module: nn.Module, info: ModuleInfo, before: bool) -> None:
        if before or module is self.model:
            self._handles.append(module.register_forward_pre_hook(self._enter_hook, with_kwargs=True))
        # called on an exception too, so that neither the mode nor a frame outlives its call
        self._handles.append(module.register_forward_hook(self._leave_hook, with_kwargs=True, always_call=True))

    def disarm(self) -> None:
        """Take every hook away again. Gradients that arrive later are not looked at."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._state.recorder = None
        self._calls.end()
        self._state.end()

    # ---------------------------------------------------------------- before a module runs

    def _entering(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._state.frames and not self._begins(module, args, kwargs):
            return
        if not self._state.blind:
            with torch._C.DisableTorchFunction():  # even to ask a tensor for its shape is a torch function
                self._enter(module, args, kwargs)

    def _begins(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether this call of a module is the pass that was waited for; then everything is made ready for it."""
        if module is not self.model or self.observed or not (torch.is_grad_enabled() or not self.passive):
            return False
        if is_transformed():
            self._state.cannot_see("model", "it runs inside a torch.func transform")
            return False
        self.observed = True
        self._state.begin((args, kwargs))
        if not self._state.route.short:
            self._calls.begin()
        return True

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        info = self._known.get(module)
        if info is None:
            return
        frame = Frame(module, info)
        self._state.frames.append(frame)
        try:
            if info.role == "compiled":
                self._calls.end()
            elif info.role not in ("plain", "container"):
                self._prepare(frame, _first(args, kwargs))
        except Exception as error:
            self._state.give_up(error)

    def _prepare(self, frame: Frame, x: Tensor | None) -> None:
        """Keep the input of a part; from here until it leaves, what happens inside is its own affair."""
        info = frame.module_info
        if x is not None:
            frame.origin = self._state.provenance.origin(x)
        self._state.blind = True
        if info.replays and not info.tried:
            self._modules.try_out(frame.module, info, x)
            if info.role == "plain":
                self._state.blind = False
                return
        if info.role == "activation" and x is not None:
            if info.replays:
                frame.f = Replay(frame.module, x.device, in_place=info.in_place)
            frame.x = x.detach().clone() if info.in_place else x
        elif info.role in ("linear", "norm"):
            frame.x = x

    # ---------------------------------------------------------------- after a module ran

    def _leaving(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        frame = self._frame_of(module, args, kwargs)
        if frame is None:
            return
        with detached_context():
            self._leave(frame, output)
            if not self._state.frames:
                self._calls.end()
                self._state.complete()

    def _frame_of(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame | None:
        """The call that ends here; None outside a pass, and inside a part that is looked at as a whole."""
        state = self._state
        if not state.frames:
            return None
        expected = state.frames[-1].module is module or module is self.model
        if not expected and state.blind:
            return None
        if not expected and state.route.short:  # most have no hook before they run
            frame = Frame(module, self._known[module])
            frame.x = _first(args, kwargs)
            return frame
        frame = state.frames.pop()
        while frame.module is not module and state.frames:
            frame = state.frames.pop()
        return frame

    def _leave(self, frame: Frame, output: Any) -> None:
        state = self._state
        state.blind = True  # vital signs may run parts of the model again
        try:
            if frame.module_info.role == "compiled":
                self._calls.begin()
            value = output if isinstance(output, Tensor) else next(tensors(output), None)
            if value is not None and value.is_floating_point():
                self._observe(frame, value)
                if not state.frames:
                    self._output(frame, value)
            state.blind = False
        except Exception as error:
            state.give_up(error)

    # ---------------------------------------------------------------- what it was

    def _observe(self, frame: Frame, value: Tensor) -> None:
        role = frame.module_info.role
        if role in ("activation", "linear", "norm"):
            if frame.x is not None:
                {"activation": self._activation, "linear": self._linear, "norm": self._norm}[role](
                    frame, frame.x, value
                )
        elif role == "attention":
            self._state.mark(value, "linear", -1)
            self._tensor(frame, "attention", UNKNOWN, value)
        elif self._state.frames and self._hands_on_stream(frame):
            self._tensor(frame, "stream", self._state.provenance.origin(value), value)

    def _activation(self, frame: Frame, x: Tensor, value: Tensor) -> None:
        info, module = frame.module_info, frame.module
        f = frame.f or (module.forward if not info.in_place else lambda x: module.forward(x.clone()))
        self._state.activation(info.name or "model", type(module).__name__, info.name, x, frame.origin, value, f)

    def _linear(self, frame: Frame, x: Tensor, value: Tensor) -> None:
        module = frame.module
        dim = 1 if isinstance(module, CONVOLUTIONS) else -1
        self._state.linear(frame.module_info.name or "model", module, x, frame.origin, value, dim)

    def _norm(self, frame: Frame, x: Tensor, value: Tensor) -> None:
        module = frame.module
        dim = 1 if isinstance(module, CHANNEL_NORMS) else frame.origin.channel_dim if value.ndim > 3 else -1
        self._state.mark(value, "bn_direct" if isinstance(module, BATCH_NORMS) else "norm_direct", dim)
        self._tensor(frame, "norm", frame.origin, value)

    def _hands_on_stream(self, frame: Frame) -> bool:
        """A block that trains and adds two activations; on a short pass, one that was found to do so."""
        info = frame.module_info
        return info.name in self.sites if self._state.route.short else frame.added and info.trains

    def _tensor(self, frame: Frame, kind: Any, origin: Any, value: Tensor) -> None:
        name, module = frame.module_info.name, frame.module
        self._state.tensor(name or "model", kind, type(module).__name__, origin, value, name, module)

    def _output(self, frame: Frame, value: Tensor) -> None:
        taken = any(info.name == "output" for info in self._known.values())
        origin = self._state.provenance.origin(value)
        self._state.tensor("output()" if taken else "output", "output", type(frame.module).__name__, origin, value, "")


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The first tensor a module was called with."""
    return args[0] if args and isinstance(args[0], Tensor) else next(tensors((args, kwargs)), None)
