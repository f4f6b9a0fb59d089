"""Listens to the first steps of a training loop and answers the questions of :data:`netvitals.checks.CHECKS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from netvitals.capture import BeforeScripting, Hook, detached_context
from netvitals.checks import backward
from netvitals.checks.batches import MODAL, BatchChecks
from netvitals.checks.check import CHECKS, THINGS, Answer, Check, Record
from netvitals.checks.losses import LossChecks
from netvitals.checks.parameters import ParameterChecks

STEPS = 50  # that are listened to
WHOLE = frozenset({0, 1, 2, 3, 4, 8, 16, 32})  # steps on which every parameter and node is measured
IDLE = 10  # losses in a row without an optimizer step


class LoopChecks:
    """Collects exact facts of a loop: its losses, gradients, optimizers, passes and labels.

    Hooks are on the optimizers, on the watched modules and around ``torch.autograd.backward``, for ``STEPS`` steps;
    what is asked of evaluations stays until the end.
    """

    def __init__(
        self,
        model: nn.Module,
        roots: Sequence[nn.Module],
        optimizers: Callable[[], Iterable[Optimizer]],
        passes: bool = True,
    ) -> None:
        names = {id(p): n for n, p in model.named_parameters()}
        self._model, self._roots, self._passes = model, list(roots), passes
        self._handles: list[Any] = []
        self._global: list[Any] = []
        self.record = Record()
        self._parameters = ParameterChecks(self.record, model, optimizers, names)
        self._batches = BatchChecks(self.record, model)
        self._losses = LossChecks(self.record, names, self._batches)
        self._idle = 0
        self.open = False

    @property
    def why(self) -> dict[str, str]:
        """What could not be checked → the reason."""
        return self.record.why

    # ------------------------------------------------------------------ beginning and end

    def begin(self) -> None:
        """Listen."""
        self.open = True
        backward.listen(self)
        self._global = [
            register_optimizer_step_pre_hook(torch.compiler.disable(self._guarded(self._step_begins))),
            register_optimizer_step_post_hook(torch.compiler.disable(self._guarded(self._step_ends))),
        ]
        if self._passes:
            for root in self._roots:
                BeforeScripting.put_on(root, self.close)
                self._handles.append(Hook(self._enters).before(root, with_kwargs=True))
            for name, teacher in self._batches.teachers.items():
                hook = Hook(lambda *_, name=name: self._guarded(self._batches.teacher_entered)(name))
                self._handles.append(hook.before(teacher))

    def end_first_steps(self) -> None:
        """The first steps are over: only evaluations are still looked at."""
        if not self.open:
            return
        self.open = False
        backward.stop(self)
        for handle in self._global:
            handle.remove()
        self._global = []
        self._batches.forget()
        self._losses.leaves.clear()
        if not any(isinstance(m, MODAL) for m in self._model.modules()):
            self.leave()  # no layer of it knows train from eval mode

    def close(self) -> None:
        """Take every hook away."""
        self._guarded(self.conclude)()
        self.end_first_steps()
        self.leave()

    def leave(self) -> None:
        """Take the hooks off the model."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for root in self._roots:
            BeforeScripting.take_off(root, self.close)

    def _guarded(self, work: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any) -> None:
            try:
                with detached_context():
                    work(*args)
            except Exception as error:  # an error of ours must not end the user's training
                self.why.setdefault("checks", f"{type(error).__name__}: {error}")
                self.end_first_steps()

        return call

    # ------------------------------------------------------------------ events of the loop

    @property
    def _whole(self) -> bool:
        return self.record.step in WHOLE

    def backward_begins(self, tensors: Any, given: bool) -> None:
        """A backward pass begins."""
        self._guarded(self._backward_begins)(tensors, given)

    def _backward_begins(self, tensors: Any, given: bool) -> None:
        self._parameters.backward_begins()
        self._losses.backward_begins(tensors, given, self._whole, len(self._parameters.slots) > 1)

    def backward_ends(self) -> None:
        """A backward pass is over."""
        self._guarded(self._parameters.backward_ends)(self._whole)

    def _step_begins(self, optimizer: Optimizer, *_: Any) -> None:
        self._parameters.step_begins(optimizer, self._whole)
        if self._losses.points or self._whole:
            self._losses.gradients_broke([p for group in optimizer.param_groups for p in group["params"]])

    def _step_ends(self, optimizer: Optimizer, *_: Any) -> None:
        self._parameters.step_ends(optimizer, self._whole)

    def _enters(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        grad = torch.is_grad_enabled()
        if grad:
            self._parameters.forward_begins()
        try:
            with detached_context():  # what is computed here is no operation of the model's
                self._batches.entered(module, args, kwargs, grad, self.open)
        except Exception as error:
            self.why.setdefault("passes", f"{type(error).__name__}: {error}")

    def end_step(self, loss: Any, busy: bool = False) -> None:
        """The loop has given a loss; while a measurement is under way (``busy``) the model is not run again."""
        if self.open:
            self._guarded(self._end_step)(loss, busy)

    def _end_step(self, loss: Any, busy: bool) -> None:
        self._idle = 0 if self._parameters.stepped else self._idle + 1
        if self._idle == IDLE:
            graph = isinstance(loss, Tensor) and loss.requires_grad
            self.record.fail("no optimizer step", backward=self._losses.passes > 0, graph=graph)
        self._parameters.stepped = 0
        self._losses.end_step()
        self._batches.end_step(busy)
        self.record.step += 1
        if self.record.step >= STEPS:
            self.conclude()
            self.end_first_steps()

    # ------------------------------------------------------------------ answers

    def conclude(self) -> None:
        """What follows from the first steps together."""
        if not self.open:
            return
        self.record.concluding = True
        losses = self._losses
        self._parameters.conclude(losses.uses, losses.leaves, losses.fresh)
        self._batches.conclude()
        losses.conclude()
        if self._idle < IDLE <= self.record.step:
            self.record.ask("no optimizer step")
        self.record.concluding = False

    def facts(self) -> dict[str, Any]:
        """Everything that the checks have seen, as plain data."""
        self.conclude()
        return {
            "failed": dict(self.record.failed),
            "asked": dict(self.record.asked),
            "why": dict(self.why),
            "steps": self.record.step,
            "optimizers": len(self._parameters.made),
            "half": [n for n, p in self._model.named_parameters() if p.dtype == torch.float16 and p.requires_grad][:50],
            **self._losses.facts(),
            **self._batches.facts(),
        }


def answers(facts: dict[str, Any]) -> list[Check]:
    """One check for each question, from the facts of a run."""
    out = []
    for name, question in CHECKS.items():
        if name in facts.get("failed", {}):
            out.append(Check(name, question.text, "failed", evidence=facts["failed"][name]))
        elif facts.get("asked", {}).get(name):
            out.append(Check(name, question.text, "passed"))
        else:
            lacks = question.needs in THINGS and facts.get("steps")
            status: Answer = "not applicable" if lacks else "not enough data"
            out.append(Check(name, question.text, status, f"it needs {question.needs}"))
    return out
