"""One recorded pass in which every example has perturbations of its own, at the outputs of the layers.

Which parameters enter by one call of a known layer and by nothing else is read off the graph of the loss: what is read
twice, by a penalty or by a function, keeps a perturbation that all examples share. Whether examples see each other is
asked of the Hessian itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from netvitals.capture import LossFn, Mode
from netvitals.curvature.engine.checks import gradient_beyond, tolerance
from netvitals.curvature.engine.layout import layout_of
from netvitals.curvature.engine.nodes import parameter_node, survey
from netvitals.curvature.engine.probes import generator, signs
from netvitals.curvature.engine.problem import Problem, advised, laboratory, refuse_noise, refuse_randomness
from netvitals.curvature.engine.products import Pieces, Products
from netvitals.curvature.engine.tape import Tape
from netvitals.curvature.matrices.layer_calls import LayerCall, Part, Source, computed, source_of


@dataclass
class Layers:
    """Where examples can have probes of their own.

    Attributes:
        calls: by name of the layer.
        shared: parameter tensor → why all examples share its probe.
        skipped: parameter tensor → why it has no trace.
        names: of the tensors, in the order of the model.
    """

    calls: dict[str, LayerCall] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()


def layers_of(problem: Problem) -> Layers:
    """Which parameters are used by one call of a known layer and by nothing else, from the graph of one pass."""
    model = problem.model
    named = dict(model.named_parameters())
    shapes = _shapes_of_twice(problem)
    seen: dict[str, list[tuple[tuple[int, ...], bool]]] = {}

    def note(name: str) -> Any:
        def hook(module: nn.Module, args: Any, out: Any) -> None:
            with torch.no_grad():
                again = computed(module, args[0]) if len(args) == 1 else None
                same = again is not None and isinstance(out, Tensor) and again.shape == out.shape and _near(again, out)
            seen.setdefault(name, []).append((tuple(out.shape) if same else (), same))

        return hook

    handles = [m.register_forward_hook(note(n)) for n, m in model.named_modules() if m._parameters]
    try:
        loss = problem.loss(problem.outputs())
    finally:
        for handle in handles:
            handle.remove()
    uses = _uses(loss)
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        for p in module._parameters.values():
            if p is not None:
                owners.setdefault(id(p), []).append(name)
    found = Layers(skipped={n: "frozen" for n, p in named.items() if not p.requires_grad})
    for name, p in named.items():
        if not p.requires_grad:
            continue
        if not uses.get(id(p)):
            found.skipped[name] = "does not influence the loss"
            continue
        layer, _, kind = name.rpartition(".")
        calls = seen.get(layer, [])
        place = layout_of(calls[0][0], shapes.get(layer), problem.examples) if calls and calls[0][1] else None
        if kind not in ("weight", "bias") or place is None or not calls[0][1]:
            found.shared[name] = "not the weight or bias of a layer whose formula is known"
        elif uses[id(p)] != 1 or len(calls) != 1 or len(owners[id(p)]) != 1:
            found.shared[name] = "used more than once"
        elif place.kind == "joint":
            found.shared[name] = "its layer's output has no dimension of examples"
        else:
            old = found.calls.get(layer, LayerCall(model.get_submodule(layer), place, None, None))
            mine = {"weight": old.weight, "bias": old.bias, kind: name}
            found.calls[layer] = LayerCall(old.module, place, mine["weight"], mine["bias"])
    found.names = tuple(n for n in named if n not in found.skipped)
    return found


def _near(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= tolerance(a.dtype) * b.abs().max()) if a.numel() else True


def _uses(loss: Tensor) -> dict[int, int]:
    """How many operations on the way to the loss read each leaf."""
    counts: dict[int, int] = {}
    stack, done = [loss.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in done:
            continue
        done.add(node)
        for before, _ in node.next_functions:
            leaf = getattr(before, "variable", None)
            if leaf is None:
                stack.append(before)
            else:
                counts[id(leaf)] = counts.get(id(leaf), 0) + 1
    return counts


def _shapes_of_twice(problem: Problem) -> dict[str, tuple[int, ...]]:
    """The outputs' shapes for every example twice; nothing where the model does not take it."""
    found: dict[str, tuple[int, ...]] = {}
    note = lambda name: lambda module, args, out: found.update({name: tuple(getattr(out, "shape", ()))})
    b, task = problem.examples, problem.task
    twice = lambda t: torch.cat([t, t]) if isinstance(t, Tensor) and t.ndim and t.shape[0] == b else t
    handles = [m.register_forward_hook(note(n)) for n, m in problem.model.named_modules() if m._parameters]
    try:
        args, kwargs = tree_map(twice, (task.args, dict(task.kwargs)))
        with torch.no_grad():
            replace(task, args=args, kwargs=kwargs).forward()
    except Exception:  # a model that takes batches of one length only
        return {}
    finally:
        for handle in handles:
            handle.remove()
    return found


class ExampleTape(Tape):
    """One recorded pass with a perturbation at every call, by example, and the shared parameters themselves."""

    def __init__(self, problem: Problem, layers: Layers, kept_bytes: int) -> None:
        weights = dict(problem.model.named_parameters())
        nodes = [parameter_node(n, (1,)) for n in layers.calls]
        nodes += [parameter_node(n, tuple(weights[n].shape)) for n in layers.shared]
        super().__init__(problem, nodes, "activation", chosen="a probe an example", kept_bytes=kept_bytes)
        self.layers, self.skipped = layers, dict(layers.skipped)
        self.sources: list[Source] = []

    def _forward_perturbed(self) -> tuple[Any, list[Any]]:
        weights, b = dict(self.problem.model.named_parameters()), self.examples
        leaves: dict[str, Tensor] = {}
        sources: dict[str, Source] = {}

        def perturb(name: str, call: LayerCall) -> Any:
            def hook(module: nn.Module, args: Any, out: Tensor) -> Tensor:
                if name in leaves:
                    raise ValueError(
                        f"{name} is called once in the first batch but several times in another: pass "
                        "method='hutchinson'"
                    )
                leaves[name] = torch.zeros_like(out, requires_grad=True)
                sources[name] = source_of(call, args[0].detach(), out.shape, b)
                return _added(out, leaves[name])

            return hook

        calls = self.layers.calls
        handles = [c.module.register_forward_hook(perturb(n, c)) for n, c in calls.items()]
        for name in self.layers.shared:
            weights[name].requires_grad_(True)
        try:
            outputs = self.problem.outputs()
        finally:
            for handle in handles:
                handle.remove()
        like = next(iter(weights.values()))
        idle = lambda: torch.zeros(1, dtype=like.dtype, device=like.device, requires_grad=True)
        self.leaves = [[leaves[n] if n in leaves else idle()] for n in calls]
        self.leaves += [[weights[n]] for n in self.layers.shared]
        self.rows = [[None] for _ in self.leaves]
        self.sources = [sources.get(n, _nothing()) for n in calls]
        self.sources += [_all_of(n, weights[n].shape) for n in self.layers.shared]
        return outputs, []

    def look_beyond(self) -> None:
        """How much of the loss's gradient does not pass through the outputs."""
        flat = [leaf for leaves in self.leaves for leaf in leaves]
        options: Any = {"allow_unused": True, "retain_graph": True}
        through = torch.autograd.grad(self.outputs, flat, self.pull, **options)
        self.beyond = gradient_beyond(torch.autograd.grad(self.whole_loss(), flat, **options), through)

    def perturbed(self, probes: Tensor) -> list[list[Part]]:
        """Signs (m, all sources) as perturbations of every leaf."""
        dtype = self.leaves[0][0].dtype
        each = probes.split([s.size for s in self.sources], 1)
        return [s.made(r.to(dtype)) for s, r in zip(self.sources, each)]

    def signs_of(self, m: int, source: torch.Generator) -> Tensor:
        return signs(m, sum(s.size for s in self.sources), source, self.leaves[0][0].device)

    def masked(self, pieces: Pieces, keep: Tensor) -> Pieces:
        """Perturbations of some of the examples only, and of nothing that is shared."""
        calls = list(self.layers.calls.values())
        out = [self._kept(p, call, keep) for p, call in zip(pieces, calls)]
        return out + [torch.zeros_like(p) for p in pieces[len(calls) :]]

    def _kept(self, p: Tensor, call: LayerCall, keep: Tensor) -> Tensor:
        if p.ndim < 3:  # the layer was not called
            return p
        dim = 1 if call.place.kind == "flat" else 1 + call.place.dim
        flags = keep.repeat_interleave(p.shape[dim] // len(keep))
        return p * flags.view(-1, *(1,) * (p.ndim - dim - 1))


def _nothing() -> Source:
    return Source(0, lambda r: [], lambda g: {})


def _all_of(name: str, shape: torch.Size) -> Source:
    """A parameter that all examples share."""
    shares: dict[str, Tensor | None] = {name: None}
    made = lambda r: [(r.reshape(len(r), *shape), shares)]
    return Source(shape.numel(), made, lambda g: {name: g.flatten(1).square().sum(1)})


def summed(parts: list[list[Part]], leaves: Sequence[Tensor], m: int) -> Pieces:
    """One perturbation (m, ...) a leaf: the sum over the tensors that enter there."""
    zero = lambda leaf: torch.zeros(m, *leaf.shape, dtype=leaf.dtype, device=leaf.device)
    return [sum((p for p, _ in each[1:]), each[0][0]) if each else zero(leaf) for each, leaf in zip(parts, leaves)]


def examples_interact(products: Products, tape: ExampleTape, seed: int) -> bool:
    """Whether the Hessian has anything between two examples, by what they do in the network or in the loss."""
    b = tape.examples
    if b < 2:
        return False
    device = products.flat[0].device
    at = torch.arange(b, device=device)
    pieces = summed(tape.perturbed(tape.signs_of(2, generator(seed, device))), products.flat, 2)
    halves = torch.stack([at % 2 == 0, at < (b + 1) // 2])
    moved = [torch.cat(c) for c in zip(*(tape.masked([p[i : i + 1] for p in pieces], halves[i]) for i in range(2)))]
    images = products.whole(moved)
    for i in range(2):
        row = [p[i : i + 1] for p in images]
        own, other = tape.masked(row, halves[i]), tape.masked(row, ~halves[i])
        size = max(float(p.abs().max()) for p in own)
        reached = max(float(p.abs().max()) for p in other)
        if reached > 100 * torch.finfo(row[0].dtype).eps * size:
            return True
    return False


@contextmanager
def recorded_examples(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    dtype: torch.dtype | None,
    mode: Mode,
    memory: int,
) -> Iterator[ExampleTape]:
    """An :class:`ExampleTape` of ``model`` on ``batch`` under ``loss_fn``; ``dtype``, ``mode`` and ``memory`` are as
    for :func:`netvitals.curvature.engine.tape.recorded`.
    """
    problem = Problem(model, loss_fn, batch, dtype)
    if not any(p.requires_grad for p in problem.model.parameters()):
        raise ValueError("the model has no trainable parameter: unfreeze the parameters whose curvature you want")
    with laboratory(problem.model, mode), advised():
        refuse_noise(problem)
        seen = survey(problem, memory, calls=False)
        tape = ExampleTape(problem, layers_of(problem), seen.kept_bytes)
        tape.record()
        refuse_randomness(seen.outputs, tape.outputs)
        yield tape


def why_not(products: Products, tape: ExampleTape, seed: int) -> str:
    """Why examples cannot have probes of their own; empty where they can."""
    if not tape.layers.calls:
        return "no parameter is used by one call of a known layer alone"
    if examples_interact(products, tape, seed):
        return "examples see each other, in the network or in the loss, or do not lie in the first dimension"
    return ""


def _added(out: Tensor, leaf: Tensor) -> Tensor:
    """out + leaf, as out lies in memory: a plain sum forgets the strides of dimensions of one (channels last)."""
    total = out + leaf
    if total.stride() == out.stride():
        return total
    strides = out.stride()
    order = sorted(range(out.ndim), key=lambda d: (-strides[d], out.shape[d] == 1))
    back = sorted(range(out.ndim), key=order.__getitem__)
    return (out.permute(order) + leaf.permute(order)).permute(back)
