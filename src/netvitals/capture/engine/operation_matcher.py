"""Picks up, on a measured pass, the activations that are found by their operations.

A dispatch mode counts the operators that each call of a module runs, and keeps those of the plan with their operands of
today. Nothing is measured inside it: it runs below autograd. When a module begins or ends, what is complete is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from netvitals.anatomy import Operation, Slot
from netvitals.capture.engine.planning.extras import Extra
from netvitals.capture.engine.planning.plan import Plan
from netvitals.capture.engine.planning.recorded import function_of


class Picked:
    """One activation of a pass: its operations, numbered by the tensors that they read and made."""

    def __init__(self, extra: Extra) -> None:
        self.extra = extra
        self.x: Tensor | None = None
        self.a: Tensor | None = None  # there when it is complete
        self.value: Tensor | None = None  # the same, as the user has it
        self._path: list[Operation] = []
        self._tensors: dict[int, Tensor] = {}
        self.today: dict[int, Tensor] = {}  # what the values of the plan hold now
        self._start = self._version = 0

    def reads(self, position: int, func: Any, args: Any, kwargs: Any, written: list[Tensor]) -> bool:
        """The operation at this position is about to run; False where it is not the one that is expected."""
        planned = self.extra.core.path[position]
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if position != len(self._path) or len(given) != len(planned.inputs):
            return False
        if self.x is None and self.extra.core.start in planned.inputs:
            x = given[planned.inputs.index(self.extra.core.start)]
            self._start, self.x = id(x), x.detach().clone() if any(x is t for t in written) else x.detach()
            self.today[self.extra.core.start] = self.x
        self._tensors.update((id(t), t) for t in given if id(t) not in self._tensors)
        for value, tensor in zip(planned.inputs, given):
            self.today.setdefault(value, tensor)
        slots = tree_map(lambda t: Slot(id(t)) if isinstance(t, Tensor) else t, (args, kwargs))
        inputs = tuple(id(t) for t in given)
        self._path.append(replace(planned, args=slots[0], kwargs=slots[1], inputs=inputs, outputs=()))
        return True

    def makes(self, out: Any) -> None:
        """The operation has run."""
        tensors = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        self._tensors.update((id(t), t) for t in tensors)
        self.today.update(zip(self.extra.core.path[len(self._path) - 1].outputs, tensors))
        self._path[-1] = replace(self._path[-1], outputs=tuple(id(t) for t in tensors))
        if len(self._path) == len(self.extra.core.path) and tensors and self._depends(id(tensors[0])):
            self.value, self.a, self._version = tensors[0], tensors[0].detach(), tensors[0]._version

    def _depends(self, end: int) -> bool:
        """Whether the last value is made of the first: else the operations are not the ones they were."""
        if self.extra.kind in ("heads", "router"):  # what lies between their operations is not kept
            return True
        live = {self._start}
        for op in self._path:
            if live.intersection(op.inputs):
                live.update(op.outputs)
        return self.x is not None and end in live

    @property
    def untouched(self) -> bool:
        """Whether nothing was written to it since: a gradient that is waited for now is its own."""
        return self.value is not None and self.value._version == self._version

    @property
    def f(self) -> Callable[[Tensor], Tensor]:
        assert self.x is not None and self.a is not None and self.value is not None
        if self.extra.random:
            return self.extra.secant(self.x, self.a)
        return function_of(self._path, self._start, id(self.value), self._tensors)


class OperationMatcher(TorchDispatchMode):
    """Keeps the operations of a plan while a pass runs."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code inside a pass stays compiled."""
        return True

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        super().__init__()
        self._failed = failed
        self.on = False
        self._plan = Plan()
        self._calls: dict[str, int] = {}
        self._running: list[tuple[dict[Any, int], Any]] = []  # counts, and what is wanted
        self._picked: dict[int, Picked] = {}
        self._complete: list[Picked] = []

    def begin(self, plan: Plan) -> None:
        self._plan = plan
        self._calls.clear()
        self._running, self._picked, self._complete = [], {}, []
        self.resume()

    def resume(self) -> None:
        if not self.on:
            self.__enter__()
            self.on = True

    def end(self) -> None:
        if self.on:
            self.on = False
            self.__exit__(None, None, None)

    def ignore(self) -> None:
        """Keep nothing until the next pass."""
        self._plan, self._running = Plan(), []

    def enter(self, name: str) -> None:
        """A module begins."""
        call = self._calls[name] = self._calls.get(name, 0) + 1
        self._running.append(({}, self._plan.wanted.get((name, call))))

    def leave(self) -> None:
        """It ends."""
        if self._running:
            self._running.pop()

    def complete(self) -> list[Picked]:
        """What was completed since this was asked last."""
        done, self._complete = self._complete, []
        return done

    @property
    def missed(self) -> list[str]:
        """Names of the activations that the pass has not shown."""
        met = {i for i, picked in self._picked.items() if picked.a is not None}
        return [extra.site for i, extra in enumerate(self._plan.extras) if i not in met]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        counts, wanted = self._running[-1] if self._running else ({}, None)
        if not isinstance(func, OpOverload):
            return func(*args, **kwargs)
        mutable = func._schema.is_mutable
        if mutable and self._complete:
            self._protect(_written(func, args))
        if wanted is None:
            return func(*args, **kwargs)
        n = counts[func] = counts.get(func, 0) + 1
        uses = wanted.get((func, n))
        if uses is None:
            return func(*args, **kwargs)
        picked: list[Picked] = []
        try:
            written = _written(func, args) if mutable else []
            for i, position in uses:
                one = self._picked.get(i)
                if one is None:
                    one = self._picked[i] = Picked(self._plan.extras[i])
                if one.reads(position, func, args, kwargs, written):
                    picked.append(one)
        except Exception as error:
            self._failed(error)
        out = func(*args, **kwargs)
        try:
            for one in picked:
                one.makes(out)
                if one.a is not None:
                    self._complete.append(one)
        except Exception as error:
            self._failed(error)
        return out

    def _protect(self, written: list[Tensor]) -> None:
        """What has not been shown yet is about to be overwritten."""
        memory = {t.untyped_storage()._cdata for t in written}
        for one in self._complete:
            if one.x is not None and one.x.untyped_storage()._cdata in memory:
                one.x = one.x.clone()
            if one.a is not None and one.a.untyped_storage()._cdata in memory:
                one.a = one.a.clone()


def _written(func: Any, args: Any) -> list[Tensor]:
    """The operands that an operator overwrites."""
    return [
        t
        for t, argument in zip(args, func._schema.arguments)
        if isinstance(t, Tensor) and argument.alias_info is not None and argument.alias_info.is_write
    ]
