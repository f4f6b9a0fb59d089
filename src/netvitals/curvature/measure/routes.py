r"""The paper's graph of a module: which edge, and which path, carries the curvature between two layers.

One forward pass is cut at every node: the node's output becomes a variable of its own, so that each derivative is of
one edge $p\to u$ alone, $D_{u,p}=\partial g_u/\partial f_p$. With $\delta_u$ the gradient of the loss at node u, the
block $H_{v,w}$ is built from the loss backwards,

$$H_{v,w}=\sum_{u\in Ch(v)}\Big(D_{u,v}^\top H_{u,w}+\sum_{p\in Pa(u)}(\delta_u\cdot T_{u;v,p})\,J_{p,w}\Big),$$

$J_{p,w}=df_p/df_w$. At u = loss the second term is the Gauss–Newton part, elsewhere it is tensor curvature that arises
at u. Each term is multiplied with probes z in the space of w, the same for every example:
$\|A\|_F^2=E|Az|^2$. Where w is no wider than the probes, z runs over the basis and the norms are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals._plot import Plot, Series
from netvitals.anatomy import Topology
from netvitals.capture import LossFn, Mode, Result, one_screen, skipped_lines, undisturbed
from netvitals.curvature.engine.graph import OUT
from netvitals.curvature.engine.layout import float_tensors, replaced
from netvitals.curvature.engine.nodes import Choice, CurvatureNode, choose, survey
from netvitals.curvature.engine.problem import Problem, advised, float_outputs, laboratory, refuse_noise
from netvitals.curvature.engine.products import Progress

LOSS = "loss"
MOST_PATHS = 24  # from one node to the output; with more, paths are not taken apart
SHOWN = 16
Vector = list[Tensor]  # one tensor for each that a node returns, examples first


@dataclass(frozen=True, kw_only=True)
class Route:
    """What came over the edge v → via into the block of v.

    Part of :class:`CurvatureGraph`.

    Attributes:
        v: node of the rows.
        via: its child, or ``loss``.
        gauss_newton: Frobenius norm of the Gauss–Newton part that came this way.
        tensor_carried: of the tensor part that came this way.
        tensor_added: of the tensor part that arose at ``via``.
        stderr: of ``gauss_newton``; 0 where exact.
        share: of the squared Gauss–Newton norms of all edges out of v.
    """

    v: str
    via: str
    gauss_newton: float
    tensor_carried: float
    tensor_added: float
    stderr: float
    share: float


@dataclass(frozen=True, kw_only=True)
class PathPair:
    """What one pair of paths to the output contributes to the Gauss–Newton block.

    Part of :class:`CurvatureGraph`.

    Attributes:
        from_v: names along the path from v.
        from_w: names along the path from w.
        resonance: Frobenius norm of the contribution.
        stderr: of the norm; 0 where exact.
    """

    from_v: tuple[str, ...]
    from_w: tuple[str, ...]
    resonance: float
    stderr: float


@dataclass(frozen=True, kw_only=True)
class Block:
    """Norms of one block.

    Part of :class:`CurvatureGraph`.

    Attributes:
        total: of H.
        gauss_newton: of its Gauss–Newton part.
        tensor: of its tensor part.
        stderr: of ``total``; 0 where exact.
    """

    total: float
    gauss_newton: float
    tensor: float
    stderr: float


@dataclass(frozen=True, kw_only=True)
class CurvatureGraph(Result):
    """Where the curvature between every node and one node comes from.

    Returned by :func:`graph`.

    Attributes:
        of: the node w of the columns.
        parents: of every node, in the order they run; ``out`` is the model's output.
        routes: one entry for every edge into a block.
        blocks: v -> norms of its block with w.
        paths: pairs of paths from ``of`` to the output, largest first; empty where there are too many.
        exact: whether probes ran over the whole basis.
        probes: products of each edge.
        passes: backward passes through the whole model, about: gradient-equivalents.
        skipped: place that is no node → reason.
    """

    of: str
    parents: Mapping[str, tuple[str, ...]]
    routes: tuple[Route, ...]
    blocks: dict[str, Block]
    paths: tuple[PathPair, ...]
    exact: bool
    probes: int
    passes: int
    skipped: Mapping[str, str] = field(default_factory=dict)

    def into(self, v: str) -> tuple[Route, ...]:
        """The edges over which curvature comes into a node, the strongest first.

        Args:
            v: its name.
        """
        found = sorted((r for r in self.routes if r.v == v), key=lambda r: -r.gauss_newton)
        if not found:
            raise ValueError(f"there is no node {v!r} before the loss; the nodes are {', '.join(self.blocks)}")
        return tuple(found)

    @property
    def splits(self) -> tuple[str, ...]:
        """Nodes with several ways to the loss: where a skip connection begins."""
        return tuple(dict.fromkeys(r.v for r in self.routes if sum(q.v == r.v for q in self.routes) > 1))

    def rows(self) -> list[dict[str, Any]]:
        """One row an edge."""
        return [
            {
                "v": r.v,
                "via": r.via,
                "gauss_newton": r.gauss_newton,
                "stderr": r.stderr,
                "tensor_carried": r.tensor_carried,
                "tensor_added": r.tensor_added,
                "share": r.share,
            }
            for r in self.routes
        ]

    def plot(self) -> Plot:
        """Norms of the blocks with w, node by node, with the tensor part apart."""
        names = list(self.blocks)
        at = [float(i + 1) for i in range(len(names))]
        series = [
            Series(label, at, [getattr(self.blocks[n], key) for n in names], line=len(at) > 1)
            for key, label in (("gauss_newton", "Gauss–Newton"), ("tensor", "tensor part"))
        ]
        return Plot(f"node, in the order of the model (columns: {self.of})", "Frobenius norm of the block", series)

    def __str__(self) -> str:
        how = "exact" if self.exact else f"{self.probes} probes"
        lines = [f"Curvature with {self.of} ({how}, about {self.passes} gradients):"]
        for name in [n for n in self.blocks if n in self.splits][:SHOWN]:
            ways = ", ".join(
                f"{r.share:.0%} over {name} → {r.via} ({r.gauss_newton:.3g} ± {r.stderr:.1g})" for r in self.into(name)
            )
            lines.append(f"  {name} splits: {ways}")
        if not self.splits:
            lines.append("  no node has more than one way to the loss: no skip connection between these nodes")
        for v, b in list(self.blocks.items())[:SHOWN]:
            lines.append(
                f"  H({v}, {self.of}) {b.total:.3g} ± {b.stderr:.1g}: GN {b.gauss_newton:.3g}, T {b.tensor:.3g}"
            )
        lines += [
            f"  path {' → '.join(p.from_v)} with {' → '.join(p.from_w)}: {p.resonance:.3g}" for p in self.paths[:4]
        ]
        return one_screen(lines + skipped_lines(self.skipped))


@undisturbed
def graph(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    nodes: Choice = None,
    seed: int = 0,
    progress: Progress | None = None,
    of: str | None = None,
    probes: int = 30,
    memory: int = 2 << 30,
) -> CurvatureGraph:
    """Measure how much of a layer's curvature each connection carries, for example a skip connection.

    Args:
        model: any module; left exactly as it was.
        loss_fn: ``loss_fn(output, target)``, or its name; a mean over examples.
        batch: what a loader yields, with the target.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``; BatchNorm must use its running statistics, ``mode="eval"``.
        nodes: names or globs of submodules, a rule ``(name, module) -> bool``, or None for the model's blocks.
        seed: of the probes.
        progress: called with (probes done, probes planned).
        of: the node w whose Hessian blocks are measured; the first one by default.
        probes: products of each edge; where w is no wider, the whole basis, and norms are exact.
        memory: bytes for the graph.

    Returns:
        Norms of the part that each edge carries, of the blocks, and of pairs of paths, with standard errors.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    >>> found = graph(net, "mse", (torch.randn(4, 2), torch.zeros(4, 2)), nodes=["0", "1"])
    >>> found.parents, found.exact, found.splits
    ({'0': (), '1': ('0',), 'out': ('1',)}, True, ())
    """
    if probes < 2:
        raise ValueError(f"probes is {probes}, expected at least 2: the standard error is estimated from them")
    problem = Problem(model, loss_fn, batch, None)
    if problem.own_loss:
        raise ValueError(
            "the model computes its own loss, so netvitals cannot tell its output from its loss. Give loss_fn (for "
            "example 'cross_entropy') and a batch with the target"
        )
    with laboratory(problem.model, mode):
        refuse_noise(problem.model)
        if problem.couples_examples:
            raise ValueError(
                "BatchNorm computes its statistics over the batch, so examples are not independent: pass mode='eval'"
            )
        with advised():
            seen = survey(problem, memory)
            picked, _, skipped = choose(problem, seen, nodes, "activation")
            cut = _Cut(problem, picked, skipped)
            return _measured(cut, of, probes, seed, progress)


class _Cut:
    """One pass with every node's output made a variable of its own."""

    def __init__(self, problem: Problem, picked: Sequence[CurvatureNode], skipped: Mapping[str, str]) -> None:
        self.skipped = dict(skipped)
        self.before: dict[str, Vector] = {}
        self.leaves: dict[str, Vector] = {}
        wanted = {(n.module, n.call): n.name for n in picked}
        counts: dict[str, int] = {}

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
                return replaced(out, [leaf.clone() for leaf in self.leaves[name]])

            return hook

        for p in problem.model.parameters():
            p.requires_grad_(False)  # derivatives are by nodes alone; `preserved` puts the flags back
        modules = dict(problem.model.named_modules())
        handles = [modules[m].register_forward_hook(cut(m)) for m in dict.fromkeys(n.module for n in picked)]
        try:
            outputs, rebuild = float_outputs(problem.outputs())
        finally:
            for handle in handles:
                handle.remove()
        self.before[OUT] = outputs
        self.leaves[OUT] = [o.detach().requires_grad_() for o in outputs]
        self.loss = problem.loss(rebuild([leaf.clone() for leaf in self.leaves[OUT]]))
        used = _grad([self.loss], self.leaves[OUT], [torch.ones_like(self.loss)], create=True)
        if all(g is None for g in used):
            raise ValueError(
                "the loss has no gradient with respect to the model's output: give the loss that training uses"
            )
        self._connect()

    def _connect(self) -> None:
        """Parents of every node; what does not reach the output is left out."""
        names = list(self.before)
        parents: dict[str, tuple[str, ...]] = {}
        for k, u in enumerate(names):
            found = []
            live = [b for b in self.before[u] if b.requires_grad]
            for p in names[:k] if live else ():
                found += [p] if any(g is not None for g in _grad(live, self.leaves[p], None)) else []
            parents[u] = tuple(found)
        reach, todo = {OUT}, [OUT]
        while todo:
            for p in parents[todo.pop()]:
                if p not in reach:
                    reach.add(p)
                    todo.append(p)
        self.skipped |= {n: "does not influence the loss" for n in names if n not in reach}
        self.order = [n for n in names if n in reach]
        if len(self.order) < 2:
            raise ValueError(
                "none of the selected nodes influences the loss through the model's output: choose other nodes"
            )
        self.parents = {n: tuple(p for p in parents[n] if p in reach) for n in self.order}
        self.topology = Topology(self.parents)
        self._linearise()

    def _linearise(self) -> None:
        """For every node u, its pull $D_u^\\top c$ as a function of the leaves and of the cotangent c = δ_u."""
        self.cotangent: dict[str, Vector] = {}
        self.pull: dict[str, dict[str, Vector]] = {}
        delta: dict[str, Vector] = {n: [torch.zeros_like(t) for t in self.leaves[n]] for n in self.order}
        slope = _grad([self.loss], self.leaves[OUT], [torch.ones_like(self.loss)], create=True)
        self.slope = [torch.zeros_like(t) if s is None else s for s, t in zip(slope, self.leaves[OUT])]
        delta[OUT] = [s.detach() for s in self.slope]
        for u in reversed(self.order):
            self.cotangent[u] = [d.detach().requires_grad_() for d in delta[u]]
            self.pull[u] = {}
            flat = [t for p in self.parents[u] for t in self.leaves[p]]
            if not flat:
                continue
            pulled = iter(_grad(self.before[u], flat, self.cotangent[u], create=True))
            for p in self.parents[u]:
                self.pull[u][p] = [torch.zeros_like(t) if (g := next(pulled)) is None else g for t in self.leaves[p]]
                delta[p] = [d + g.detach() for d, g in zip(delta[p], self.pull[u][p])]

    def push(self, u: str, tangents: Mapping[str, Vector]) -> tuple[Vector, dict[str, Vector]]:
        """$D_u t$, and $(\\delta_u\\cdot T_u)\\,t$ by parent, of tangents by parent."""
        inner = [(g * t).sum() for p, ts in tangents.items() for g, t in zip(self.pull[u][p], ts) if g.requires_grad]
        flat = [t for p in self.parents[u] for t in self.leaves[p]]
        wanted = [*self.cotangent[u], *flat]
        found = _grad([torch.stack(inner).sum()], wanted, None) if inner else [None] * len(wanted)
        filled = iter([torch.zeros_like(t) if g is None else g for g, t in zip(found, wanted)])
        moved = [next(filled) for _ in self.cotangent[u]]
        return moved, {p: [next(filled) for _ in self.leaves[p]] for p in self.parents[u]}

    def carry(self, u: str, h: Vector) -> dict[str, Vector]:
        """$D_{u,v}^\\top h$ by parent v."""
        flat = [t for p in self.parents[u] for t in self.leaves[p]]
        if not flat:
            return {}
        found = iter(_grad(self.before[u], flat, h))
        return {
            p: [torch.zeros_like(t) if (g := next(found)) is None else g for t in self.leaves[p]]
            for p in self.parents[u]
        }

    def curved(self, tangent: Vector) -> Vector:
        """The loss's own Hessian at the output, times a tangent."""
        inner = [(s * t).sum() for s, t in zip(self.slope, tangent) if s.requires_grad]
        found = _grad([torch.stack(inner).sum()], self.leaves[OUT], None) if inner else [None] * len(tangent)
        return [torch.zeros_like(t) if g is None else g for g, t in zip(found, self.leaves[OUT])]


def _grad(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], by: Sequence[Tensor] | None, create: bool = False
) -> Any:
    live = [i for i, o in enumerate(outputs) if o.requires_grad]
    if not live or not inputs:
        return [None] * len(inputs)
    chosen = [outputs[i] for i in live]
    weights = [torch.ones_like(o) for o in chosen] if by is None else [by[i] for i in live]
    return torch.autograd.grad(chosen, inputs, weights, allow_unused=True, retain_graph=True, create_graph=create)


def _measured(cut: _Cut, of: str | None, probes: int, seed: int, progress: Progress | None) -> CurvatureGraph:
    w = cut.order[0] if of is None else of
    if w not in cut.order or w == OUT:
        raise ValueError(f"there is no node {w!r}; the nodes are {', '.join(n for n in cut.order if n != OUT)}")
    sizes = [t[0].numel() for t in cut.leaves[w]]
    exact = sum(sizes) <= probes
    count = sum(sizes) if exact else probes
    ways = list(cut.topology.paths(w, OUT, MOST_PATHS + 1))
    if len(ways) > MOST_PATHS:
        cut.skipped[f"paths from {w}"] = f"more than {MOST_PATHS} paths to the output"
        ways = []
    generator = torch.Generator().manual_seed(seed)
    edges: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    blocks: dict[str, list[tuple[float, float, float]]] = {}
    pairs: dict[tuple[int, int], list[float]] = {}
    for k in range(count):
        z = _probe(cut.leaves[w], sizes, k if exact else None, generator)
        _routed(cut, w, z, edges, blocks)
        _along(cut, ways, z, pairs)
        if progress is not None:
            progress(k + 1, count)
    size = lambda values: _norm(np.array(values), exact)
    routes, squares = [], dict[str, float]()
    for (v, via), seen in edges.items():
        gn, carried, added = (size([s[i] for s in seen]) for i in range(3))
        squares[v] = squares.get(v, 0.0) + gn[0] ** 2
        routes.append((v, via, gn, carried, added))
    return CurvatureGraph(
        of=w,
        parents=cut.parents,
        routes=tuple(
            Route(
                v=v,
                via=via,
                gauss_newton=gn[0],
                tensor_carried=carried[0],
                tensor_added=added[0],
                stderr=gn[1],
                share=gn[0] ** 2 / squares[v] if squares[v] else math.nan,
            )
            for v, via, gn, carried, added in routes
        ),
        blocks={
            v: Block(
                total=(h := size([s[0] for s in blocks[v]]))[0],
                gauss_newton=size([s[1] for s in blocks[v]])[0],
                tensor=size([s[2] for s in blocks[v]])[0],
                stderr=h[1],
            )
            for v in cut.order
            if v in blocks
        },
        paths=tuple(
            sorted(
                (
                    PathPair(from_v=ways[i], from_w=ways[j], resonance=(r := size(values))[0], stderr=r[1])
                    for (i, j), values in pairs.items()
                ),
                key=lambda p: -p.resonance,
            )
        ),
        exact=exact,
        probes=count,
        passes=count * (4 + 2 * len(ways)) + 3,
        skipped=cut.skipped,
    )


def _probe(leaves: Vector, sizes: Sequence[int], basis: int | None, generator: torch.Generator) -> Vector:
    """A probe in the space of one example, the same for all: signs, or a vector of the basis."""
    flat = (
        torch.randint(0, 2, (sum(sizes),), generator=generator) * 2.0 - 1.0
        if basis is None
        else torch.eye(sum(sizes))[basis]
    )
    return [part.to(t).reshape(1, *t.shape[1:]).expand_as(t) for part, t in zip(flat.split(list(sizes)), leaves)]


def _routed(cut: _Cut, w: str, z: Vector, edges: dict[Any, Any], blocks: dict[str, Any]) -> None:
    """One product of every block with z, edge by edge."""
    tangents, bends = {w: z}, {}
    for u in cut.order[cut.order.index(w) + 1 :]:
        known = {p: tangents[p] for p in cut.parents[u] if p in tangents}
        if known:
            tangents[u], bends[u] = cut.push(u, known)
    zero = lambda v: [torch.zeros_like(t) for t in cut.leaves[v]]
    gn, t = {v: zero(v) for v in cut.order}, {v: zero(v) for v in cut.order}
    gn[OUT] = cut.curved(tangents[OUT])
    edges.setdefault((OUT, LOSS), []).append((_square(gn[OUT]), 0.0, 0.0))
    for u in reversed(cut.order):
        blocks.setdefault(u, []).append((_square(_sum(gn[u], t[u])), _square(gn[u]), _square(t[u])))
        carried = cut.carry(u, gn[u]), cut.carry(u, t[u])
        for v in cut.parents[u]:
            bend = bends[u][v] if u in bends else zero(v)
            edges.setdefault((v, u), []).append((_square(carried[0][v]), _square(carried[1][v]), _square(bend)))
            gn[v] = _sum(gn[v], carried[0][v])
            t[v] = _sum(t[v], _sum(carried[1][v], bend))


def _along(cut: _Cut, ways: Sequence[tuple[str, ...]], z: Vector, pairs: dict[tuple[int, int], list[float]]) -> None:
    """The Gauss–Newton contribution of every pair of paths, times z."""
    for j, way in enumerate(ways):
        tangent = z
        for p, u in pairwise(way):
            tangent = cut.push(u, {p: tangent})[0]
        curved = cut.curved(tangent)
        for i, back in enumerate(ways):
            h = curved
            for p, u in zip(reversed(back[:-1]), reversed(back[1:])):
                h = cut.carry(u, h)[p]
            pairs.setdefault((i, j), []).append(_square(h))


def _sum(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b)]


def _square(h: Vector) -> float:
    """|mean block · z|²: a mean loss has the 1/B in it, so that examples are added up."""
    return sum(float(t.detach().sum(0).double().square().sum()) for t in h)


def _norm(squares: np.ndarray, exact: bool) -> tuple[float, float]:
    """Frobenius norm from products with the basis, or with probes, and its standard error."""
    if exact:
        return float(math.sqrt(squares.sum())), 0.0
    mean, error = float(squares.mean()), float(squares.std(ddof=1) / math.sqrt(squares.size))
    return math.sqrt(mean), error / (2 * math.sqrt(mean)) if mean > 0 else 0.0
