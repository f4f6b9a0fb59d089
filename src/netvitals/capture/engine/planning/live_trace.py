"""The trace of a user's own forward pass, taken while it runs: nothing is run twice, nothing is run in its place."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from netvitals import _device
from netvitals.anatomy import Source, Tracer, storage_of
from netvitals.capture.nested import tensors
from netvitals.capture.shards import plain_name

ROOM = 1 << 31  # bytes of tensors that a trace may keep on a host; on an accelerator a quarter of what is free


def budget() -> int:
    """Bytes of tensors that a trace may keep alive."""
    free = _device.free_memory()
    return ROOM if free is None else min(ROOM, free // 4)


@dataclass(eq=False)
class ModuleCall:
    """One call of a module in a trace: what it was given, what it made, and which operations ran in it."""

    name: str
    call: int  # from 1
    first: int  # the operations from here ...
    given: int | None = None  # value of its first tensor
    last: int = -1  # ... up to here are its own and its children's
    made: int | None = None  # value that it handed on
    added: bool = False  # it added two activations itself


class _Once:
    """An operator that remembers what it made, so that a failure of ours does not run it again."""

    def __init__(self, func: Any) -> None:
        self.func = func
        self.ran = self.raised = False
        self.out: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.raised = True
        self.out = self.func(*args, **kwargs)
        self.ran, self.raised = True, False
        return self.out

    def __getattr__(self, name: str) -> Any:
        return getattr(self.func, name)


class LiveTrace(Tracer):
    """A trace that also knows the calls of modules, and where in the graph of autograd each value was made."""

    supports_higher_order_operators = True

    def __init__(self, model: nn.Module, inputs: Any) -> None:
        super().__init__(model, {f"input {i}": t for i, t in enumerate(tensors(inputs))})
        self._parameters_of: dict[str, list[tuple[str, int]]] = {}  # module → (its name for it, value)
        for value in [v for v in self.values if v.source == "parameter"]:
            name = plain_name(value.name)
            self.values[value.index] = replace(value, name=name)
            owner, _, key = name.rpartition(".")
            self._parameters_of.setdefault(owner, []).append((key, value.index))
        self.module_calls: list[ModuleCall] = []
        self._open: list[ModuleCall] = []
        self._nodes: dict[int, tuple[Any, int]] = {}
        self._fresh: list[tuple[int, Tensor]] = []  # made below autograd, which has not yet seen them
        self.on = False
        self.gone: set[int] = set()  # values that were not kept: their tensors stand for nothing but a shape
        self._memory: dict[int, int] = {}  # bytes by storage that are kept
        self._room = budget()
        self._watched: list[Any] = []
        self.error: Exception | None = None  # of our own: the trace ends there, the user's pass goes on

    def begin(self) -> None:
        if not self.on:
            self.__enter__()
            self.on = True

    def end(self) -> None:
        """Stop tracing; also for a while, around a part that must not be traced."""
        if self.on:
            self.on = False
            self.__exit__(None, None, None)
        self._settle()

    def ignore(self) -> None:
        """Record nothing more."""
        self.error = RuntimeError(
            "a part of the model is being compiled, so the operations of this forward pass are not recorded"
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.error is not None:
            return func(*args, **(kwargs or {}))
        if not isinstance(func, OpOverload):  # cond, flex_attention: what they run inside is not measured
            out = func(*args, **(kwargs or {}))
            for tensor in tree_leaves(out):
                if isinstance(tensor, Tensor) and id(tensor) not in self._known:
                    self._new(tensor, "input")
            return out
        once = _Once(func)
        try:
            self._settle()
            if func._schema.is_mutable:
                self._protect(args)
            out = super().__torch_dispatch__(once, types, args, kwargs)
            self.operations[-1] = replace(self.operations[-1], func=func)
            self._fresh = [(self._known[id(t)], t) for t in tree_leaves(out) if isinstance(t, Tensor)]
        except Exception as error:
            if once.raised:
                raise  # the user's own error
            self.error = error
            out = once.out if once.ran else func(*args, **(kwargs or {}))
        return out

    def _protect(self, args: Any) -> None:
        """What lies in the memory of an operand that may be overwritten is kept as it is now."""
        for tensor in args:
            if isinstance(tensor, Tensor):
                for alias in self._aliases.get(storage_of(tensor), ()):
                    value = self._known[id(alias)]
                    if self.values[value].source == "operation":
                        self.tensors[value] = self.tensors[value].clone()

    def value_of(self, tensor: Tensor) -> int:
        """A batch that came in an object of the user's own is an input like the others, not a constant."""
        found = self._known.get(id(tensor))
        if found is not None:
            return found
        return self._new(tensor, "input" if tensor.is_floating_point() and tensor.ndim > 1 else "constant")

    def _new(self, tensor: Tensor, source: Source, name: str = "", producer: int = -1) -> int:
        """A value. As long as there is room its tensor is kept; beyond that only its shape is, and training goes on in
        the memory it has: what is checkpointed or runs without gradients would have been let go."""
        known = id(tensor) in self._known
        index = super()._new(tensor, source, name, producer)
        if source != "operation" or known:
            return index
        place = storage_of(tensor)
        if place not in self._memory:
            size = tensor.untyped_storage().nbytes() if tensor.layout is torch.strided else 0
            if size > self._room:
                self._let_go(tensor, index, place)
                return index
            self._room -= size
            self._memory[place] = size
        return index

    def _let_go(self, tensor: Tensor, index: int, place: int) -> None:
        self.gone.add(index)
        self.tensors[index] = torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape)
        self._kept.pop()
        self._aliases[place].pop()
        key = id(tensor)

        def forget(_: Any) -> None:  # its id may belong to another tensor from now on
            if self._known.get(key) == index:
                del self._known[key]

        self._watched.append(weakref.ref(tensor, forget))

    def node(self, value: int) -> tuple[Any, int] | None:
        """The node of autograd's graph that made a value, and which of its outputs it is."""
        return self._nodes.get(value)

    # ---------------------------------------------------------------- modules

    def enter(self, name: str, x: Tensor | None) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        self.running.append((name, self.calls[name]))
        given = None if x is None else self.value_of(x)
        self._open.append(ModuleCall(name, self.calls[name], len(self.operations), given))

    def stand_in(self, name: str, module: nn.Module) -> None:
        """The parameters that a module runs with now, which FSDP puts together from pieces when it is called, are those
        that the model has by the same names."""
        for key, index in self._parameters_of.get(name, ()):
            p = getattr(module, key, None)
            if isinstance(p, Tensor) and self._known.get(id(p)) != index:
                self._known[id(p)] = index
                self._kept.append(p)
                self.tensors[index] = p
                self.values[index] = replace(self.values[index], shape=tuple(p.shape))

    def leave(self, output: Tensor | None) -> ModuleCall:
        """The module that was entered last has run."""
        self.running.pop()
        call = self._open.pop()
        call.last = len(self.operations)
        if output is not None:
            known = id(output) in self._known
            # made where nothing was traced: it depends on the input as far as anybody knows
            call.made = self.value_of(output) if known else self._new(output.detach(), "input")
            self._known[id(output)] = call.made
            if call.made not in self.gone:
                self._kept.append(output)
            self._settle()
            if output.grad_fn is not None:
                self._nodes.setdefault(call.made, (output.grad_fn, output.output_nr))
        mine = (op for op in self.operations[call.first : call.last] if (op.module, op.call) == (call.name, call.call))
        call.added = any(self._adds(op) for op in mine)
        self.module_calls.append(call)
        return call

    def _adds(self, op: Any) -> bool:
        terms = [i for i in dict.fromkeys(op.inputs) if self.values[i].source in ("operation", "input")]
        return op.name.rstrip("_") == "add" and sum(len(self.values[i].shape) > 1 for i in terms) == 2

    def _settle(self) -> None:
        """Autograd has taken over what the last operation made."""
        for value, tensor in self._fresh:
            if tensor.grad_fn is not None:
                self._nodes[value] = (tensor.grad_fn, tensor.output_nr)
        self._fresh = []
