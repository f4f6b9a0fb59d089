"""Stands in for ``netvitals.watch`` in a script: keeps the model, the optimizer and the first batches, and how the loss
was computed from them, so that a check before training can be given what a person would give it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from netvitals.preflights.setup import copies_of
from netvitals.watching import together


class Recorded(Exception):
    """Enough batches have been recorded."""


@dataclass(frozen=True)
class Ref:
    """A value of the tape: a constant, a parameter, or what an operation returned."""

    kind: str
    key: Any


@dataclass
class Node:
    """One operation, or a call of a model."""

    function: Any
    args: Any
    kwargs: Any
    out: Any
    grad: bool
    root: int = -1


@dataclass
class Program:
    """The operations that a loss was computed with."""

    nodes: list[Node]
    loss: Ref
    constants: dict[int, Tensor] = field(default_factory=dict)
    live: frozenset[int] = frozenset()  # constants that the script differentiates by
    cut: bool = False  # a constant had a graph that was not recorded

    def run(self, root: nn.Module, roots: list[nn.Module], constants: dict[int, Tensor], known: Any = None) -> Tensor:
        """Compute the loss again; ``known`` has the output of a call that was made already."""
        named = {**dict(root.named_buffers()), **dict(root.named_parameters())}
        values: dict[Any, Any] = {}
        constants = {k: c.detach().requires_grad_() if k in self.live else c for k, c in constants.items()}

        def value(ref: Ref) -> Any:
            return named[ref.key] if ref.kind == "param" else (constants if ref.kind == "const" else values)[ref.key]

        for node in self.nodes:
            with torch.set_grad_enabled(node.grad):
                if node.root >= 0 and known is not None:
                    out = known
                else:
                    function = roots[node.root] if node.root >= 0 else node.function
                    out = function(*_filled(node.args, value), **_filled(node.kwargs, value))
            if out is None:  # a change in place
                out = _filled(node.args, value)[0]
            _assign(node.out, out, values)
        loss: Tensor = value(self.loss)
        return loss.sum() if loss.ndim else loss  # backward was given ones


class Tape(TorchFunctionMode):
    """Records torch functions whose inputs depend on a model."""

    def __init__(self, root: nn.Module, roots: list[nn.Module]) -> None:
        super().__init__()
        self.root, self.roots = root, roots
        self.programs: list[tuple[Program, list[Any]]] = []
        self.quiet = 0
        self.clear()

    def clear(self) -> None:
        """A new step begins."""
        self.nodes: list[Node] = []
        self.refs: dict[int, tuple[Ref, Tensor]] = {}
        self.constants: dict[int, Tensor] = {}
        self.live: set[int] = set()
        self.cut = False
        for name, p in (*self.root.named_buffers(), *self.root.named_parameters()):
            self.refs[id(p)] = (Ref("param", name), p)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.quiet:
            return func(*args, **kwargs)
        if func is Tensor.backward or func is torch.autograd.backward:
            losses = [args[0]] if isinstance(args[0], Tensor) else list(args[0])
            self.ends(losses[0])
            self.quiet += 1
            try:
                return func(*args, **kwargs)
            finally:
                self.quiet -= 1
        depends = any(id(t) in self.refs for t in _tensors((args, kwargs)))
        taken = self._taken(args), self._taken(kwargs)
        out = func(*args, **kwargs)
        mutated = out is None and args and isinstance(args[0], Tensor) and "set" in getattr(func, "__name__", "")
        if depends and (mutated or any(True for _ in _tensors(out))):
            self._note(Node(func, *taken, None, torch.is_grad_enabled()), args[0] if mutated else out)
        return out

    def _taken(self, value: Any) -> Any:
        def take(t: Tensor) -> Any:
            if id(t) in self.refs:
                return self.refs[id(t)][0]
            return ("tensor", t, None if isinstance(t, nn.Parameter) else t.detach().clone())

        return _map(value, take)

    def _note(self, node: Node, out: Any) -> None:
        def constant(value: Any) -> Any:
            if isinstance(value, tuple) and len(value) == 3 and value[0] == "tensor":
                _, tensor, kept = value
                self.cut = self.cut or tensor.grad_fn is not None
                key = len(self.constants)
                self.constants[key] = tensor if kept is None else kept
                if tensor.requires_grad and tensor.is_leaf and kept is not None:
                    self.live.add(key)
                ref = Ref("const", key)
                if tensor.grad_fn is None and kept is not None and (tensor.requires_grad or torch.equal(kept, tensor)):
                    self.refs[id(tensor)] = (ref, tensor)
                return ref
            if isinstance(value, tuple | list):
                made = [constant(v) for v in value]
                return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
            if isinstance(value, dict):
                return {k: constant(v) for k, v in value.items()}
            return value

        node.args, node.kwargs = constant(node.args), constant(node.kwargs)

        def give(t: Tensor) -> Ref:
            old = self.refs.get(id(t))
            if old is not None and old[0].kind == "param":
                return Ref("gone", 0)
            ref = Ref("value", (len(self.nodes), len(self.refs)))
            self.refs[id(t)] = (ref, t)
            return ref

        node.out = _map(out, give)
        self.nodes.append(node)

    # ------------------------------------------------------------------ events

    def called(self, index: int, args: Any, kwargs: Any, out: Any) -> None:
        """A model has been called."""
        node = Node(None, self._taken(args), self._taken(kwargs), None, torch.is_grad_enabled(), index)
        self._note(node, out)

    def ends(self, loss: Tensor) -> None:
        """Backward begins: keep what the loss was computed with."""
        if id(loss) not in self.refs:
            return
        wanted = {self.refs[id(loss)][0].key}
        nodes: list[Node] = []
        for node in reversed(self.nodes):
            outs = {ref.key for ref in _refs(node.out)}
            if outs & wanted:
                nodes.append(node)
                wanted |= {ref.key for ref in _refs((node.args, node.kwargs)) if ref.kind == "value"}
        nodes.reverse()
        used = {ref.key for n in nodes for ref in _refs((n.args, n.kwargs)) if ref.kind == "const"}
        constants = {k: self.constants[k] for k in sorted(used)}
        self.programs.append((Program(nodes, self.refs[id(loss)][0], constants, frozenset(self.live), self.cut), []))


class Recorder:
    """The stand-in: ``with nv.watch(model, optimizer) as watch: … watch.step(loss)``."""

    def __init__(self, most: int = 24) -> None:
        self.most, self.steps = most, list[list[tuple[Program, list[int]]]]()
        self.model: Any = None

    def __call__(self, model: Any, optimizer: Any = None, **_: Any) -> Recorder:
        if self.model is not None:
            raise Recorded
        optimizers = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer] if optimizer else []
        self.model, self.optimizers = copies_of(model, optimizers, {})
        self.root = together(model)
        roots = list(self.root.children()) if self.root is not model else [self.root]
        self._own = {id(o): i for i, o in enumerate(optimizers)}
        self.tape = Tape(self.root, roots)
        depth: list[Any] = []

        def enters(module: nn.Module, args: Any, kwargs: Any, index: int) -> None:
            depth.append((self.tape._taken(args), self.tape._taken(kwargs)))
            self.tape.quiet += 1

        def leaves(module: nn.Module, args: Any, kwargs: Any, out: Any, index: int) -> None:
            self.tape.quiet -= 1
            taken = depth.pop()
            if not self.tape.quiet:
                self.tape._note(Node(None, *taken, None, torch.is_grad_enabled(), index), out)

        for i, one in enumerate(roots):
            one.register_forward_pre_hook(lambda m, a, k, i=i: enters(m, a, k, i), with_kwargs=True)
            one.register_forward_hook(lambda m, a, k, o, i=i: leaves(m, a, k, o, i), with_kwargs=True)
        self._hooks = [
            register_optimizer_step_pre_hook(lambda o, *_: self._stepping(o)),
            register_optimizer_step_post_hook(lambda o, *_: self._stepped(o)),
        ]
        return self

    def _stepping(self, optimizer: Any) -> None:
        if id(optimizer) in self._own and not _closes(optimizer):
            self.tape.quiet += 1

    def _stepped(self, optimizer: Any) -> None:
        if id(optimizer) not in self._own:
            return
        if not _closes(optimizer):
            self.tape.quiet -= 1
        for _, steppers in self.tape.programs:
            steppers.append(self._own[id(optimizer)])

    def __enter__(self) -> Recorder:
        self.tape.__enter__()
        return self

    def step(self, loss: Any = None) -> None:
        self.steps.append([(p, s) for p, s in self.tape.programs])
        self.tape.programs = []
        self.tape.clear()
        if len(self.steps) >= self.most:
            raise Recorded

    def __exit__(self, *_: Any) -> None:
        self.close()
        raise Recorded

    def close(self, *_: Any) -> None:
        if self.tape is not None:
            for hook in self._hooks:
                hook.remove()
            self.tape.__exit__(None, None, None)
            self.tape = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise Recorded


def _closes(optimizer: Any) -> bool:
    return isinstance(optimizer, torch.optim.LBFGS)


@dataclass
class Given:
    """What a check before training is given."""

    model: Any
    optimizer: Any
    loss_fn: Any
    batches: list[Any]
    forward: Any = None
    supervised: bool = False


def given(recorder: Recorder) -> Given:
    """Model, loss, optimizer and batches as a person would give them, from what was recorded."""
    steps = [step for step in recorder.steps if step]
    if not steps:
        raise ValueError("no backward pass was recorded")
    model, optimizers = recorder.model, recorder.optimizers
    first = steps[0]
    if any(p.cut for p, _ in first[:1]):
        raise ValueError("the loss was computed by a function that was not recorded")
    single = isinstance(model, nn.Module)
    pairs: dict[int, int] = {}
    for place, (_, steppers) in enumerate(first):
        for index in steppers[:1]:
            pairs.setdefault(index, place)
    if len(set(pairs.values())) > 1:  # each optimizer has a loss of its own
        order = sorted(pairs)
        losses = [_replay(k) for k in range(len(order))]
        batches = [
            {
                "constants": [s[pairs[i]][0].constants for i in order],
                "programs": tuple(_Opaque(s[pairs[i]][0]) for i in order),
            }
            for s in steps
            if len(s) > max(pairs.values())
        ]
        return Given(model, [optimizers[i] for i in order], losses, batches)
    optimizer = optimizers if len(optimizers) > 1 else optimizers[0] if optimizers else None
    programs = [s[0][0] for s in steps]
    if not single:
        return Given(model, optimizer, _replay(0), [_batch(p) for p in programs])
    if all(_supervised(p) for p in programs):
        return Given(model, optimizer, _rest, [_pair(p) for p in programs], supervised=True)
    return Given(model, optimizer, None, [_batch(p) for p in programs], forward=lambda m, b: _replay(0)(m, b))


class _Opaque:
    """A program, which batches carry along."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __deepcopy__(self, memo: Any) -> _Opaque:
        return self


def _batch(program: Program) -> Any:
    return {"constants": [program.constants], "programs": (_Opaque(program),)}


def _replay(k: int) -> Callable[[Any, Any], Tensor]:
    def loss(models: Any, batch: Any) -> Tensor:
        root = together(models)
        roots = list(root.children()) if root is not models else [root]
        return batch["programs"][k].program.run(root, roots, batch["constants"][k])

    return loss


def _supervised(program: Program) -> bool:
    """One call of the model on constants, then operations on its output and constants."""
    calls = [n for n in program.nodes if n.root >= 0]
    if len(calls) != 1 or program.nodes[0] is not calls[0]:
        return False
    refs = [ref for n in program.nodes for ref in _refs((n.args, n.kwargs))]
    return not any(ref.kind == "param" for ref in refs) and not calls[0].kwargs and bool(calls[0].args)


def _pair(program: Program) -> Any:
    args = program.nodes[0].args
    own = {ref.key for ref in _refs(args)}
    late = {ref.key for n in program.nodes[1:] for ref in _refs((n.args, n.kwargs)) if ref.kind == "const"}
    x = _filled(args, lambda ref: program.constants[ref.key])
    target = Targets([program.constants[k] for k in sorted(late)])
    target.append(_Opaque(program))
    target.append(sorted(late))
    plain = [v for v in x if isinstance(v, Tensor)]
    return (plain[0], target) if len(x) == 1 and plain and own else (tuple(x), target)


class Targets(list):  # type: ignore[type-arg]
    """What a loss compares an output with."""


def plain_pair(found: Given) -> tuple[Any, Any, Any]:
    """Inputs and targets of the first batch and the loss function of both; one target as a tensor."""
    x, (*values, opaque, keys) = found.batches[0]
    if len(values) != 1:
        return x, found.batches[0][1], found.loss_fn
    program = opaque.program
    return x, values[0], lambda output, y: program.run(nn.Module(), [], {keys[0]: y}, known=output)


def _rest(output: Any, target: Any) -> Tensor:
    *values, opaque, keys = target
    program = opaque.program
    return program.run(nn.Module(), [], dict(zip(keys, values)), known=output)


# ---------------------------------------------------------------- nested values


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _refs(value: Any) -> Iterator[Ref]:
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _refs(one)
    elif isinstance(value, dict):
        yield from _refs(list(value.values()))


def _map(value: Any, change: Callable[[Tensor], Any]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple | list):
        made = [_map(v, change) for v in value]
        return (
            type(value)(*made) if hasattr(value, "_fields") else made if not isinstance(value, tuple) else tuple(made)
        )
    if isinstance(value, dict):
        return {k: _map(v, change) for k, v in value.items()}
    return value


def _filled(value: Any, lookup: Callable[[Ref], Any]) -> Any:
    if isinstance(value, Ref):
        return lookup(value)
    if isinstance(value, tuple | list):
        made = [_filled(v, lookup) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(value, dict):
        return {k: _filled(v, lookup) for k, v in value.items()}
    return value


def _assign(shape: Any, value: Any, values: dict[Any, Any]) -> None:
    if isinstance(shape, Ref):
        if shape.kind == "value":
            values[shape.key] = value
    elif isinstance(shape, tuple | list):
        for one, part in zip(shape, value):
            _assign(one, part, values)
    elif isinstance(shape, dict):
        for key, one in shape.items():
            _assign(one, value[key], values)
