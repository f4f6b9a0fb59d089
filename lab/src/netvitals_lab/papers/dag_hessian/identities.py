"""The paper's formulas on random graphs: which hold as printed, which only when corrected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import jacrev

from netvitals.curvature import dag
from netvitals.curvature.dag import bounds
from netvitals.curvature.dag import library as lib
from netvitals.curvature.engine.operator import Operator
from netvitals.curvature.measure import estimators, metrics
from netvitals_lab import Config, Row, Study
from netvitals_lab.papers.dag_hessian._measuring import table

NAME = "dag-hessian-identities"
SMOOTH = (torch.tanh, F.silu, F.gelu, F.softplus)


@dataclass(frozen=True)
class Graphs:
    """How many random graphs of how many nodes."""

    graphs: int = 12
    nodes: int = 6


def trials(p: Graphs) -> list[Config]:
    return [{"nodes": p.nodes, "seed": s} for s in range(p.graphs)]


def cross_entropy(f: Tensor, y: Tensor) -> Tensor:
    return torch.logsumexp(f, 0) - (f * y).sum()


def evaluation(
    seed: int,
    n: int,
    acts: Sequence[Callable[[Tensor], Tensor]],
    *,
    gain: float = 1.0,
    extra: float = 0.4,
    width: int = 3,
) -> dag.DagEvaluation:
    """A random graph of dense nodes with merges of unequal depth, at two random samples."""
    g = torch.Generator().manual_seed(seed)
    nodes, params = [], {}
    for i in range(n):
        name = "out" if i == n - 1 else f"v{i}"
        parents = ["x"] if i == 0 else [f"v{i - 1}"]
        parents += [f"v{j}" for j in range(i - 1) if float(torch.rand(1, generator=g)) < extra]
        act = None if name == "out" else acts[int(torch.randint(0, len(acts), (1,), generator=g))]
        nodes.append(lib.dense(name, parents, width, act))
        params[name] = gain * lib.dense_parameters(width, 4 if i == 0 else width * len(parents), 100 * seed + i)
    x = torch.randn(2, 4, generator=g, dtype=torch.float64)
    y = torch.softmax(torch.randn(2, width, generator=g, dtype=torch.float64), 1)
    return dag.DagEvaluation(dag.Graph(nodes, cross_entropy, params), x, y)


def trial(config: Config) -> list[Row]:
    seed, n = config["seed"], config["nodes"]
    e = evaluation(seed, n, SMOOTH)
    exact = dag.assembled(dag.blocks(e, method="autograd"))
    whole = dag.assembled(dag.blocks(e))
    gn = dag.assembled(dag.blocks(e), "GN")
    off = lambda a, b: float((a - b).norm() / b.norm())
    row: Row = {
        f"{m}_error": off(dag.assembled(dag.blocks(e, method=m)), exact)
        for m in ("closed", "onesided", "paper", "paper_eq2")
    }
    row |= {"gn_lowest": float(torch.linalg.eigvalsh(gn)[0] / gn.norm()), "h_lowest": metrics.escape_vector(whole)[0]}
    row |= _parameters(e) | _products(e, whole) | _inequalities(e, seed, n) | _piecewise(seed, n) | _probes(seed)
    return [row]


def _parameters(e: dag.DagEvaluation) -> Row:
    found, index = dag.parameter_hessian(e)
    keys = list(index)
    sizes = [s.stop - s.start for s in index.values()]

    def loss(flat: Tensor) -> Tensor:
        graph = dag.Graph(e.graph.nodes, e.graph.loss, dict(zip(keys, flat.split(sizes))))
        return dag.DagEvaluation(graph, e.inputs, e.y).loss.mean()

    exact = jacrev(jacrev(loss))(torch.cat([e.graph.parameters[k] for k in keys]))
    printed = torch.zeros_like(exact)
    top = e.graph.topology
    for v in keys:
        for w in keys:
            b = dag.parameter_block(e, v, w)
            # Algorithm 2: mixed terms only where a child of w is a parent of v (or the reverse), and D_w restored
            left = b.mixed_left if set(top.parents[v]) & set(top.children[w]) else 0 * b.mixed_left
            right = b.mixed_right if set(top.parents[w]) & set(top.children[v]) else 0 * b.mixed_right
            printed[index[v], index[w]] = b.ggn + b.tensor_through + b.pure + left + right
    return {
        "parameter_error": float((found - exact).norm() / exact.norm()),
        "parameter_printed_error": float((printed - exact).norm() / exact.norm()),
    }


def _products(e: dag.DagEvaluation, whole: Tensor) -> Row:
    names = e.graph.topology.order
    z = {v: torch.ones(e.size(v), dtype=torch.float64) for v in names}
    got = dag.product(e, injections=z)
    want = whole @ torch.ones(len(whole), dtype=torch.float64)
    error = float((torch.cat([got.nodes[v] for v in names]) - want).norm() / want.norm())
    # Def. 20 as printed multiplies blocks by tangents that have already been propagated
    moved: dict[str, Tensor] = {}
    for v in names:
        moved[v] = z[v] + sum(
            (e.edge(v, p).mean(0) @ moved[p] for p in e.graph.topology.parents[v]), torch.zeros_like(z[v])
        )
    printed = whole @ torch.cat([moved[v] for v in names])
    return {"product_error": error, "product_printed_error": float((printed - want).norm() / want.norm())}


def _inequalities(e: dag.DagEvaluation, seed: int, n: int) -> Row:
    names = e.graph.topology.order
    pairs = [(v, w) for v in names for w in names]
    line = evaluation(seed, n, (torch.tanh,), extra=0.0)
    along = line.graph.topology.order
    small = evaluation(seed, n, (F.relu,), gain=0.15)
    kept = bounds.contraction_of(small) < 1

    def contracting(strong: bool) -> bool | None:
        return all(bounds.corollary_26(small, v, w, strong=strong).holds for v, w in pairs) if kept else None

    g = torch.Generator().manual_seed(seed)
    branches = [torch.randn(5, 5, generator=g, dtype=torch.float64) for _ in range(3)]
    branches = [0.25 * b / torch.linalg.matrix_norm(b, 2) for b in branches]
    curved = torch.diag(torch.rand(5, generator=g, dtype=torch.float64))
    skips = lambda **o: bounds.theorem_34(branches, curved, 0.5, 2, skips=True, **o)
    first = bounds.theorem_33(e, names[0], names[0], "printed")
    return {
        "theorem_25": all(
            bounds.theorem_25(line, along[i], along[j]).holds for i in range(n - 1) for j in range(i, n - 1)
        ),
        "corollary_26": contracting(False),
        "corollary_26_strong": contracting(True),
        "corollary_17": all(bounds.corollary_17(e, v, w).holds for v, w in pairs),
        "corollary_67": all(bounds.corollary_67(e, v, w).holds for v, w in pairs[:6]),
        "theorem_33": bounds.theorem_33(e, names[0], names[0]).lhs,
        "theorem_33_printed": first.lhs,
        "theorem_34_printed": skips(form="printed").slack,
        "theorem_34": skips().holds,
        "theorem_34_lower": skips(side="lower").holds,
    }


def _piecewise(seed: int, n: int) -> Row:
    relu = evaluation(seed, n, (F.relu,))
    whole, _ = dag.parameter_hessian(relu)
    keys = list(relu.graph.parameters)
    diagonal = max(float(dag.parameter_block(relu, v, v).residual.norm()) for v in keys)
    off = max(float(dag.parameter_block(relu, v, w).residual.norm()) for v in keys for w in keys if v != w)
    return {
        "relu_tensor": float(dag.assembled(dag.blocks(relu), "T").abs().max()),
        "relu_diagonal_residual": diagonal,
        "relu_off_residual": off,
        "relu_negative_mass": metrics.negative_mass(whole),
        "rescaling_relu": _rescaled(F.relu, seed),
        "rescaling_tanh": _rescaled(torch.tanh, seed),
    }


def _rescaled(f: Callable[[Tensor], Tensor], seed: int) -> float:
    """Change of C(v, w) when v's weights grow threefold and w's shrink to match."""
    e = evaluation(seed, 3, (f,), extra=0.0)
    grown = dict(e.graph.parameters)
    grown["v0"], w = 3 * grown["v0"], grown["v1"]
    grown["v1"] = torch.cat([w[:9] / 3, w[9:]])
    after = dag.DagEvaluation(dag.Graph(e.graph.nodes, cross_entropy, grown), e.inputs, e.y)

    def coupling(at: dag.DagEvaluation) -> float:
        r = lambda *pair: float(dag.block(at, *pair).H.norm())
        return r("v0", "v1") / (r("v0", "v0") * r("v1", "v1")) ** 0.5

    before = coupling(e)
    return abs(coupling(after) / before - 1) if before > 1e-12 else 0.0


def _probes(seed: int) -> Row:
    """Relative spread of ‖Hz‖² by rank, and how often independent series put C above 1 when it is 1."""
    g = torch.Generator().manual_seed(seed)
    q = torch.linalg.qr(torch.randn(32, 32, generator=g, dtype=torch.float64))[0]
    spread = {}
    for rank in (1, 4, 16):
        h = q[:, :rank] @ q[:, :rank].mT
        samples = estimators.frobenius(_operator(h), 400, seed=seed).draws
        spread[rank] = float(samples.std() / samples.mean())
    h = q[:, :2] @ q[:, :2].mT
    op = _operator(h)
    above = [
        estimators.coupling(op, op, op, m, shared=False, seed=1000 * seed + 10 * i).value > 1
        for i in range(20)
        for m in (5, 400)
    ]
    return {
        "spread_1": spread[1],
        "spread_16": spread[16],
        "above_5": sum(above[0::2]) / 20,
        "above_400": sum(above[1::2]) / 20,
    }


def _operator(h: Tensor) -> Operator:
    return Operator((len(h), len(h)), h.dtype, lambda z: z @ h, lambda z: z @ h)


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    keys = ("closed_error", "onesided_error", "paper_error", "parameter_error", "parameter_printed_error")
    return {k: max(table(rows, ("nodes",), k).values()) for k in keys}


STUDIES = (
    Study(
        name=NAME,
        paper="dag-hessian",
        title="Which of the printed formulas hold on arbitrary graphs?",
        scales={"smoke": Graphs(3, 5), "small": Graphs(), "paper": Graphs(25, 8)},
        trials=trials,
        settled="identities hold to rounding on every random graph or on none",
        trial=trial,
        summary=summary,
    ),
)


# ---------------------------------------------------------------------------------------------------- verdicts
