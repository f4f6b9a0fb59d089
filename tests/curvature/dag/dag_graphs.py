"""Random graphs with values in them, for the tests of the analytic engine."""

import torch
import torch.nn.functional as F

from netvitals.curvature import dag
from netvitals.curvature.dag import library as lib

ACTS = [torch.tanh, F.silu, F.gelu, F.relu, F.softplus, torch.sigmoid]


def cross_entropy(f, y):
    return torch.logsumexp(f, 0) - (f * y).sum()


def random_graph(seed, n, extra=0.4, width=3):
    """A random DAG of dense nodes, element products, sums and norms; every node reaches the output."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda k: int(torch.randint(0, k, (1,), generator=g))
    nodes, params, used = [], {}, set()
    for i in range(n):
        name = f"n{i}" if i < n - 1 else "out"
        before = [f"n{j}" for j in range(i)]
        parents = [before[-1]] if before else ["x"]
        parents += [p for p in before[:-1] if torch.rand(1, generator=g).item() < extra]
        if i == n - 1:
            parents += [p for p in before if p not in used and p not in parents]
        kind = draw(4) if i < n - 1 else 0
        if kind == 1 and len(parents) == 2:
            nodes.append(lib.hadamard(name, *parents))
        elif kind == 2 and before:
            nodes.append(lib.add(name, parents))
        elif kind == 3 and before and len(parents) == 1:
            nodes.append(lib.norm(name, parents[0], "layer" if draw(2) else "rms"))
        else:
            fan = sum(4 if p == "x" else width for p in parents)
            nodes.append(lib.dense(name, parents, width, None if name == "out" else ACTS[draw(len(ACTS))]))
            params[name] = lib.dense_parameters(width, fan, seed * 100 + i)
        used.update(parents)
    return dag.Graph(nodes, cross_entropy, params)


def evaluation(graph, samples=2, seed=0, width=3):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 4, generator=g, dtype=torch.float64)
    y = torch.softmax(torch.randn(samples, width, generator=g, dtype=torch.float64), 1)
    return dag.DagEvaluation(graph, x, y)


def relative(a, b):
    return float((a - b).norm() / b.norm().clamp_min(1e-300))


def named(*nodes, loss=cross_entropy, seed=0, width=3, inputs=4, **more):
    params = {}
    sizes = {"x": inputs, "noise": width}
    for n in nodes:
        if n.theta and n.theta not in params:
            fan = sum(sizes.get(p, width) for p in n.parents)
            params[n.theta] = lib.dense_parameters(width, fan, seed + len(params))
    return dag.Graph(nodes, loss, params, **more)


def error_of(e, method):
    return relative(dag.assembled(dag.blocks(e, method=method)), dag.assembled(dag.blocks(e, method="autograd")))
