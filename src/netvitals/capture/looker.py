"""The looker: follows one forward pass and its backward pass, finds the sites, and shows them to the vital signs.

While armed it has hooks on the modules of the model and, between the entry and the exit of the model's forward, a
torch function mode that sees functional calls. Unarmed it leaves nothing behind. Tensors are reduced at once, in the
hook; none is kept but what a gradient that is still to come will be compared with.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from netvitals.capture.functions import MEANING, RESHAPING, Meaning
from netvitals.capture.panel import Panel, SiteSight, aside, say
from netvitals.capture.reading import Sheet
from netvitals.capture.replay import Replay
from netvitals.capture.roles import (
    ACTIVATIONS,
    BATCH_NORMS,
    CHANNEL_NORMS,
    CONVOLUTIONS,
    REASONS,
    Role,
    is_elementwise,
    role,
)
from netvitals.capture.sight import ActivationSight, LinearSight, TensorSight
from netvitals.capture.site import Kind, Site, Unseen
from netvitals.capture.trail import UNKNOWN, Origin, Trail, channel_dim


class Hook:
    """A hook that a copied or saved model does not carry along: the copy gets one that does nothing."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., None]) -> None:
        self.call = call

    def __call__(self, *args: Any) -> None:
        self.call(*args)

    def __reduce__(self) -> tuple[Callable[[], Callable[..., None]], tuple[()]]:
        return _inert, ()


def _nothing(*args: Any) -> None:
    """What is left of a hook in a copy."""


def _inert() -> Callable[..., None]:
    return _nothing


@dataclass
class Part:
    """One module of the model: its name and what it is; what was found out about it on the way."""

    name: str
    role: Role
    replays: bool = False       # must be run again with its random numbers and buffers
    in_place: bool = False
    tried: bool = False         # whether a user's activation was tried for being elementwise


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


class _Mode(TorchFunctionMode):
    def __init__(self, looker: Looker) -> None:
        super().__init__()
        self._looker = looker

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        meaning = MEANING.get(func)
        if meaning is None or self._looker.blind:
            return func(*args, **kwargs) if kwargs else func(*args)
        return self._looker.function(meaning, func, args, kwargs or {})


class Looker:
    """Looks at one forward pass (and the backward pass that follows) of ``model`` when armed.

    Args:
        model: the module whose call is looked at.
        panel: the vital signs to show the sites to.
        passive: look only at passes that autograd records (a user's validation pass is none of our business).

    ``sites`` and ``unseen`` hold what was found in all passes so far.
    """

    def __init__(self, model: nn.Module, panel: Panel, *, passive: bool = True) -> None:
        self.model = model
        self.panel = panel
        self.passive = passive
        self.sites: dict[str, Site] = {}
        self.unseen: dict[str, Unseen] = {}
        self.looked = False                 # a pass was seen since arming
        self.blind = True                   # inside a module that is looked at as a whole, or not looking at all
        self._sheet: Sheet | None = None
        self._handles: list[Any] = []
        self._known: weakref.WeakKeyDictionary[nn.Module, Part] = weakref.WeakKeyDictionary()
        self._parts: dict[nn.Module, Part] = {}
        self._frames: list[Frame] = []
        self._counts: dict[str, int] = {}
        self._trail = Trail()
        self._mode = _Mode(self)
        self._mode_on = False
        self._enter_hook, self._leave_hook = Hook(self._enter), Hook(self._leave)

    # ---------------------------------------------------------------- arming

    def arm(self, sheet: Sheet) -> None:
        """Put the hooks in place; the next pass is looked at and written to ``sheet``."""
        self.disarm()
        self._sheet, self.looked = sheet, False
        self._survey()
        if self._parts[self.model].role == "compiled":
            return
        for module, part in self._parts.items():
            if part.role == "container" and module is not self.model:
                continue
            self._handles += (
                module.register_forward_pre_hook(self._enter_hook, with_kwargs=True),
                module.register_forward_hook(self._leave_hook, with_kwargs=True,
                                             always_call=module is self.model))

    def disarm(self) -> None:
        """Take every hook away again. Gradients that arrive later are not looked at."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._sheet = None
        self._end()

    def _survey(self) -> None:
        self._parts = {}
        closed: list[str] = []
        for name, module in self.model.named_modules():
            if any(name.startswith(prefix) for prefix in closed):
                continue
            part = self._known.get(module)
            if part is None or (part.role == "compiled") != (role(module) == "compiled"):
                part = self._known[module] = Part(name, role(module))
                part.in_place = bool(getattr(module, "inplace", False))
                part.replays = part.role == "candidate" or isinstance(module, nn.RReLU) or (
                    part.role == "activation" and not isinstance(module, ACTIVATIONS))
            part.name = name
            self._parts[module] = part
            if part.role in ("mixing", "recurrent", "compiled", "attention"):
                new = (name or "model") not in self.unseen
                self._cannot_see(name or "model", REASONS[part.role])
                if new and part.role == "compiled":
                    say(f"{name or 'the model'} is compiled and cannot be looked into; {REASONS['compiled']}")
            if part.role == "compiled":
                closed.append(f"{name}." if name else "")

    def _cannot_see(self, name: str, reason: str) -> None:
        self.unseen.setdefault(name, Unseen(name, reason))

    # ---------------------------------------------------------------- the forward pass

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._frames:
            if module is not self.model or self.looked or (self.passive and not torch.is_grad_enabled()):
                return
            if _transformed():
                self._cannot_see("model", "it runs inside a torch.func transform")
                return
            self.looked = True
            self._begin(args, kwargs)
        elif self.blind:
            return
        part = self._parts.get(module)
        if part is None:
            return
        frame = Frame(module, part)
        self._frames.append(frame)
        try:
            self._prepare(frame, args, kwargs)
        except Exception as error:
            self._give_up(error)

    def _prepare(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        part = frame.part
        if part.role == "plain" or part.role == "container":
            return
        if part.role == "compiled":
            self._leave_mode()
            return
        x = _first_tensor(args, kwargs)
        if x is not None:
            frame.origin = self._trail.origin(x)
        if part.role == "candidate" or (part.role == "activation" and part.replays and not part.tried):
            with torch._C.DisableTorchFunction():
                self._try(frame, x)
            if part.role == "plain":
                return
        if part.role == "activation" and x is not None:
            if part.replays:
                frame.f = Replay(frame.module, x.device, in_place=part.in_place)
            frame.x = _copy(x) if part.in_place else x
        elif part.role == "linear" or part.role == "norm":
            frame.x = x
        self.blind = True

    def _try(self, frame: Frame, x: Tensor | None) -> None:
        part, module = frame.part, frame.module
        part.tried = True
        name = part.name or "model"
        if x is None or not x.is_floating_point():
            part.role = "plain"
            return
        given = _copy(x)
        version = given._version
        try:
            with aside():
                replay = Replay(module, x.device)
                replay(given)
                part.in_place = given._version != version
                verdict = is_elementwise(replay, x) if part.role == "candidate" else True
        except Exception as error:      # it wants more than one tensor, or is no function of its input alone
            verdict = None
            self._cannot_see(name, f"it could not be tried as an activation ({type(error).__name__})")
        part.role = "activation" if verdict else "plain"
        if verdict is False:
            self._cannot_see(name, REASONS["mixing"])

    def _leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if not self._frames:
            return
        if self.blind and self._frames[-1].module is not module and module is not self.model:
            return      # a part of something that is looked at as a whole
        while self._frames:         # a call that raised and was caught inside left its frame behind
            frame = self._frames.pop()
            if frame.module is module:
                break
        try:
            self.blind = False
            if frame.part.role == "compiled":
                self._enter_mode()
            if output is not None:
                self._look_at(frame, output)
        except Exception as error:
            self._give_up(error)
        finally:
            if not self._frames:
                self._end()

    def _look_at(self, frame: Frame, output: Any) -> None:
        part, module, op = frame.part, frame.module, type(frame.module).__name__
        value = output if isinstance(output, Tensor) else _first_tensor((output,), {})
        if value is None or not value.is_floating_point():
            return
        name = part.name or "model"
        if part.role == "activation" and frame.x is not None:
            f = frame.f or (_on_copy(module.forward) if part.in_place else module.forward)
            self._activation(name, op, part.name, frame.x, frame.origin, value, f)
        elif part.role == "linear" and frame.x is not None:
            convolution = isinstance(module, CONVOLUTIONS)
            self._trail.mark(value, "linear", 1 if convolution else -1)
            site = self._site(name, "linear", op, frame.origin, part.name, 1 if convolution and value.ndim > 2 else -1)
            self._show("linear", LinearSight(site, frame.x.detach(), value.detach(), module), value)
        elif part.role == "norm" and frame.x is not None:
            batch, channel = isinstance(module, BATCH_NORMS), isinstance(module, CHANNEL_NORMS)
            known = 1 if channel else frame.origin.channel_dim if value.ndim > 3 else -1
            self._trail.mark(value, "bn_direct" if batch else "norm_direct", known)
            self._tensor(name, "norm", op, frame.origin, value, module, part.name)
        elif part.role == "attention":
            self._trail.mark(value, "linear", -1)
            self._tensor(name, "attention", op, UNKNOWN, value, module, part.name)
        elif frame.added and self._frames:
            self._tensor(name, "stream", op, self._trail.origin(value), value, module, part.name)
        if not self._frames:
            taken = any(p.name == "output" for p in self._parts.values())
            self._tensor("output()" if taken else "output", "output", op, self._trail.origin(value), value,
                         None, "")

    # ---------------------------------------------------------------- functional calls

    def function(self, meaning: Meaning, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a torch function that means something, and look at it. The mode is off inside."""
        x = args[0] if args else kwargs.get("input", kwargs.get("self"))
        before = None
        try:
            if meaning.what in ("activation", "ambiguous", "clamp"):
                before = self._activation_input(meaning, x, args, kwargs)
        except Exception as error:
            self._give_up(error)
        output = func(*args, **kwargs)
        try:
            if self._frames:
                self._follow(meaning, func, x, before, args, kwargs, output)
        except Exception as error:
            self._give_up(error)
        return output

    def _activation_input(self, meaning: Meaning, x: Any, args: tuple[Any, ...],
                          kwargs: dict[str, Any]) -> tuple[Tensor, bool, Origin] | None:
        if not isinstance(x, Tensor) or not x.is_floating_point() or "out" in kwargs:
            return None
        origin = self._trail.origin(x)
        if meaning.what == "ambiguous" and origin.follows not in ("linear", "bn_direct", "norm_direct", "post_add"):
            return None
        if meaning.what == "clamp" and not _is_relu(args, kwargs):
            return None
        in_place = meaning.in_place or bool(kwargs.get("inplace")) or (len(args) > 1 and args[-1] is True)
        return (_copy(x) if in_place else x), in_place, origin

    def _follow(self, meaning: Meaning, func: Any, x: Any, before: tuple[Tensor, bool, Origin] | None,
                args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        frame, trail, what = self._frames[-1], self._trail, meaning.what
        owner = frame.part.name
        if before is not None:
            call = func if not before[1] else _on_copy(func)
            rest, named = args[1:], {k: v for k, v in kwargs.items() if k not in ("input", "self")}
            f = call if not rest and not named else lambda t: call(t, *rest, **named)
            op = "relu" if what == "clamp" else meaning.op
            self._activation(_functional(owner, op), op, owner, before[0], before[2], output, f)
        elif what == "moving" and isinstance(x, Tensor) and isinstance(output, Tensor):
            origin = trail.origin(x)
            trail.mark(output, origin.follows, None if meaning.op in RESHAPING else origin.channel_dim)
        elif what == "splitting" and isinstance(x, Tensor):
            origin = trail.origin(x)
            for piece in output:
                trail.mark(piece, origin.follows, origin.channel_dim if piece.ndim == x.ndim else None)
        elif what == "addition":
            self._addition(frame, x, args[1] if len(args) > 1 else kwargs.get("other"), output)
        elif what == "mixing":
            self._cannot_see(_functional(owner, meaning.op), REASONS["mixing"])
        elif what == "attention":
            name = _functional(owner, meaning.op)
            self._cannot_see(name, "the softmax runs inside a fused kernel; only the output is looked at")
            self._tensor(name, "attention", meaning.op, UNKNOWN, output, None, owner)
        elif what == "linear" or what == "convolution":
            trail.mark(output, "linear", 1 if what == "convolution" else -1)
            self._cannot_see(_functional(owner, meaning.op), "a layer called as a function has no module; "
                             "its parameters are looked at under their own names")
        elif what in ("batch norm", "channel norm", "last norm"):
            trail.mark(output, "bn_direct" if what == "batch norm" else "norm_direct", -1 if what == "last norm" else 1)

    def _addition(self, frame: Frame, x: Any, y: Any, output: Any) -> None:
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return
        known = [t for t in (x, y) if isinstance(t, Tensor)]
        layout = next((d for d in (self._trail.origin(t).channel_dim for t in known) if d is not None), None)
        states = [t for t in known if t.ndim > 1 and not isinstance(t, nn.Parameter)]
        if len(states) == 2:
            frame.added = True
            self._trail.mark(output, "post_add", layout)
        elif states:        # a bias or a constant: what was there before still tells the distribution
            self._trail.mark(output, self._trail.origin(states[0]).follows, layout)

    # ---------------------------------------------------------------- sites and sights

    def _site(self, name: str, kind: Kind, op: str, origin: Origin, owner: str, dim: int) -> Site:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        if count > 1:
            name = f"{name}#{count}"
        follows = origin.follows
        known = self.sites.get(name)
        if known is not None and known.follows == follows and known.channel_dim == dim and known.op == op:
            return known
        site = self.sites[name] = Site(name, kind, op, follows, dim, owner)
        return site

    def _activation(self, name: str, op: str, owner: str, x: Tensor, origin: Origin, value: Any,
                    f: Callable[[Tensor], Any]) -> None:
        if not isinstance(value, Tensor) or value.shape != x.shape:
            self._cannot_see(name, "its output has another shape than its input")
            return
        site = self._site(name, "activation", op, origin, owner, channel_dim(x, origin.channel_dim))
        self._trail.mark(value, "other", origin.channel_dim)
        self._show("activation", ActivationSight(site, x.detach(), value.detach(), f), value)

    def _tensor(self, name: str, kind: Kind, op: str, origin: Origin, value: Tensor, module: nn.Module | None,
                owner: str) -> None:
        dim = channel_dim(value, self._trail.origin(value).channel_dim)
        site = self._site(name, kind, op, origin, owner, dim)
        self._show("tensor", TensorSight(site, value.detach(), module), value)

    def _show(self, method: str, sight: SiteSight, value: Tensor) -> None:
        sheet = self._sheet
        if sheet is None:
            return
        if self.panel.wants(method):
            with aside():
                self.panel.show(method, sheet, sight)
        if value.requires_grad and self.panel.wants("gradient"):
            self._await_gradient(sheet, sight, value)

    def _await_gradient(self, sheet: Sheet, sight: SiteSight, value: Tensor) -> None:
        tensors = [t for t in (getattr(sight, key, None) for key in ("x", "a", "y", "value")) if t is not None]
        versions = [t._version for t in tensors]
        waiting = True

        def arrived(g: Tensor) -> None:
            nonlocal waiting
            if not waiting or self._sheet is not sheet:
                return
            waiting = False
            if [t._version for t in tensors] != versions:
                self._cannot_see(sight.site.name + " (gradient)", "its tensor was overwritten in place before the "
                                 "gradient arrived")
                return
            with aside():
                self.panel.show("gradient", sheet, sight, g.detach())

        with torch._C.DisableTorchFunction():
            value.register_hook(arrived)

    # ---------------------------------------------------------------- beginning and end of a pass

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._counts.clear()
        self._trail.clear()
        for tensor in _tensors((args, kwargs)):
            self._trail.mark(tensor, "input")
        self.blind = False
        self._enter_mode()

    def _end(self) -> None:
        self._leave_mode()
        self._frames.clear()
        self._trail.clear()
        self.blind = True

    def _enter_mode(self) -> None:
        if not self._mode_on:
            self._mode.__enter__()
            self._mode_on = True

    def _leave_mode(self) -> None:
        if self._mode_on:
            self._mode_on = False
            self._mode.__exit__(None, None, None)

    def _give_up(self, error: Exception) -> None:
        """An error of our own: say it, look no further in this pass, let training go on."""
        where = self._frames[-1].part.name if self._frames else ""
        self.blind = True
        self._sheet = None
        say(f"looking at {where or 'the model'!r} failed ({type(error).__name__}: {error}); this pass is not measured")


def _functional(owner: str, op: str) -> str:
    return f"{owner}.{op}()" if owner else f"{op}()"


def _copy(x: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        return x.detach().clone()


def _on_copy(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: f(x.clone(), *args, **kwargs)


def _is_relu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    low = args[1] if len(args) > 1 else kwargs.get("min")
    high = args[2] if len(args) > 2 else kwargs.get("max")
    return isinstance(low, int | float) and low == 0 and high is None


def _tensors(nest: Any, depth: int = 4) -> Iterator[Tensor]:
    if isinstance(nest, Tensor):
        yield nest
    elif depth and isinstance(nest, dict):
        for item in nest.values():
            yield from _tensors(item, depth - 1)
    elif depth and isinstance(nest, list | tuple):
        for item in nest:
            yield from _tensors(item, depth - 1)


def _first_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    if args and isinstance(args[0], Tensor):
        return args[0]
    return next(_tensors((args, kwargs)), None)


def _transformed() -> bool:
    peek = getattr(torch._C._functorch, "peek_interpreter_stack", None)
    return peek is not None and peek() is not None
