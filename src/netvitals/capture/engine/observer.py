"""The observer: follows one forward pass and its backward pass, finds the sites, and shows them to the vital signs.

While armed it has hooks on the modules of the model and, between entry and exit of the model's forward, a dispatch
mode where one is needed. Unarmed it leaves nothing behind. Nothing of the user's is run by it: the first pass is traced
as it runs, and tells what there is; on later passes tensors are reduced at once, and none is kept but what a gradient
that is still to come will be compared with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from netvitals._device import is_captured
from netvitals.anatomy import Anatomy, rng_state, set_rng_state
from netvitals.capture.engine.blocks import show_block
from netvitals.capture.engine.hook import BeforeScripting, Hook, runs_in_compiled_code, tell_of_compilation
from netvitals.capture.engine.modules import ModuleInfo, ModuleReplay, Modules
from netvitals.capture.engine.operation_matcher import OperationMatcher
from netvitals.capture.engine.pass_state import Frame, PassState, when_arrives
from netvitals.capture.engine.planning.live_trace import LiveTrace
from netvitals.capture.engine.roles import WHOLE
from netvitals.capture.engine.schedule import CAPTURED, Schedule, detached_context
from netvitals.capture.engine.traced_pass import TracedPass, activation_of, first_tensor, is_transformed
from netvitals.capture.nested import shown_output
from netvitals.capture.recorder import Recorder
from netvitals.capture.site import Site


class Observer:
    """Looks at the next forward pass of ``model``, and the backward pass that follows, when armed.

    A pass after the first one (gradient accumulation) is not measured until the observer is armed again.

    Part of :class:`Roots`.

    Args:
        model: the module whose call is measured.
        schedule: the vital signs to show the sites to.
        passive: look only at passes that autograd records (a user's validation pass is none of our business).
        prefix: comes before the names of sites where they are shown: ``"encoder."`` for a part of a larger model.

    ``sites`` and ``skipped`` hold, by name, what was met in all passes so far.
    """

    def __init__(self, model: nn.Module, schedule: Schedule, *, passive: bool = True, prefix: str = "") -> None:
        self.model = model
        self.schedule = schedule
        self.passive = passive
        self.observed = False  # a pass was seen since arming
        self.passes = 0  # how many there were
        self.raised = False  # a pass since arming ended by an exception
        self.traces = 0  # of torch.compile, since this was made
        self.compiled: Literal["", "inside", "partly"] = ""  # how a pass since arming ran in compiled code
        self.outside: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None] | None = None  # hears of other calls
        self._state = PassState(schedule, prefix)
        self._modules = Modules(model, self._state.cannot_see)
        self._known: dict[nn.Module, ModuleInfo] = {}
        self._survey: TracedPass | None = None  # on a pass that is traced
        self._pickup = OperationMatcher(self._state.give_up)
        self._handles: list[Any] = []
        self._enter_hook, self._leave_hook = Hook(self.enter), Hook(self._leaving)
        self._container_hook = Hook(self._entering_container)
        self.withdraw: Callable[[], None] = self.strip  # asked when a part of the model is scripted
        self.stripped = False
        tell_of_compilation(self)

    @property
    def sites(self) -> dict[str, Site]:
        return self._state.sites

    @property
    def specs(self) -> dict[str, str]:
        """Which known activation acts at a site that is no module of torch's: ``silu`` for ``h * sigmoid(h)``."""
        return self._state.specs

    @property
    def anatomy(self) -> Anatomy | None:
        """What the model is made of, as the last traced pass showed it; None before the first."""
        return self._state.anatomy

    @property
    def skipped(self) -> dict[str, str]:
        """Place → why it could not be measured."""
        return self._state.skipped

    @property
    def modules(self) -> dict[str, nn.Module]:
        """Of the model as last read, by name."""
        return self._modules.modules

    @property
    def running(self) -> bool:
        """A pass has begun and not ended."""
        return bool(self._state.frames)

    def name_of(self, module: nn.Module) -> str:
        """The name of a part ``module`` that may be a root of its own; '' for one without a site."""
        info = self._known.get(module)
        if info is None or not (info.trains or info.role == "activation"):
            return ""
        leaf = info.role in ("plain", "container") and not any(True for _ in module.children())
        return "" if leaf else info.name

    def has_met(self, name: str) -> bool:
        """Whether a pass of the model has called the part ``name``, or something in it."""
        return any(called == name or called.startswith(f"{name}.") for called in self._state.ever_called)

    # ---------------------------------------------------------------- hooks

    def arm(self, recorder: Recorder) -> None:
        """Put the hooks in place; the next pass is measured and written to ``recorder``."""
        self.disarm()
        self._state.recorder, self.observed, self.passes, self.compiled = recorder, False, 0, ""
        self.raised = False
        route = self._state.route
        way = route.choose(self.schedule.wanted_kinds(), self._state.found_by_operations)
        if way == "trace" or not self._known:
            self._known = self._modules.survey()
        fused = self._modules.fused()
        if self._known[self.model].role == "compiled" or "" in fused:
            return
        inside = tuple(f"{name}." for name in fused)
        for module, info in self._known.items():
            if info.name in fused or info.name.startswith(inside) or isinstance(module, torch.jit.ScriptModule):
                continue
            if module is self.model or (info.role != "container" if way != "hooks" else info.name in route.stops):
                self._hook(module, before=way != "hooks" or module is self.model or info.in_place or info.replays)
            elif way == "trace" and self.outside is not None:
                BeforeScripting.put_on(module, self.withdraw)
                self._handles.append(self._container_hook.before(module, with_kwargs=True))

    def _hook(self, module: nn.Module, before: bool) -> None:
        BeforeScripting.put_on(module, self.withdraw)
        if before:
            self._handles.append(self._enter_hook.before(module, with_kwargs=True))
        # called on an exception too, so that neither the mode nor a frame outlives its call
        self._handles.append(self._leave_hook.after(module, with_kwargs=True, always_call=True))

    def disarm(self) -> None:
        """Take every hook away again. Gradients that arrive later are not measured."""
        self.strip()
        self.stripped = False
        self._state.recorder = None
        self._end()

    def strip(self) -> None:
        """Take every hook away, also from the coming pass: the model is about to be scripted."""
        self.stripped = True
        if self._handles:
            for module in self._known:
                BeforeScripting.take_off(module, self.withdraw)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _end(self) -> None:
        self._pickup.end()
        if self._survey is not None:
            self._survey.trace.end()
            self._survey = None
        self._state.end()

    # ---------------------------------------------------------------- before a module runs

    def _entering_container(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.outside is not None and not self._state.frames:
            self.outside(module, args, kwargs)

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A ``module`` begins to run, with ``args`` and ``kwargs``."""
        state = self._state
        if self.compiled == "partly":
            self._end()
        if not state.frames and not self._begins(module, args, kwargs):
            if module is not self.model:
                self._entering_container(module, args, kwargs)
            return
        info = self._known.get(module)
        if info is None:
            return
        hidden = bool(state.frames) and (state.frames[-1].hidden or state.frames[-1].module_info.role in WHOLE)
        frame = Frame(module, info, state.called(info.name), hidden)
        state.frames.append(frame)
        try:
            x = first_tensor(args, kwargs)
            if self._survey is not None:
                self._survey.trace.enter(info.name, x)
                self._survey.trace.stand_in(info.name, module)
            elif state.route.way == "operations":
                self._show_complete()
                self._pickup.enter(info.name)
            if info.role == "compiled":
                self._modes(on=False)
            if not hidden:
                self._prepare(frame, x)
        except Exception as error:
            state.give_up(error)

    def _begins(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether this call of a module is the pass that was waited for; then everything is made ready for it."""
        if module is not self.model or not (torch.is_grad_enabled() or not self.passive):
            return False
        self.passes += 1
        if self.observed or self.compiled:
            return False
        if runs_in_compiled_code():
            self.compiled = "inside"
            return False
        if is_transformed() or is_captured():
            self._state.cannot_see(
                "model", CAPTURED if is_captured() else "the model runs inside a torch.func transform"
            )
            return False
        self.observed, self.raised = True, False
        self._state.begin()
        if self._state.route.way == "trace":
            self._survey = TracedPass(LiveTrace(self.model, (args, kwargs)))
        elif self._state.route.way == "operations":
            self._pickup.begin(self._state.plan)
        self._modes(on=True)
        return True

    def compiling(self) -> None:
        """Something is compiled now. A pass that a mode of ours follows is let alone from here on: compiled code would
        be compiled for that mode, and again without it.
        """
        self.traces += 1
        if self._pickup.on or (self._survey is not None and self._survey.trace.on):
            self.observed, self.compiled = False, "partly"
            self._pickup.ignore()
            if self._survey is not None:
                self._survey.trace.ignore()

    def _modes(self, on: bool) -> None:
        """Switch the mode of this pass on or off; compiled code runs without it."""
        if self._survey is not None:
            (self._survey.trace.begin if on else self._survey.trace.end)()
        elif self._state.route.way == "operations":
            (self._pickup.resume if on else self._pickup.end)()

    def _prepare(self, frame: Frame, x: Tensor | None) -> None:
        """Keep the input of a part that is measured as a whole."""
        info = frame.module_info
        if info.role == "activation" and x is not None:
            if info.replays:
                with detached_context():
                    frame.f = ModuleReplay(frame.module, x.device, in_place=info.in_place)
            frame.x = x.detach().clone() if info.in_place and self._survey is None else x
        elif info.role in ("linear", "norm"):
            frame.x = x

    # ---------------------------------------------------------------- after a module ran

    def _leaving(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self.compiled == "partly":
            self._end()
        if output is None and module is self.model and (error := sys.exc_info()[1]) is not None:
            self._raised(error)
        frame = self._frame_of(module, args, kwargs)
        if frame is None:
            return
        state = self._state
        try:
            value = output if isinstance(output, Tensor) else shown_output(output)
            if value is not None and not value.is_floating_point():
                value = None
            if self._survey is not None:
                self._survey.leave(frame, value)
            if frame.module_info.role == "compiled":
                self._modes(on=True)
            if state.route.way == "operations":
                self._show_complete()
            if value is not None and self._survey is None and not frame.hidden:
                with detached_context():
                    self._observe(frame, value)
            if not state.frames:
                self._complete(frame, output)
        except Exception as error:
            state.give_up(error)
        if not state.frames:
            self._end()

    def _raised(self, error: BaseException) -> None:
        """The pass ended by an exception of the user's: the next one is measured."""
        why = f"the forward pass raised {type(error).__name__}: its activations are not measured"
        self._state.cannot_see("forward", why)
        traced = self._survey is not None  # then nothing has been shown yet
        self._end()
        self.observed, self.raised = not traced, True

    def _frame_of(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame | None:
        """The call that ends here; None outside a pass."""
        state = self._state
        if not state.frames:
            return None
        expected = state.frames[-1].module is module or module is self.model
        if not expected and state.route.way == "hooks":  # most have no hook before they run
            info = self._known[module]
            frame = Frame(module, info, state.called(info.name), state.frames[-1].module_info.role in WHOLE)
            frame.x = first_tensor(args, kwargs)
            return frame
        frame = self._popped()
        while frame.module is not module and state.frames:
            frame = self._popped()
        return frame

    def _popped(self) -> Frame:
        frame = self._state.frames.pop()
        if self._survey is None and self._state.route.way == "operations":
            self._pickup.leave()
        elif self._survey is not None and len(self._survey.trace.running) > len(self._state.frames) + 2:
            self._survey.trace.leave(None)  # it was left by an exception
        return frame

    def _show_complete(self) -> None:
        """Show the activations whose last operation has run."""
        for picked in self._pickup.complete():
            extra = picked.extra
            site = self._state.present.get(extra.site)
            if site is None or picked.a is None or picked.value is None:
                continue
            gradient = when_arrives(picked.value) if picked.untouched else None
            with detached_context():
                if extra.kind == "activation" and picked.x is not None:
                    self._state.activation(site, picked.x, picked.a, picked.f, gradient)
                elif extra.kind == "attention":
                    self._state.tensor(site, picked.a, None, gradient)
                else:
                    show_block(self._state, extra, site, picked.today, gradient)

    def _complete(self, frame: Frame, output: Any) -> None:
        """The forward pass has come to its end."""
        state = self._state
        self._modes(on=False)
        if self._survey is not None:
            modules, generators = {info.name: info for info in self._known.values()}, rng_state()
            try:
                with detached_context():
                    self._survey.finish(state, modules, frame, output)
            finally:  # an activation that draws is tried when its kind is looked for
                set_rng_state(generators)
        elif state.route.way == "operations":
            for name in self._pickup.missed:
                state.route.stray()
                state.cannot_see(name, "not called on every measured step: the forward pass differs from step to step")
        state.route.end(state.met)

    # ---------------------------------------------------------------- what it was

    def _observe(self, frame: Frame, value: Tensor) -> None:
        """Show a part on a pass whose sites are known."""
        state, info = self._state, frame.module_info
        wanted = info.name in state.route.stops
        if wanted and (info.name, frame.call) not in state.plan.suppressed and info.role != "declared":
            self._observe_part(frame, value)
        if not state.frames:
            site = state.known(self._survey_output_name())
            if site is not None:
                state.tensor(site, value, None, when_arrives(value))

    def _observe_part(self, frame: Frame, value: Tensor) -> None:
        state, role = self._state, frame.module_info.role
        if role in ("activation", "linear", "norm") and frame.x is None:
            return
        if role not in ("activation", "linear", "norm", "attention") and frame.site not in state.present:
            return  # a block that hands on no residual stream
        site = state.known(frame.site)
        if site is None:
            return
        gradient = when_arrives(value)
        if role == "activation":
            assert frame.x is not None
            state.activation(site, frame.x, value, activation_of(frame), gradient)
        elif role == "linear":
            assert frame.x is not None
            state.linear(site, frame.x, value, frame.module, gradient)
        else:
            state.tensor(site, value, frame.module, gradient)

    def _survey_output_name(self) -> str:
        return "output()" if any(info.name == "output" for info in self._known.values()) else "output"
