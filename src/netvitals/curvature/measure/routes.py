r"""The paper's graph of a module: which edge, and which path, carries the curvature between two layers.

One forward pass is cut at every node: the node's output becomes a variable of its own, so that each derivative is of
one edge $p\to u$ alone, $D_{u,p}=\partial g_u/\partial f_p$. With $\delta_u$ the gradient of the loss at node u, the
block $H_{v,w}$ is built from the loss backwards,

$$H_{v,w}=\sum_{u\in Ch(v)}\Big(D_{u,v}^\top H_{u,w}+\sum_{p\in Pa(u)}(\delta_u\cdot T_{u;v,p})\,J_{p,w}\Big),$$

$J_{p,w}=df_p/df_w$. At u = loss the second term is the Gauss–Newton part, elsewhere it is tensor curvature that arises
at u. Each term is multiplied with probes z in the space of w, the same for every example:
$\|A\|_F^2=E|Az|^2$. Where w is no wider than the probes, z runs over the basis and the norms are exact.

Between weights, $H_{\theta_v,\theta_w}=D_v^\top H_{v,w}D_w+1[v=w]\,\delta_v\cdot T^\theta_v
+(\sum_pB_{v,p}J_{p,w})D_w+D_v^\top(\sum_pJ_{p,v}^\top B_{w,p}^\top)$ with $D_v=\partial g_v/\partial\theta_v$ of all
examples, $B_{v,p}=\delta_v\cdot\partial^2g_v/\partial\theta_v\partial f_p$. Corollary 17 bounds its norm by
$\|D_v\|_2\|D_w\|_2\|H_{v,w}\|_F$, examples side by side, and the norms of the other terms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from netvitals._plot import Plot, Series
from netvitals.capture import LossFn, Mode, Result, batches_of, one_screen, skipped_lines, undisturbed
from netvitals.curvature.engine.cut import CutModel, Vector
from netvitals.curvature.engine.graph import OUT
from netvitals.curvature.engine.nodes import Choice, branching, choose, survey
from netvitals.curvature.engine.problem import Problem, advised, laboratory, refuse_noise, refuse_randomness
from netvitals.curvature.engine.products import Progress
from netvitals.curvature.engine.routing import routed
from netvitals.curvature.engine.stream import several
from netvitals.curvature.measure.block_estimates import frobenius, sampling_error
from netvitals.curvature.measure.weight_routes import WeightBlock, between_weights

MOST_PATHS = 12  # from one node to the loss; with more, pairs of paths are not taken apart
SHOWN = 12


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
        stderr: of ``gauss_newton``, by the probes; 0 where exact.
        sampling: of ``gauss_newton``, over batches or draws; NaN for one.
        share: of the squared Gauss–Newton norms of all edges out of v.
    """

    v: str
    via: str
    gauss_newton: float
    tensor_carried: float
    tensor_added: float
    stderr: float
    sampling: float
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
        stderr: of ``total``, by the probes; 0 where exact.
        sampling: of ``total``, over batches or draws; NaN for one.
    """

    total: float
    gauss_newton: float
    tensor: float
    stderr: float
    sampling: float


@dataclass(frozen=True, kw_only=True)
class CurvatureGraph(Result):
    """Where the curvature between every node and one node comes from.

    Returned by :func:`graph`.

    Attributes:
        of: the node w of the columns.
        parents: of every node, in the order they run; ``out`` is the model's output, ``loss term`` what the loss reads
            besides it.
        routes: one entry for every edge into a block.
        blocks: v -> norms of its block with w.
        paths: pairs of paths from ``of`` to the output, largest first; empty where there are too many.
        exact: whether probes ran over the whole basis.
        probes: products of each edge.
        passes: what it cost in gradients, about.
        weights: v -> the block between its weights and those of w, with Corollary 17's bound; empty unless asked for.
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
    weights: dict[str, WeightBlock] = field(default_factory=dict)
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

    @property
    def skips(self) -> tuple[Route, ...]:
        """Edges that lead around other nodes, those with the largest share first: the skip connections."""
        above: dict[str, set[str]] = {}
        for u, parents in self.parents.items():
            above[u] = set(parents).union(*(above[p] for p in parents))
        around = lambda v, u: any(v in above[p] for p in self.parents.get(u, ()) if p != v)
        return tuple(sorted((r for r in self.routes if around(r.v, r.via)), key=lambda r: -r.share))

    def rows(self) -> list[dict[str, Any]]:
        """One row an edge."""
        return [
            {
                "v": r.v,
                "via": r.via,
                "gauss_newton": r.gauss_newton,
                "stderr": r.stderr,
                "sampling": r.sampling,
                "tensor_carried": r.tensor_carried,
                "tensor_added": r.tensor_added,
                "share": r.share,
            }
            for r in self.routes
        ]

    def plot(self) -> Plot:
        """The share of the curvature that each skip connection carries, in the order of the model.

        Where there is none, the norms of the blocks.
        """
        names = list(self.blocks)
        skips = sorted(self.skips, key=lambda r: names.index(r.v))
        if skips:
            at = [float(names.index(r.v) + 1) for r in skips]
            shares = Series("skip connection", at, [100 * r.share for r in skips], line=len(at) > 1)
            return Plot(
                "node where it begins, in the order of the model", "% of the squared Gauss–Newton norm", [shares]
            )
        at = [float(i + 1) for i in range(len(names))]
        series = [
            Series(label, at, [getattr(self.blocks[n], key) for n in names], line=len(at) > 1)
            for key, label in (("gauss_newton", "Gauss–Newton"), ("tensor", "tensor part"))
        ]
        return Plot(f"node, in the order of the model (columns: {self.of})", "Frobenius norm of the block", series)

    def __str__(self) -> str:
        how = "exact" if self.exact else f"{self.probes} probes"
        lines = [f"Curvature with {self.of} ({how}, about {self.passes} gradients):"]
        if not self.splits:
            lines.append("  no node has more than one way to the loss: no skip connection between these nodes")
        skips = self.skips
        for r in skips[:SHOWN]:
            others = ", ".join(f"{q.share:.0%} over {q.via}" for q in self.into(r.v) if q.via != r.via)
            lines.append(
                f"  skip {r.v} → {r.via}: {r.share:.0%} of what leaves {r.v} "
                f"({_with_errors(r.gauss_newton, r.stderr, r.sampling)}; {others})"
            )
        if skips:
            lines.append(
                f"  a branch beside a skip with a large share is the first to prune or freeze: at {skips[0].via}"
            )
        around = {r.v for r in skips}
        for name in [n for n in self.blocks if n in self.splits and n not in around][:SHOWN]:
            ways = ", ".join(
                f"{r.share:.0%} over {r.via} ({_with_errors(r.gauss_newton, r.stderr, r.sampling)})"
                for r in self.into(name)
            )
            lines.append(f"  {name} splits: {ways}")
        for v, b in list(self.blocks.items())[:SHOWN]:
            size = _with_errors(b.total, b.stderr, b.sampling)
            lines.append(f"  H({v}, {self.of}) {size}: GN {b.gauss_newton:.3g}, T {b.tensor:.3g}")
        lines += [f"  weights of {v} with those of {self.of}: {b}" for v, b in list(self.weights.items())[:SHOWN]]
        if loose := [b.bound / b.total for b in self.weights.values() if b.total > 0]:
            lines.append(
                f"  the bound is {np.median(loose):.1f} times the block (median): layers may be treated apart where it "
                "is small against the blocks of both with themselves"
            )
        lines += [
            f"  path {' → '.join(p.from_v)} with {' → '.join(p.from_w)}: {p.resonance:.3g}" for p in self.paths[:4]
        ]
        return one_screen(lines + skipped_lines(self.skipped))


def _with_errors(value: float, stderr: float, sampling: float) -> str:
    data = f" ± {sampling:.1g} over batches" if np.isfinite(sampling) else ""
    return f"{value:.3g}" + (f" ± {stderr:.1g}" if stderr else "") + data


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
    weights: bool = False,
    memory: int = 2 << 30,
) -> CurvatureGraph:
    """Measure how much of a layer's curvature each connection carries, for example a skip connection.

    Args:
        model: any module; it is not changed.
        loss_fn: ``loss_fn(output, target)``, or its name; a mean over examples. It may read activations that modules
            keep as attributes: the direct term is the edge to ``loss term``.
        batch: one batch as a data loader yields it, with the target; or a list of batches, whose mean is taken with
            all graphs in memory. Each batch of a list has its own draw of dropout and other noise.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``; BatchNorm must use its running statistics, ``mode="eval"``.
        nodes: names or glob patterns of submodules, a function ``(name, module) -> bool``, or None for the model's
            blocks and the layers that write into its residual streams.
        seed: seed of the random probes.
        progress: called with (probes done, probes planned).
        of: the node w whose Hessian blocks are measured; the first one by default.
        probes: products of each edge; where w is no wider, the whole basis, and norms are exact.
        weights: also measure the blocks between the weights of every node and those of w, with the bound of
            Corollary 17; one batch.
        memory: memory budget in bytes for the graphs.

    Returns:
        Norms of the part that each edge carries, of the blocks, and of pairs of paths, with standard errors.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    >>> found = graph(net, "mse", (torch.randn(4, 2), torch.zeros(4, 2)), nodes=["0", "1"])
    >>> found.parents, found.exact, found.splits
    ({'0': (), '1': ('0',), 'out': ('1',)}, True, ())
    """
    if probes < 2:
        raise ValueError(f"probes= must be at least 2, got {probes}: the standard error is estimated from them")
    many = several(batch)
    batches = list(batches_of(batch)) if many else [batch]
    if not batches:
        raise ValueError("the data holds no batch: give a list with at least one batch")
    if weights and many:
        raise ValueError("weights=True accepts only one batch: give one batch, or leave weights=True out")
    cuts, examples = [], []
    with laboratory(getattr(model, "_orig_mod", model), mode):
        for number, one in enumerate(batches):
            problem = Problem(model, loss_fn, one, noise=number if many else None)
            with advised():
                cuts.append(_cut(problem, nodes, weights, memory // len(batches)))
            examples.append(problem.examples)
        with advised():
            return _measured(cuts, np.array(examples, float), of, probes, seed, weights, progress)


def _cut(problem: Problem, nodes: Choice, weights: bool, memory: int) -> CutModel:
    if problem.own_loss:
        raise ValueError(
            "the model computes its own loss, so netvitals cannot tell its output from its loss. Give loss_fn (for "
            "example 'cross_entropy') and a batch with the target"
        )
    if problem.couples_examples:
        raise ValueError(
            "BatchNorm computes its statistics over the batch, so examples are not independent: pass mode='eval'"
        )
    learning = [p for p in problem.model.parameters() if p.requires_grad]
    refuse_noise(problem)
    seen = survey(problem, memory)
    picked, _, skipped = branching(problem, seen) if nodes is None else choose(problem, seen, nodes, "activation")
    cut = CutModel(problem, picked, skipped, weights=weights)
    for p in learning:
        p.requires_grad_(True)  # which the next batch looks at
    refuse_randomness(seen.outputs, cut.before[OUT])
    return cut


class _Norm(NamedTuple):
    value: float
    stderr: float
    sampling: float


class _Tally:
    """Squared norms of the mean over batches, probe by probe, and what each batch adds to them."""

    def __init__(self, weights: np.ndarray, exact: bool) -> None:
        self.weights, self.exact = weights, exact
        self.squares: dict[Any, list[float]] = {}
        self.shares: dict[Any, np.ndarray] = {}

    def add(self, key: Any, vectors: Sequence[Tensor]) -> None:
        """One probe's product, by batch."""
        own = torch.stack([v.double() for v in vectors])
        mean = torch.from_numpy(self.weights / self.weights.sum()).to(own) @ own
        self.squares.setdefault(key, []).append(float(mean.square().sum()))
        self.shares[key] = self.shares.get(key, 0.0) + (own @ mean).cpu().numpy()

    def norm(self, key: Any) -> _Norm:
        squares = np.array(self.squares[key])
        value, stderr = frobenius(squares, self.exact)
        if len(self.weights) < 2 or not value:
            return _Norm(value, stderr, math.nan)
        moved = self.shares[key] / (1 if self.exact else len(squares)) / value
        return _Norm(value, stderr, float(sampling_error(moved, self.weights)))


def _measured(
    cuts: Sequence[CutModel],
    examples: np.ndarray,
    of: str | None,
    probes: int,
    seed: int,
    weights: bool,
    progress: Progress | None,
) -> CurvatureGraph:
    cut = cuts[0]
    w = cut.order[0] if of is None else of
    if w not in cut.order or w in cut.sinks:
        raise ValueError(
            f"there is no node {w!r}; the nodes are {', '.join(n for n in cut.order if n not in cut.sinks)}"
        )
    sizes = [t[0].numel() for t in cut.leaves[w]]
    if any(c.parents != cut.parents or [t[0].numel() for t in c.leaves[w]] != sizes for c in cuts):
        raise ValueError("the batches differ in nodes, connections or sequence length: give batches of one shape")
    exact = sum(sizes) <= probes
    count = sum(sizes) if exact else probes
    ways = [p for s in cut.sinks for p in cut.topology.paths(w, s, MOST_PATHS + 1)]
    if len(ways) > MOST_PATHS:
        cut.skipped[f"paths from {w}"] = f"more than {MOST_PATHS} paths to the output"
        ways = []
    generator = torch.Generator().manual_seed(seed)
    tally, joint = _Tally(examples, exact), _Tally(examples[:1], exact)
    planned = count + (min(probes, sum(p.numel() for p in cut.weights.get(w, []))) if weights else 0)
    for k in range(count):
        parts: dict[Any, list[Tensor]] = {}
        flat = _probe(sizes, k if exact else None, generator)
        for c in cuts:
            z = [f.to(t).reshape(1, *t.shape[1:]).expand_as(t) for f, t in zip(flat, c.leaves[w])]
            run = routed(c, w, z)
            for key, h in run.vectors():
                parts.setdefault(key, []).append(_mean(h))
                if weights and key[0] == "block":
                    joint.add(key, [torch.cat([t.detach().flatten() for t in h])])
            for pair, h in _along(c, ways, z):
                parts.setdefault(pair, []).append(_mean(h))
        for key, vectors in parts.items():
            tally.add(key, vectors)
        if progress is not None:
            progress(k + 1, planned)
    sized = {key: tally.norm(key) for key in tally.squares}
    squares: dict[str, float] = {}
    edges = [key[1:3] for key in sized if key[0] == "edge" and key[3] == "GN"]
    for v, via in edges:
        squares[v] = squares.get(v, 0.0) + sized["edge", v, via, "GN"].value ** 2
    between: dict[str, WeightBlock] = {}
    if weights:
        of_blocks = {v: joint.norm(("block", v, "H"))[:2] for v in cut.order if ("block", v, "H") in sized}
        step = None if progress is None else lambda done: progress(count + done, planned)
        between = between_weights(cut, w, of_blocks, probes, seed, step)
    return CurvatureGraph(
        of=w,
        parents=cut.parents,
        routes=tuple(
            Route(
                v=v,
                via=via,
                gauss_newton=(gn := sized["edge", v, via, "GN"]).value,
                tensor_carried=sized["edge", v, via, "carried"].value,
                tensor_added=sized["edge", v, via, "added"].value,
                stderr=gn.stderr,
                sampling=gn.sampling,
                share=gn.value**2 / squares[v] if squares[v] else math.nan,
            )
            for v, via in edges
        ),
        blocks={
            v: Block(
                total=(whole := sized["block", v, "H"]).value,
                gauss_newton=sized["block", v, "GN"].value,
                tensor=sized["block", v, "T"].value,
                stderr=whole.stderr,
                sampling=whole.sampling,
            )
            for v in cut.order
        },
        paths=tuple(
            sorted(
                (
                    PathPair(
                        from_v=ways[i],
                        from_w=ways[j],
                        resonance=sized["path", i, j].value,
                        stderr=sized["path", i, j].stderr,
                    )
                    for i in range(len(ways))
                    for j in range(len(ways))
                ),
                key=lambda p: -p.resonance,
            )
        ),
        exact=exact,
        probes=count,
        passes=len(cuts) * _gradients(count, len(ways)) + (18 * probes if weights else 0),
        weights=between,
        skipped=cut.skipped,
    )


def _gradients(probes: int, ways: int) -> int:
    """Cost in gradients: a probe goes forward once and back twice, four backward passes, and along pairs of paths."""
    return round(probes * (4 + 2 * ways + ways**2) * 2 / 3) + 4


def _probe(sizes: Sequence[int], basis: int | None, generator: torch.Generator) -> list[Tensor]:
    """A probe in the space of one example: signs, or a vector of the basis."""
    flat = (
        torch.randint(0, 2, (sum(sizes),), generator=generator) * 2.0 - 1.0
        if basis is None
        else torch.eye(sum(sizes))[basis]
    )
    return list(flat.split(list(sizes)))


def _along(cut: CutModel, ways: Sequence[tuple[str, ...]], z: Vector) -> Any:
    """The Gauss–Newton contribution of every pair of paths, times z."""
    for j, way in enumerate(ways):
        tangent = z
        for p, u in pairwise(way):
            tangent = cut.push(u, {p: tangent})[0]
        curved = cut.curved({way[-1]: tangent})
        for i, back in enumerate(ways):
            h = curved[back[-1]]
            for p, u in zip(reversed(back[:-1]), reversed(back[1:])):
                h = cut.carry(u, h)[p]
            yield ("path", i, j), h


def _mean(h: Vector) -> Tensor:
    """The mean block times z: a mean loss has the 1/B in it, so that examples are added up."""
    return torch.cat([t.detach().sum(0).flatten() for t in h])
