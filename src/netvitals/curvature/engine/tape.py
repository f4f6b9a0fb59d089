r"""A forward pass that can be differentiated twice at every node.

Each node's output gets an additive perturbation that is zero, $f_v = g_v(f_{Pa(v)}, \theta_v) + \varepsilon_v$, and all
derivatives are taken with respect to the leaves $\varepsilon$ (or the parameters), never with respect to an
intermediate tensor: for operations whose backward keeps their *output* (tanh, softmax, exp, ...) the latter is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.capture import LossFn, Mode, main_output
from netvitals.curvature.engine.checks import gradient_beyond, loss_curves, rows_interact, tolerance
from netvitals.curvature.engine.graph import NodeGraph, ends, node_graph
from netvitals.curvature.engine.layout import float_tensors, replaced
from netvitals.curvature.engine.loss_inputs import LossInputs, operations
from netvitals.curvature.engine.nodes import (
    Choice,
    CurvatureNode,
    choose,
    parameter_node,
    parameters_of,
    survey,
)
from netvitals.curvature.engine.problem import (
    Problem,
    advised,
    float_outputs,
    laboratory,
    refuse_noise,
    refuse_randomness,
)

Space = Literal["activation", "parameter"]


class Tape:
    """One recorded pass: leaves per node, outputs, the loss and its gradient at the outputs.

    Attributes:
        nodes: the nodes, in the order they run.
        leaves: per node, the tensors to differentiate by: one ε shared by all examples, or the node's parameters.
        rows: per node and leaf, ε by example, shape (B, ...): the same perturbation before it is summed over the batch;
            None for a tensor without a dimension of examples.
        outputs: what the loss reads of the pass: the model's floating outputs, activations kept by hooks, penalised
            parameters; ``pull`` is ∇L at them, detached.
        graph: how the nodes depend on one another.
        kept_bytes: what the graph keeps alive, as seen in a trial pass.
        skipped: places that could not be nodes, or were left out, and why.
    """

    def __init__(
        self, problem: Problem, nodes: list[CurvatureNode], space: Space, *, chosen: str, kept_bytes: int
    ) -> None:
        self.problem, self.nodes, self.space, self.chosen, self.kept_bytes = problem, nodes, space, chosen, kept_bytes
        self.skipped: dict[str, str] = {}
        self.leaves: list[list[Tensor]] = [[] for _ in nodes]
        self.rows: list[list[Tensor | None]] = []
        self.outputs: list[Tensor] = []
        self.pull: list[Tensor] = []
        self.detached: list[Tensor] = []  # the outputs as variables of the loss alone
        self.slope: list[Tensor] = []  # ∇L at these, still differentiable by them
        self.loss = float("nan")
        self.graph = NodeGraph((), {}, {}, {})
        self.values: list[Tensor] = []  # f_v before its own perturbation, in activation space
        self.pruned = False  # of several tensors that a node returns, some are not used and are no leaves
        self.beyond = 0.0  # share of the loss's gradient that does not pass through the outputs
        self.loss_inputs = LossInputs({}, (), 0)
        self._rebuild: Any = None

    @property
    def examples(self) -> int:
        return self.problem.examples

    @property
    def narrowest(self) -> torch.dtype:
        """The coarsest dtype on the way to the output: of the products, or of a cast inside the model."""
        return max(self.leaves[0][0].dtype, self.problem.narrowest, key=lambda t: torch.finfo(t).eps)

    @cached_property
    def interacts(self) -> bool:
        """Whether examples see each other on the way from a node to the output, as measured."""
        return rows_interact(self.outputs, [r for rows in self.rows for r in rows if r is not None], self.examples)

    @property
    def single_rows(self) -> list[Tensor] | None:
        """One perturbation by example a node; None where a node returns several tensors, or one without examples."""
        single = [rows[0] for rows in self.rows if len(rows) == 1 and rows[0] is not None]
        return single if len(single) == len(self.rows) else None

    def demand_split(self) -> None:
        """Raise a sentence where H is not the sum of a Gauss–Newton part at the outputs and a tensor part."""
        if self.beyond > tolerance(self.outputs[0].dtype):
            raise ValueError(
                f"{self.beyond:.0%} of the loss's gradient does not come through the model's output or another "
                "tensor that loss_fn uses, so H cannot be split into GN + T. Remove this term of the loss (a "
                "custom autograd function, or parameters of another model), or use part='H', which includes it"
            )

    def record(self, checked: bool = False) -> None:
        """Run the model with ε in place and keep the graph; ``checked`` if another batch was measured before."""
        problem, model, start = self.problem, self.problem.model, operations()
        seams: list[list[tuple[Tensor, Tensor]]] = []  # (before, after) the perturbation, per node and tensor
        if self.space == "activation":
            for p in model.parameters():
                p.requires_grad_(False)  # only ε is differentiated; `preserved` puts the flags back
            outputs, seams = self._forward_perturbed()
        else:
            self.leaves = [list(parameters_of(model, n.name)) for n in self.nodes]
            outputs = problem.outputs()
        self.outputs, rebuild = float_outputs(outputs)
        everything = self.outputs
        self._rebuild = lambda: rebuild(everything)
        moved = {id(before): (before, after) for pairs in seams for before, after in pairs}
        weights = [leaf for leaves in self.leaves for leaf in leaves] if self.space == "parameter" else []
        self.loss_inputs = LossInputs(moved, weights, start)
        if not any(o.requires_grad for o in self.outputs):
            names = ", ".join(repr(n.name) for n in self.nodes)
            raise ValueError(
                f"node {names} does not influence the model's output, or its output is detached, so it has no "
                "curvature: choose another node"
            )
        if problem.own_loss:
            self._cut_at_logits(outputs)
        else:
            self._cut_at_outputs(outputs, rebuild)
        self.pull = [s.detach() for s in self.slope]
        if checked:
            return
        if not loss_curves(self.slope, self.detached):
            raise ValueError(
                "the loss has no second derivative in the model's output on this batch, so its Gauss–Newton matrix "
                "is zero. Causes are L1, hinge, a plain sum, or a saturated cross-entropy. Use a twice differentiable "
                "loss such as cross-entropy, mean squared error or Huber"
            )
        if seams:
            self.graph = node_graph(self.nodes, seams, self.outputs, model)
            self.values = [pairs[0][0] for pairs in seams]

    def _cut_at_outputs(self, outputs: Any, rebuild: Any) -> None:
        """The loss as a function of what it reads of the pass, and its gradient there."""
        self.detached = [o.detach().requires_grad_(o.requires_grad) for o in self.outputs]
        with self.loss_inputs.cut():
            loss = self.problem.loss(rebuild(self.detached))
        self.outputs = [*self.outputs, *self.loss_inputs.tensors]
        self.detached += self.loss_inputs.variables
        keep = [i for i, o in enumerate(self.outputs) if o.requires_grad]
        self.loss = float(loss.detach())
        if not loss.requires_grad:
            raise ValueError(
                "the loss has no gradient with respect to the model's output (an accuracy, an argmax or a detach?): "
                "give the loss that training uses"
            )
        slopes = torch.autograd.grad(loss, [self.detached[i] for i in keep], create_graph=True, allow_unused=True)
        used = [(i, s) for i, s in zip(keep, slopes) if s is not None]
        if len(self.outputs) > 1 and all(self.outputs[i].ndim == 0 for i, _ in used):
            return self._cut_at_logits(outputs)  # a loss function that hands on the model's own: lambda o, y: o.loss
        self.outputs = [self.outputs[i] for i, _ in used]
        self.detached = [self.detached[i] for i, _ in used]
        self.slope = [s for _, s in used]

    def _cut_at_logits(self, outputs: Any) -> None:
        """A model that computes its own loss: the network ends at the logits, which every path to the loss passes."""
        loss = self.problem.loss(outputs)
        self.loss = float(loss.detach())
        logits = main_output(outputs)
        own = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
        others = [o for o in self.outputs if o.grad_fn not in (None, loss.grad_fn) and o is not own]
        candidates = [logits, *others] if isinstance(logits, Tensor) else [o for o in others if o.ndim]
        heads = ends(loss.grad_fn, candidates, [leaf for ls in self.leaves for leaf in ls])
        if heads:
            self.slope = list(torch.autograd.grad(loss, heads, create_graph=True))
            self.outputs = self.detached = heads  # the slope's own graph begins at the logits
            return
        raise ValueError(
            "Gauss–Newton needs the output that the loss is computed from, but this model's own loss does not depend "
            "on its outputs alone. Give loss_fn and a batch with the target"
        )

    def whole_loss(self) -> Tensor:
        """The loss attached to the recorded graph."""
        with self.loss_inputs.attached():
            return self.problem.loss(self._rebuild())

    def mean_check(self) -> tuple[float, float]:
        """The loss of the batch, and the mean of the losses of its halves weighted by size: equal for a mean loss."""
        b = self.examples
        besides = {id(t) for t in self.loss_inputs.tensors}
        if b < 2 or any(o.shape[:1] != (b,) for o in self.outputs if id(o) not in besides):
            return self.loss, self.loss
        halves = (slice(0, b // 2), slice(b // 2, b))
        outputs, total = self._rebuild(), 0.0
        for h in halves:
            with self.loss_inputs.halved(h, b):
                total += self.problem.loss_of_part(outputs, h) * (h.stop - h.start) / b
        return self.loss, total

    def _forward_perturbed(self) -> tuple[Any, list[list[tuple[Tensor, Tensor]]]]:
        index = {(n.module, n.call): i for i, n in enumerate(self.nodes)}
        counts: dict[str, int] = {}
        seams: dict[int, list[tuple[Tensor, Tensor]]] = {}
        rows: dict[int, list[Tensor | None]] = {}

        def perturb(name: str) -> Any:
            def hook(module: nn.Module, args: Any, out: Any) -> Any:
                counts[name] = counts.get(name, 0) + 1
                i = index.get((name, counts[name]))
                if i is None:
                    return None
                values = float_tensors(out)
                parts = [place.perturbed(v, self.examples) for place, v in zip(self.nodes[i].places, values)]
                self.leaves[i] = [leaf for leaf, _, _ in parts]
                rows[i] = [row for _, row, _ in parts]
                seams[i] = [(value, moved) for value, (_, _, moved) in zip(values, parts)]
                return replaced(out, [moved for _, _, moved in parts])

            return hook

        handles = [
            m.register_forward_hook(perturb(name))
            for name, m in self.problem.model.named_modules()
            if name in {n.module for n in self.nodes}
        ]
        try:
            outputs = self.problem.outputs()
        finally:
            for handle in handles:
                handle.remove()
        self.rows = [rows[i] for i in range(len(self.nodes))]
        return outputs, [seams[i] for i in range(len(self.nodes))]


@contextmanager
def recorded(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    nodes: Choice = None,
    space: Space = "activation",
    dtype: torch.dtype | None = None,
    mode: Mode = "as_is",
    memory: int = 2 << 30,
    noise: int | None = None,
) -> Iterator[Tape]:
    """Record a tape; the model, its mode, buffers, gradients and hooks are put back, also after an error.

    ``noise`` seeds what the model draws; with None a model that draws is refused.
    """
    if space not in ("activation", "parameter"):
        raise ValueError(f"space= must be 'activation' or 'parameter', got {space!r}")
    problem = Problem(model, loss_fn, batch, dtype, noise)
    with laboratory(problem.model, mode), advised():
        refuse_noise(problem)
        seen = survey(problem, memory)
        picked, chosen, skipped = choose(problem, seen, nodes, space)
        tape = Tape(problem, picked, space, chosen=chosen, kept_bytes=seen.kept_bytes)
        tape.skipped = skipped
        tape.record()
        refuse_randomness(seen.outputs, tape.outputs)
        _drop_idle(tape, explicit=nodes is not None)
        yield tape


@contextmanager
def recorded_parameters(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    dtype: torch.dtype | None = None,
    mode: Mode = "as_is",
    memory: int = 2 << 30,
    noise: int | None = None,
) -> Iterator[Tape]:
    """A tape of ``model`` on ``batch`` under ``loss_fn`` whose nodes are the trainable parameter tensors; those that do
    not reach the loss are left out. ``dtype``, ``mode``, ``memory`` and ``noise`` are as for :func:`recorded`.
    """
    problem = Problem(model, loss_fn, batch, dtype, noise)
    named = [(name, p) for name, p in problem.model.named_parameters() if p.requires_grad]
    if not named:
        raise ValueError("the model has no trainable parameter: unfreeze the parameters whose curvature you want")
    with laboratory(problem.model, mode), advised():
        refuse_noise(problem)
        seen = survey(problem, memory, calls=False)
        nodes = [parameter_node(name, tuple(p.shape)) for name, p in named]
        chosen = "all trainable parameters"
        tape = Tape(problem, nodes, "parameter", chosen=chosen, kept_bytes=seen.kept_bytes)
        tape.skipped = {n: "frozen" for n, p in problem.model.named_parameters() if not p.requires_grad}
        tape.record()
        refuse_randomness(seen.outputs, tape.outputs)
        _drop_idle(tape, explicit=False)
        yield tape


def _drop_idle(tape: Tape, explicit: bool) -> None:
    """Nodes whose perturbation does not reach the loss: an error when asked for by name, dropped from a default set."""
    flat = [leaf for leaves in tape.leaves for leaf in leaves]
    if not flat:
        raise ValueError("none of the selected nodes has an output that can be differentiated: choose other nodes")
    grads = torch.autograd.grad(tape.outputs, flat, tape.pull, allow_unused=True, retain_graph=True)
    whole = torch.autograd.grad(tape.whole_loss(), flat, allow_unused=True, retain_graph=True)
    tape.beyond = gradient_beyond(whole, grads)
    ends = np.cumsum([len(leaves) for leaves in tape.leaves])
    used = [[g is not None for g in grads[end - len(ls) : end]] for end, ls in zip(ends, tape.leaves)]
    live = [any(flags) for flags in used]
    idle = [n.name for n, ok in zip(tape.nodes, live) if not ok]
    if idle and (explicit or not any(live)):
        raise ValueError(
            f"node {idle[0]!r} does not influence the loss: its output is unused or detached. Leave it out of nodes="
        )
    if tape.space == "activation":  # of several tensors that a node returns, those that are used
        tape.pruned = not all(all(flags) for flags, ok in zip(used, live) if ok)
        for i, flags in enumerate(used):
            tape.leaves[i] = [leaf for leaf, ok in zip(tape.leaves[i], flags) if ok]
            tape.rows[i] = [row for row, ok in zip(tape.rows[i], flags) if ok]
            places = tuple(p for p, ok in zip(tape.nodes[i].places, flags) if ok)
            tape.nodes[i] = replace(tape.nodes[i], places=places, size=sum(leaf.numel() for leaf in tape.leaves[i]))
    if idle:
        keep = [i for i, ok in enumerate(live) if ok]
        tape.skipped |= dict.fromkeys(idle, "does not influence the loss")
        tape.chosen += f" (without {', '.join(idle)}, which do not influence the loss)"
        tape.nodes = [tape.nodes[i] for i in keep]
        tape.leaves = [tape.leaves[i] for i in keep]
        tape.rows = [tape.rows[i] for i in keep] if tape.rows else []
        tape.values = [tape.values[i] for i in keep] if tape.values else []
        tape.graph = tape.graph.without(idle)
