"""A compiled model is measured through its eager copy: the same module, run once more on the batch of the loop.

The pass that trains stays compiled, bit for bit. On a measured step its first batch is kept, and the gradient of the
loss with respect to what the model returned; before the optimizer steps, the uncompiled module is run on that batch and
the same gradient is sent back through it. That costs a forward and a backward pass without compilation, on measured
steps.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from netvitals.capture import (
    Hook,
    Observers,
    Recorder,
    Task,
    detached_context,
    is_compiled,
    probe,
    rng_state,
    set_rng_state,
    tensors,
    uncompiled,
    warn,
)

INSIDE = (
    "it runs inside a compiled function, which calls no hooks: compile the model itself, torch.compile(model), or pass "
    "probe=(x, y, loss_fn)"
)
NO_STEP = "the model is compiled and is measured before an optimizer step, but no optimizer stepped"
CALL = "_compiled_call_impl"  # what module.compile() puts on a module


def eager_replay_of(model: nn.Module, bare: nn.Module) -> EagerReplay | None:
    """The twin of a compiled model; None where nothing is compiled, or TorchScript has done it."""
    if isinstance(model, torch.jit.ScriptModule) or not is_compiled(model):
        return None
    return EagerReplay(model, bare)


def compiled_form_of(bare: nn.Module) -> nn.Module | None:
    """What a loop may call in the place of ``bare`` so that compiled code runs; None where there is nothing."""
    if is_compiled(bare):
        return bare
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    kind = getattr(dynamo, "OptimizedModule", None)
    backends = list(getattr(dynamo, "cached_backends", {}).values())
    if kind is None or (backends and not any(backends)):  # nothing was given to torch.compile: no search of all objects
        return None
    wrappers = [o for o in gc.get_objects() if type(o) is kind]
    return next((w for w in reversed(wrappers) if uncompiled(w) is bare), None)


def has_compiled() -> bool:
    """Whether torch.compile has compiled anything in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and utils.counters["stats"]["unique_graphs"] > 0


class EagerReplay:
    """Keeps the first batch of a measured step, and looks at the uncompiled module with it."""

    def __init__(self, model: nn.Module, bare: nn.Module) -> None:
        self._model, self._bare = model, bare
        self._handles: list[Any] = []
        self._before: Any = None  # what module.compile() made, while ours stands in its place
        self._batch: tuple[tuple[Any, ...], dict[str, Any], Any] | None = None
        self._grads: dict[int, Tensor] = {}
        self._passes = 0
        self._failed = False
        self._notes: dict[str, str] = {}

    @property
    def called(self) -> bool:
        """The compiled form was called since arming."""
        return self._passes > 0

    def arm(self, notes: dict[str, str]) -> None:
        """Keep the batch of the next pass; ``notes`` takes why nothing could be measured."""
        self.disarm()
        self._batch, self._grads, self._passes, self._notes = None, {}, 0, notes
        if self._failed:
            return
        if getattr(self._model, CALL, None) is not None:  # a hook would be compiled with the module
            self._before = getattr(self._model, CALL)
            setattr(self._model, CALL, self._called)
        else:
            self._handles = [
                Hook(self._enter).before(self._model, with_kwargs=True),
                Hook(self._leave).after(self._model),
            ]

    def disarm(self) -> None:
        """Leave the model as it was."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._before is not None:
            setattr(self._model, CALL, self._before)
            self._before = None
        if self._batch is not None:
            self._batch = None
            self._notes["model"] = NO_STEP

    def look(self, observer: Observers, recorder: Recorder) -> None:
        """Run the uncompiled module on the batch that was kept, and show it to the vital signs."""
        if self._batch is None:
            return
        try:
            self._look(observer, recorder, *self._batch)
        except Exception as error:
            self._failed = True
            self._notes["model"] = (
                f"the model is compiled, and running its uncompiled module failed: {type(error).__name__}: {error}"[
                    :300
                ]
            )
            warn(self._notes["model"], "eager-replay-failed")

    def _look(
        self, observer: Observers, recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any], state: Any
    ) -> None:
        grads, self._batch, self._grads = self._grads, None, {}

        def run(model: nn.Module, _: Any) -> Any:
            set_rng_state(state)
            output = model(*args, **kwargs)
            if not grads:
                return output
            parts = [(t * grads[i].to(t.dtype)).sum() for i, t in enumerate(_leaves(output)) if i in grads]
            return torch.stack([p.double() for p in parts]).sum()

        task = Task(self._bare, None, (None,), {}, (), run)
        self.disarm()
        with self._uncompiled():
            probe(observer.whole, recorder, task, parameters=False, gradients=bool(grads))

    @contextlib.contextmanager
    def _uncompiled(self) -> Iterator[None]:
        before = getattr(self._bare, CALL, None)
        if before is not None:
            setattr(self._bare, CALL, None)
        try:
            yield
        finally:
            if before is not None:
                setattr(self._bare, CALL, before)

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        self._enter(self._model, args, kwargs)
        output = self._before(*args, **kwargs)
        self._leave(self._model, args, output)
        return output

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not torch.is_grad_enabled():
            return
        self._passes += 1
        if self._batch is None:
            with detached_context():
                args, kwargs = tree_map(lambda a: a.detach().clone() if isinstance(a, Tensor) else a, (args, kwargs))
            self._batch = (args, kwargs, rng_state())

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._batch is None or self._passes != 1 or not torch.is_grad_enabled():
            return
        for i, t in enumerate(_leaves(output)):
            if t.requires_grad:
                t.register_hook(Hook(self._arrives(i)))

    def _arrives(self, i: int) -> Any:
        def arrived(g: Tensor) -> None:
            with detached_context():
                self._grads[i] = g.detach().clone()

        return arrived


def _leaves(output: Any) -> list[Tensor]:
    return [t for t in tensors(output) if t.is_floating_point()]
