"""What a step did to the parameters, and when a step is over: both are told by the optimizers themselves."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from netvitals._device import is_captured
from netvitals.capture.engine.schedule import warn
from netvitals.capture.shards import local

Moved = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], None]  # (gradients, values before)
Ended = Callable[[bool], None]  # (the passes of the next step have run already)

PATIENCE = 512  # calls without a step of any optimizer after which none is waited for


class OptimizerHooks:
    """Follows the optimizers of a model from the first step to :meth:`close`, by torch's hooks around their step.

    A step is over when every optimizer that took part in the last one has stepped, or when one of them steps again.
    While armed, ``moved`` is called at the end of a step with the gradients that were used and the values before.
    Without optimizers given, those that hold parameters of the model are noticed. For a loop that moves parameters by
    hand, copies of the gradients are taken as they arrive.

    Args:
        parameters: the model's parameters by name.
        optimizers: those that move them; may be empty.
        ended: called after each step.

    >>> net = torch.nn.Linear(2, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> steps = []
    >>> hooks = OptimizerHooks(dict(net.named_parameters()), [opt], ended=lambda *_: steps.append(len(steps)))
    >>> net(torch.ones(1, 2)).sum().backward(); opt.step(); hooks.close()
    >>> steps
    [0]
    """

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], optimizers: Iterable[Optimizer] = (), ended: Ended | None = None
    ) -> None:
        self._names = {id(p): name for name, p in parameters.items()}
        self._parameters = parameters
        self._given = [weakref.ref(o) for o in optimizers]
        self._expected = list(self._given)  # these end a step; nobody knows them yet where none was given
        self._ended = ended
        self._running: list[Any] = []  # an optimizer may call another one's step inside its own
        self._stepped: list[Any] = []
        self._seen = self._searched = self._gave_up = False
        self._calls = 0  # of the watch's step, since an optimizer stepped
        self._smallest: weakref.WeakKeyDictionary[Any, Tensor] = weakref.WeakKeyDictionary()
        self._mark: tuple[Tensor, Tensor | None, int] | None = None  # a parameter and its gradient after the step
        self._versions = _versions(parameters)
        self._usual: Callable[[], Any] = nobody  # the optimizer that ends steps all alone, once it has done so
        self._resting = self.passed = 0  # steps that need only be counted, and those that were
        self._moved: Moved | None = None
        self._keep = True
        self.on_cuda = any(p.is_cuda for p in parameters.values())
        self.about_to_step: Callable[[], None] | None = None  # called once, before the first optimizer of a step
        self._arriving: list[Any] = []
        self.grads: dict[str, Tensor] = {}
        self.before: dict[str, Tensor] = {}
        self._handles = [register_optimizer_step_post_hook(torch.compiler.disable(self._after))]
        self.attend()

    # ---------------------------------------------------------------- measured steps

    def attend(self) -> None:
        """Hear of the beginning of steps, too."""
        if len(self._handles) == 1:
            self._handles.append(register_optimizer_step_pre_hook(torch.compiler.disable(self._before)))

    def arm(self, moved: Moved, keep: bool = True) -> None:
        """Look at the step that comes next, and call ``moved`` at its end; ``keep`` its gradients and the values before
        it.
        """
        self.disarm()
        self.attend()
        self._moved, self._keep = moved, keep
        if keep and not self._seen and not self._expected:
            arrived = torch.compiler.disable(self._arrived)
            self._arriving = [
                p.register_post_accumulate_grad_hook(arrived) for p in self._parameters.values() if p.requires_grad
            ]

    def disarm(self) -> None:
        """Look at no step; steps are counted all the same."""
        for handle in self._arriving:
            handle.remove()
        self._arriving, self._moved, self.about_to_step = [], None, None
        self.grads, self.before = {}, {}

    def close(self) -> None:
        """Take every hook away."""
        self.disarm()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._stepped, self._running, self._mark, self._usual = [], [], None, nobody

    def settle(self) -> None:
        """The step is over: report now if no optimizer, or not every one of them, has stepped."""
        if self._moved is not None:
            grads = (
                self.grads
                if self.grads or not self._keep
                else {n: p.grad for n, p in self._parameters.items() if p.grad is not None}
            )
            moved, self._moved = self._moved, None
            moved(grads, self.before)

    # ---------------------------------------------------------------- who ends a step

    def lead(self) -> bool:
        """Whether optimizers end the steps; else a call of the watch's ``step`` does, which asks this each time."""
        self._calls += 1
        if self._calls > PATIENCE:
            if not self._gave_up:
                warn(
                    f"step() of the watch was called {PATIENCE} times, but no optimizer has made a step. From now "
                    "on each call of the watch's step() counts as one training step",
                    "optimizer-not-stepping",
                )
            self._gave_up = True
        if self._gave_up:
            return False
        if self._seen:
            return True
        if not self._expected and not self._searched:
            self._searched = True
            found = [o for o in gc.get_objects() if issubclass(type(o), Optimizer) and self._holds(o)]
            self._expected = [weakref.ref(o) for o in found]
        return bool(self._expected) and _versions(self._parameters) == self._versions  # else moved by somebody else

    def plainly_stepped(self) -> bool:
        """Whether the one optimizer of the model has stepped since the last call, and nothing has happened since: what
        :meth:`lead` and :meth:`just_stepped` find out with more ado. Counts as a call where it is so."""
        if self._calls or self._mark is None or self._stepped or not self._seen:
            return False
        p, grad, version = self._mark
        if p.grad is not None and (p.grad is not grad or grad._version != version):
            return False
        self._calls = 1
        return True

    def just_stepped(self, waits: bool) -> bool:
        """Whether an optimizer has stepped since the last call, and no gradient has arrived since.

        Args:
            waits: what to answer where gradients were overwritten, by ``zero_grad(set_to_none=False)`` or by the next
                backward pass.
        """
        if self._calls != 1 or self._mark is None:
            return False
        p, grad, version = self._mark
        if p.grad is None:
            return True
        if p.grad is not grad:
            return False
        return grad is None or grad._version == version or waits

    def rest(self, steps: int) -> bool:
        """Only count the next ``steps`` of the one optimizer; whether that is enough to know of it."""
        alone = len(self._handles) == 1 and self._mark is not None and not self._stepped and self._moved is None
        self._resting, self.passed = (steps, 0) if alone and not self.on_cuda else (0, 0)
        return self._resting > 0

    def wake(self, called: bool | None) -> None:
        """Hear of every step again.

        Args:
            called: the watch's step, since the last one that was counted; None where another was heard of since.
        """
        self._resting = self.passed = 0
        if called is not None and self._mark is not None:
            self._calls = int(called)
            self._mark = _marked(self._mark[0])

    def end(self, late: bool = False) -> None:
        """The step is over; ``late`` where not every optimizer took part."""
        if late or not self._expected:  # who did not step is not waited for again
            self._expected = [weakref.ref(o) for o in self._stepped]
            self._usual = nobody
        self._stepped = []
        self.settle()
        if self._ended is not None:
            self._ended(late)

    @property
    def optimizers(self) -> list[Optimizer]:
        """Those that were given, or that were seen at work."""
        return [o for o in (ref() for ref in self._given or self._expected) if o is not None] or list(self._stepped)

    @property
    def incomplete(self) -> bool:
        """Some optimizers have stepped, and others are waited for."""
        return bool(self._stepped)

    def _complete(self) -> bool:
        if len(self._expected) == 1 and (self._given or self._seen) and self._expected[0]() is self._stepped[-1]:
            return True
        expected = [o for o in (ref() for ref in self._expected) if o is not None]
        if expected and (self._given or self._seen):
            return all(any(o is one for one in self._stepped) for o in expected)
        held = {id(p) for o in self._stepped for group in o.param_groups for p in group["params"]}
        return all(id(p) in held for p in self._parameters.values() if p.requires_grad)

    def _holds(self, optimizer: Optimizer) -> bool:
        groups = getattr(optimizer, "param_groups", ())  # a wrapper that was never made as an optimizer
        return any(id(p) in self._names for group in groups for p in group["params"])

    def _follows(self, optimizer: Any) -> bool:
        if self._given and self._given[0]() is optimizer:
            return True
        given = [o for o in (ref() for ref in self._given) if o is not None]
        if given:
            return any(o is optimizer for o in given)
        return optimizer in self._smallest or self._holds(optimizer)

    # ---------------------------------------------------------------- hooks

    # Every training step passes here, between the user's own kernels: a call costs microseconds, so the usual way, one
    # optimizer and nothing to look at, makes none that it does not need.

    def _before(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if optimizer is not self._usual() and not self._follows(optimizer):
            return None
        if self.on_cuda and is_captured():
            return None
        if self._running and any(o is optimizer for o in self._running):  # its last step raised
            self._running.clear()
        self._running.append(optimizer)
        if len(self._running) > 1:
            return None
        if self._stepped and any(o is optimizer for o in self._stepped):
            self.end(late=True)
        if self.about_to_step is not None and not self._stepped:
            look, self.about_to_step = self.about_to_step, None
            look()
        if self._moved is None or not self._keep:
            return None
        mine = [(name, local(p.detach())) for name, p in self._mine(optimizer)]
        self.before.update(zip((name for name, _ in mine), _copied([p for _, p in mine])))
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self._take_gradients(optimizer)
            return None

        def watched() -> Any:
            loss = closure()
            if self._moved is not None:
                self._take_gradients(optimizer)
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched}
        return (args[0], watched, *args[2:]), kwargs

    def _take_gradients(self, optimizer: Any) -> None:
        """Copy the gradients that a step is about to use: an optimizer may write into them."""
        mine = [(name, p.grad.detach()) for name, p in self._mine(optimizer) if p.grad is not None]
        found = _copied([g for _, g in mine])
        scale = getattr(optimizer, "grad_scale", None)  # a fused one divides by what a GradScaler multiplied with
        if isinstance(scale, Tensor):
            found = [g / scale.to(g.device) for g in found]
        self.grads.update(zip((name for name, _ in mine), found))

    def _after(self, optimizer: Any, *_: Any) -> None:
        usual = optimizer is self._usual()
        if self._resting and usual:
            self._resting -= 1
            self.passed += 1
            return
        if self.on_cuda and is_captured():  # replays do not come here: each call of step() is one
            self._gave_up = self._gave_up or usual or self._follows(optimizer)
            return
        if len(self._handles) == 2:
            if not self._running or not (usual or self._follows(optimizer)):
                return
            self._running.pop()
            if self._running:
                return
        elif not usual:
            return
        if usual and self._moved is None and not self._stepped and self._ended is not None and self._mark is not None:
            grad = self._mark[0].grad
            self._mark = (self._mark[0], grad, 0 if grad is None else grad._version)
            self._gave_up, self._calls = False, 0
            if len(self._handles) == 2 and len(self._given) == 1:
                self._handles.pop().remove()  # no other is followed, so that none can step inside its step
            self._ended(False)
            return
        self._stepped.append(optimizer)
        self._remember(optimizer)
        complete = self._complete()
        self._seen, self._gave_up, self._calls = True, False, 0
        if complete and len(self._expected) == 1 and self._expected[0]() is optimizer:
            self._usual = self._expected[0]
        if complete:
            self.end()

    def _mine(self, optimizer: Optimizer) -> list[tuple[str, Tensor]]:
        return [
            (self._names[id(p)], p) for group in optimizer.param_groups for p in group["params"] if id(p) in self._names
        ]

    def _remember(self, optimizer: Any) -> None:
        """What the gradient of one small parameter is now, to notice the next backward pass by."""
        p = self._smallest.get(optimizer)
        if p is None:
            mine = [p for _, p in self._mine(optimizer)]
            p = min((q for q in mine if q.grad is not None), key=lambda q: q.numel(), default=mine[0])
            self._smallest[optimizer] = p
        self._mark = _marked(p)

    def _arrived(self, p: Tensor) -> None:
        if p.grad is not None and self._moved is not None and not self._stepped:
            self.grads[self._names[id(p)]] = p.grad.detach().clone()


def _marked(p: Tensor) -> tuple[Tensor, Tensor | None, int]:
    """A parameter, its gradient, and how often that was written to."""
    return p, p.grad, 0 if p.grad is None else p.grad._version


def _copied(tensors: list[Tensor]) -> Sequence[Tensor]:
    """A copy of each tensor; times one is the quickest copy of many."""
    if tensors and all(type(t) is Tensor and t.layout is torch.strided for t in tensors):
        return torch._foreach_mul(tensors, 1)
    return [t.clone() for t in tensors]


def nobody() -> None:
    """In the place of a reference to an optimizer."""


def _versions(parameters: Mapping[str, Tensor]) -> int:
    """How often the parameters were written to."""
    return sum(p._version for p in parameters.values() if not p.is_inference())
