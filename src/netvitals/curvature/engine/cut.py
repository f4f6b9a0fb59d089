r"""A module cut at its nodes: each node's output is a variable of its own, so that every derivative is of one edge.

$D_{u,p}=\partial g_u/\partial f_p$ of node u by its parent p, $\delta_u\cdot T_u$ the second derivatives of $g_u$
weighted by the gradient of the loss at u, and, where weights are asked for, the same by the node's own parameters
$\theta_u$. Sinks are ``out``, the model's output, and ``loss term``: what the loss reads besides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.anatomy import Topology
from netvitals.curvature.engine.graph import OUT
from netvitals.curvature.engine.layout import float_tensors, replaced
from netvitals.curvature.engine.loss_inputs import LossInputs, operations
from netvitals.curvature.engine.nodes import CurvatureNode
from netvitals.curvature.engine.problem import Problem, float_outputs

TERM = "loss term"  # activations that the loss reads besides the model's output
Vector = list[Tensor]  # one tensor for each that a node returns, examples first


class CutModel:
    """One pass with every node's output made a variable of its own.

    Attributes:
        order: nodes that reach the loss, in the order they run; the sinks last.
        parents: of every node, in that order.
        sinks: ``out``, and ``loss term`` where the loss reads more.
        leaves: node → its variables.
        weights: node → parameters that its own function uses; empty unless asked for.
        skipped: place that is no node → reason.
    """

    def __init__(
        self, problem: Problem, picked: Sequence[CurvatureNode], skipped: Mapping[str, str], *, weights: bool = False
    ) -> None:
        self.skipped = dict(skipped)
        self.before: dict[str, Vector] = {}
        self.leaves: dict[str, Vector] = {}
        params = {n: p for n, p in problem.model.named_parameters() if p.requires_grad} if weights else {}
        for p in problem.model.parameters():
            p.requires_grad_(weights and p.requires_grad)  # `preserved` puts the flags back
        start = operations()
        outputs, rebuild = float_outputs(self._run(problem, picked))
        moved = {id(b): (b, t) for name, pairs in self._seams.items() for b, t in pairs}
        reading = LossInputs(moved, params.values(), start)
        self.before[OUT] = outputs
        self.leaves[OUT] = [o.detach().requires_grad_() for o in outputs]
        with reading.cut():
            self.loss = problem.loss(rebuild([leaf.clone() for leaf in self.leaves[OUT]]))
        self.sinks = [OUT]
        if reading.tensors:
            self.before[TERM], self.leaves[TERM] = reading.tensors, reading.variables
            self.sinks.append(TERM)
        ends = [t for s in self.sinks for t in self.leaves[s]]
        if all(g is None for g in grads([self.loss], ends, None, create=True)):
            raise ValueError(
                "the loss has no gradient with respect to the model's output: give the loss that training uses"
            )
        self._connect()
        self._name_weights(params)
        self._linearise()

    def _run(self, problem: Problem, picked: Sequence[CurvatureNode]) -> Any:
        """The model's output with every node cut."""
        wanted = {(n.module, n.call): n.name for n in picked}
        counts: dict[str, int] = {}
        self._seams: dict[str, list[tuple[Tensor, Tensor]]] = {}

        def cut(module_name: str) -> Any:
            def hook(module: nn.Module, args: Any, out: Any) -> Any:
                counts[module_name] = counts.get(module_name, 0) + 1
                name = wanted.get((module_name, counts[module_name]))
                if name is None:
                    return None
                values = float_tensors(out)
                if any(v.ndim == 0 or v.shape[0] != problem.examples for v in values):
                    self.skipped[name] = "its examples are not in the first dimension"
                    return None
                self.before[name] = values
                self.leaves[name] = [v.detach().requires_grad_() for v in values]
                passed = [leaf.clone() for leaf in self.leaves[name]]
                self._seams[name] = list(zip(values, passed))
                return replaced(out, passed)

            return hook

        modules = dict(problem.model.named_modules())
        handles = [modules[m].register_forward_hook(cut(m)) for m in dict.fromkeys(n.module for n in picked)]
        try:
            return problem.outputs()
        finally:
            for handle in handles:
                handle.remove()

    def _connect(self) -> None:
        """Parents of every node; what does not reach the loss is left out."""
        names = list(self.before)
        parents: dict[str, tuple[str, ...]] = {}
        for k, u in enumerate(names):
            live = [b for b in self.before[u] if b.requires_grad]
            upstream = [] if u in self.sinks[1:] and not live else [p for p in names[:k] if p not in self.sinks]
            found = iter(grads(live, [t for p in upstream for t in self.leaves[p]], None))
            reached = {p: [next(found) is not None for _ in self.leaves[p]] for p in upstream}
            parents[u] = tuple(p for p in upstream if any(reached[p]))
        reach, todo = set(self.sinks), list(self.sinks)
        while todo:
            for p in parents[todo.pop()]:
                if p not in reach:
                    reach.add(p)
                    todo.append(p)
        self.skipped |= {n: "does not influence the loss" for n in names if n not in reach}
        self.order = [n for n in names if n in reach]
        if len(self.order) <= len(self.sinks):
            raise ValueError("none of the selected nodes influences the loss: choose other nodes")
        self.parents = {n: tuple(p for p in parents[n] if p in reach) for n in self.order}
        self.topology = Topology(self.parents)

    def _name_weights(self, params: Mapping[str, Tensor]) -> None:
        """Parameters between a node's parents and itself; of a shared one every node that uses it has a copy."""
        flat = list(params.values())
        self.weights: dict[str, Vector] = {}
        for u in self.order if flat else ():
            used = grads(self.before[u], flat, None)
            self.weights[u] = [p for p, g in zip(flat, used) if g is not None]

    def _linearise(self) -> None:
        """For every node u, its pull $D_u^\\top c$ as a function of the leaves and of the cotangent c = δ_u."""
        self.cotangent: dict[str, Vector] = {}
        self.pull: dict[str, dict[str, Vector]] = {}
        self.pull_weights: dict[str, Vector] = {}
        delta: dict[str, Vector] = {n: zeros(self.leaves[n]) for n in self.order}
        ends = [t for s in self.sinks for t in self.leaves[s]]
        slopes = iter(grads([self.loss], ends, None, create=True))
        self.slope = {s: filled([next(slopes) for _ in self.leaves[s]], self.leaves[s]) for s in self.sinks}
        delta |= {s: [g.detach() for g in self.slope[s]] for s in self.sinks}
        for u in reversed(self.order):
            self.cotangent[u] = [d.detach().requires_grad_() for d in delta[u]]
            own = self.weights.get(u, [])
            flat = [t for p in self.parents[u] for t in self.leaves[p]]
            pulled = iter(grads(self.before[u], [*flat, *own], self.cotangent[u], create=True))
            self.pull[u] = {}
            for p in self.parents[u]:
                self.pull[u][p] = filled([next(pulled) for _ in self.leaves[p]], self.leaves[p])
                delta[p] = [d + g.detach() for d, g in zip(delta[p], self.pull[u][p])]
            self.pull_weights[u] = filled(list(pulled), own)

    def push(self, u: str, tangents: Mapping[str, Vector]) -> tuple[Vector, dict[str, Vector], Vector]:
        """Of tangents by parent: $D_u t$, $(\\delta_u\\cdot T_u)\\,t$ by parent, and the same by the weights of u."""
        inner = [(g * t).sum() for p, ts in tangents.items() for g, t in zip(self.pull[u][p], ts) if g.requires_grad]
        return self._second(u, inner)

    def push_weights(self, u: str, tangent: Vector) -> tuple[Vector, dict[str, Vector], Vector]:
        """The same of a tangent of the weights of u."""
        return self._second(u, [(g * t).sum() for g, t in zip(self.pull_weights[u], tangent) if g.requires_grad])

    def _second(self, u: str, inner: Sequence[Tensor]) -> tuple[Vector, dict[str, Vector], Vector]:
        own = self.weights.get(u, [])
        wanted = [*self.cotangent[u], *(t for p in self.parents[u] for t in self.leaves[p]), *own]
        got = grads([torch.stack(list(inner)).sum()], wanted, None) if inner else [None] * len(wanted)
        queue = iter(filled(got, wanted))
        moved = [next(queue) for _ in self.cotangent[u]]
        return moved, {p: [next(queue) for _ in self.leaves[p]] for p in self.parents[u]}, list(queue)

    def carry(self, u: str, h: Vector) -> dict[str, Vector]:
        """$D_{u,v}^\\top h$ by parent v."""
        flat = [t for p in self.parents[u] for t in self.leaves[p]]
        found = iter(filled(grads(self.before[u], flat, h), flat))
        return {p: [next(found) for _ in self.leaves[p]] for p in self.parents[u]}

    def carry_weights(self, u: str, h: Vector) -> Vector:
        """$D_u^\\top h$ by the weights of u, a sum over examples."""
        return filled(grads(self.before[u], self.weights[u], h), self.weights[u])

    def curved(self, tangents: Mapping[str, Vector]) -> dict[str, Vector]:
        """The loss's own Hessian at the sinks, times tangents of sinks."""
        inner = [(s * t).sum() for n, ts in tangents.items() for s, t in zip(self.slope[n], ts) if s.requires_grad]
        ends = [t for s in self.sinks for t in self.leaves[s]]
        queue = iter(filled(grads([torch.stack(inner).sum()], ends, None) if inner else [None] * len(ends), ends))
        return {s: [next(queue) for _ in self.leaves[s]] for s in self.sinks}


def zeros(like: Sequence[Tensor]) -> Vector:
    """A vector of zeros."""
    return [torch.zeros_like(t) for t in like]


def filled(got: Sequence[Tensor | None], like: Sequence[Tensor]) -> Vector:
    """Zeros where a gradient is None."""
    return [torch.zeros_like(t) if g is None else g for g, t in zip(got, like)]


def grads(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], by: Sequence[Tensor] | None, create: bool = False
) -> Any:
    """``torch.autograd.grad`` that keeps the graph; None for what is not used."""
    live = [i for i, o in enumerate(outputs) if o.requires_grad]
    if not live or not inputs:
        return [None] * len(inputs)
    chosen = [outputs[i] for i in live]
    weights = [torch.ones_like(o) for o in chosen] if by is None else [by[i] for i in live]
    return torch.autograd.grad(chosen, inputs, weights, allow_unused=True, retain_graph=True, create_graph=create)
