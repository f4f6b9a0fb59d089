"""A pass that is traced: what ran is kept in order, and shown when the pass is over and its plan is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction

from netvitals.anatomy import Anatomy, Dataflow, Region, described, find_norms, find_regions, numbered
from netvitals.capture.engine.blocks import show_block
from netvitals.capture.engine.modules import ModuleInfo
from netvitals.capture.engine.pass_state import Frame, PassState, when_leaves
from netvitals.capture.engine.planning.extras import Extra
from netvitals.capture.engine.planning.live_trace import LiveTrace, ModuleCall
from netvitals.capture.engine.planning.origins import UNKNOWN, Origin
from netvitals.capture.engine.planning.plan import Plan, make_plan
from netvitals.capture.engine.planning.recorded import function_of
from netvitals.capture.engine.roles import BATCH_NORMS, CHANNEL_NORMS, CONVOLUTIONS, REASONS
from netvitals.capture.nested import tensors

_PARTS = (
    "parameters",
    "layers",
    "connections",
    "softmaxes",
    "norm_readers",
    "heads",
    "gated",
    "experts",
    "streams",
    "recurrent",
)


class TracedPass:
    """Everything a traced pass met."""

    def __init__(self, trace: LiveTrace) -> None:
        self.trace = trace
        self._ended: list[tuple[Frame, ModuleCall]] = []

    def leave(self, frame: Frame, value: Tensor | None) -> None:
        """A module has run."""
        self._ended.append((frame, self.trace.leave(value)))

    def finish(self, state: PassState, modules: Mapping[str, ModuleInfo], root: Frame, output: Any) -> None:
        """Make the plan and show every site, in the order in which they ran."""
        trace = self.trace
        if trace.error is not None:
            raise trace.error
        outputs = [trace.value_of(t) for t in tensors(output)]
        flow = Dataflow(trace.values, trace.operations, trace.tensors, outputs)
        anatomy = self._anatomy(state, root.module, flow)
        plan = state.plan = make_plan(trace, anatomy, flow.roots, modules, self._marked())
        state.anatomy = replace(anatomy, tensors=(), regions=tuple(_without_tensors(r) for r in anatomy.regions))
        for place, reason in plan.skipped.items():
            state.cannot_see(place, reason)
        state.present.clear()
        state.time_first = frozenset(self._time_first())
        events: list[tuple[int, int, Callable[[], None]]] = []
        for extra in plan.extras:
            events.append((extra.order, 0, partial(self._extra, state, extra)))
        for frame, call in self._ended:
            events.append((call.last, 1, partial(self._part, state, plan, frame, call)))
        for _, _, show in sorted(events, key=lambda event: event[:2]):
            show()
        made = self._ended[-1][1].made
        if made is not None:
            name = "output()" if "output" in modules else "output"
            value, origin = trace.tensors[made], plan.origins[made]
            site = state.site(name, "output", type(root.module).__name__, origin, "", value, origin.channel_dim)
            state.tensor(site, value, None, when_leaves(trace.node(made)))

    def _anatomy(self, state: PassState, model: nn.Module, flow: Dataflow) -> Anatomy:
        """What the pass tells; where it cannot be told in full, the activations without their roles."""
        try:
            return described(model, flow, {}, 0)
        except Exception as error:
            why = f"the structure of the model could not be determined: {type(error).__name__}: {error}"
            state.cannot_see("anatomy", why)
            return bare_anatomy(model, flow)

    def _time_first(self) -> Iterator[tuple[int, ...]]:
        """(positions, examples) of what recurrent and attention modules got that are not ``batch_first``."""
        for frame, call in self._ended:
            if call.given is not None and getattr(frame.module, "batch_first", True) is False:
                shape = self.trace.values[call.given].shape
                if len(shape) == 3:
                    yield shape[:2]

    def _marked(self) -> dict[int, Origin]:
        """What known layers and norms made; what they are inside does not matter."""
        out: dict[int, Origin] = {}
        for frame, call in self._ended:
            role, module = frame.module_info.role, frame.module
            if call.made is None or frame.hidden:
                continue
            if role == "linear":
                out[call.made] = Origin("linear", 1 if isinstance(module, CONVOLUTIONS) else -1)
            elif role == "norm":
                deep = len(self.trace.values[call.made].shape) > 3
                dim = 1 if isinstance(module, CHANNEL_NORMS) else None if deep else -1
                out[call.made] = Origin("bn_direct" if isinstance(module, BATCH_NORMS) else "norm_direct", dim)
            elif role == "attention":
                out[call.made] = Origin("linear", -1)
        return out

    def _extra(self, state: PassState, extra: Extra) -> None:
        trace, core = self.trace, extra.core
        x, a = trace.tensors[core.start], trace.tensors[core.end]
        node = trace.node(core.end)
        gradient, layout = when_leaves(node), extra.origin.channel_dim
        op, role = extra.op or type(self._module(extra.module)).__name__, extra.role
        if node is not None and isinstance(node[0], BackwardCFunction) and extra.kind == "activation":
            state.cannot_see(f"{extra.site} (backward)", REASONS["own backward"])
            role = role if extra.spec else "other"  # a step with a gradient of its own is no dead unit
        site = state.site(extra.site, extra.kind, op, extra.origin, extra.module, a, layout, role)
        if not trace.gone.isdisjoint(i for op in core.path for i in (*op.inputs, *op.outputs)):
            state.cannot_see(f"{extra.site} (traced pass)", REASONS["no room"])
            return
        if extra.kind == "attention":
            state.tensor(site, a, None, gradient)
            return
        if extra.kind != "activation":
            show_block(state, extra, site, trace.tensors, gradient)
            return
        if extra.spec is not None:
            state.specs[extra.site] = extra.spec
        operands = {i: trace.tensors[i] for op in core.path for i in op.inputs}  # not the whole pass
        f = extra.secant(x, a) if extra.random else function_of(core.path, core.start, core.end, operands)
        state.activation(site, x, a, f, gradient)

    def _module(self, name: str) -> Any:
        return next((frame.module for frame, _ in self._ended if frame.module_info.name == name), None)

    def _part(self, state: PassState, plan: Plan, frame: Frame, call: ModuleCall) -> None:
        role, info = frame.module_info.role, frame.module_info
        if call.made is None or frame.hidden:
            return
        value, gradient = self.trace.tensors[call.made], when_leaves(self.trace.node(call.made))
        origin = UNKNOWN if call.given is None else plan.origins[call.given]
        layout = plan.origins[call.made].channel_dim
        kind = {"activation": "activation", "linear": "linear", "norm": "norm", "attention": "attention"}.get(role)
        if kind is None and info.name and call.added and info.trains:
            kind, origin = "stream", plan.origins[call.made]
        if kind is None or (info.name, frame.call) in plan.suppressed:
            return
        if kind in ("activation", "linear", "norm") and call.given is None:
            return
        if kind == "attention":
            origin = UNKNOWN
        elif kind == "activation":
            layout = origin.channel_dim
        usual = {"activation": "hidden activation", "norm": "normaliser"}.get(kind, "")
        serves = plan.roles.get((info.name, frame.call), usual)
        op = type(frame.module).__name__
        site = state.site(frame.site, kind, op, origin, info.name, value, layout, serves)  # type: ignore[arg-type]
        if call.made in self.trace.gone or call.given in self.trace.gone:
            state.cannot_see(f"{frame.site} (traced pass)", REASONS["no room"])
            return
        if kind == "activation":
            assert call.given is not None
            state.activation(site, self.trace.tensors[call.given], value, activation_of(frame), gradient)
        elif kind == "linear":
            assert call.given is not None
            state.linear(site, self.trace.tensors[call.given], value, frame.module, gradient)
        else:
            state.tensor(site, value, frame.module, gradient)


def bare_anatomy(model: nn.Module, flow: Dataflow) -> Anatomy:
    """Regions and gates alone."""
    norms = numbered(find_norms(flow))
    regions, gates, skipped = find_regions(flow, norms)
    nothing: dict[str, Any] = dict.fromkeys(_PARTS, ())
    return Anatomy(
        model=type(model).__name__,
        modules={},
        values=tuple(flow.values),
        operations=tuple(flow.operations),
        regions=regions,
        gates=gates,
        norms=norms,
        inputs=(),
        outputs=flow.outputs,
        skipped=skipped,
        passes=0,
        tensors=(),
        **nothing,
    )


def _without_tensors(region: Region) -> Region:
    """A region that keeps nothing of the pass alive."""
    return replace(region, f=None)  # type: ignore[arg-type]


def activation_of(frame: Frame) -> Callable[[Tensor], Tensor]:
    """The function of an activation module of torch's or ours."""
    module = frame.module
    if frame.f is not None:
        return frame.f
    if isinstance(module, nn.PReLU):  # derivatives of half precision are taken in float32
        weight = module.weight.detach().clone()  # as it is in this pass: who keeps the function keeps the slope
        return lambda x: F.prelu(x, weight.to(x.dtype))
    return (lambda x: module.forward(x.clone())) if frame.module_info.in_place else module.forward


def first_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The first tensor a module was called with."""
    return args[0] if args and isinstance(args[0], Tensor) else next(tensors((args, kwargs)), None)


def is_transformed() -> bool:
    """Whether a ``torch.func`` transform is running: its tensors must not leave it."""
    peek = getattr(torch._C._functorch, "peek_interpreter_stack", None)
    return peek is not None and peek() is not None
