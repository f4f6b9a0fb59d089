"""The graph of a module: edges, blocks and paths against dense derivatives and against the theory's own graph."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reader_models
from netvitals import curvature
from netvitals.curvature import dag
from netvitals.curvature.dag import DagEvaluation, Graph, GraphNode, path_terms, routing


class Residual(nn.Module):
    """x → a → tanh → (+ skip) → gelu → head, with every node a module."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.head = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.first, self.second, self.join = nn.Tanh(), nn.Tanh(), nn.GELU()

    def forward(self, x):
        h = self.first(self.a(x))
        return self.head(self.join(h * self.second(self.b(h)) + self.c(h)))


def loss_fn(out, y):
    return (out - y).square().sum(1).mean() + 0.1 * out.pow(4).sum(1).mean()


@pytest.fixture
def task():
    torch.manual_seed(0)
    return Residual().double(), (torch.randn(5, 3).double(), torch.randn(5, 2).double())


NODES = ["first", "second", "join"]


def theory(net, batch):
    """The same network as the paper's graph of functions."""
    net = copy.deepcopy(net).requires_grad_(False)
    h = lambda x, t: net.first(net.a(x))
    nodes = [
        GraphNode("first", ("x",), h),
        GraphNode("second", ("first",), lambda f, t: net.second(net.b(f))),
        GraphNode("join", ("first", "second"), lambda f, s, t: net.join(f * s + net.c(f))),
        GraphNode("out", ("join",), lambda f, t: net.head(f)),
    ]
    loss = lambda out, y: (out - y).square().sum() + 0.1 * out.pow(4).sum()
    with torch.no_grad():
        return DagEvaluation(Graph(nodes, loss=loss), *batch)


@pytest.mark.parametrize("w", ["first", "second", "join"])
def test_every_edge_is_that_of_the_papers_graph(task, w):
    net, batch = task
    found = curvature.graph(net, loss_fn, batch, nodes=NODES, of=w)
    assert found.exact and found.parents == {
        "first": (), "second": ("first",), "join": ("first", "second"), "out": ("join",)
    }  # fmt: skip
    e = theory(net, batch)
    by = {(r.v, r.via): r for r in found.routes}
    wanted = routing(e, w)
    assert len(wanted) == len(by)
    for r in wanted:
        mine = by[r.v, r.via]
        for key in ("gauss_newton", "tensor_carried", "tensor_added"):
            assert getattr(mine, key) == pytest.approx(getattr(r, key), rel=1e-9, abs=1e-12), (r.v, r.via, key)
    for v, b in found.blocks.items():
        exact = dag.block(e, v, w)
        assert b.total == pytest.approx(float(exact.H.norm()), rel=1e-9)
        assert (b.gauss_newton, b.tensor) == pytest.approx((float(exact.GN.norm()), float(exact.T.norm())), rel=1e-9)


def test_the_blocks_are_those_of_the_dense_hessian(task):
    net, batch = task
    found = curvature.graph(net, loss_fn, batch, nodes=NODES)
    dense = curvature.between_layers(net, loss_fn, batch, nodes=NODES, method="exact")
    for v in NODES:
        at = dense.at(v, "first")
        assert found.blocks[v].total == pytest.approx(at["resonance"], rel=1e-9), v
        assert found.blocks[v].tensor / found.blocks[v].gauss_newton == pytest.approx(at["gn_gap"], rel=1e-9), v


def test_pairs_of_paths_are_those_of_the_papers_graph(task):
    net, batch = task
    found = curvature.graph(net, loss_fn, batch, nodes=NODES)
    terms, _ = path_terms(theory(net, batch), "first", "first")
    wanted = {(t.from_v, t.from_w): t.resonance for t in terms if t.kind == "GN"}
    assert len(found.paths) == len(wanted) == 4
    for p in found.paths:
        assert p.resonance == pytest.approx(wanted[p.from_v, p.from_w], rel=1e-9)
    assert found.blocks["first"].gauss_newton <= sum(p.resonance for p in found.paths)


def test_probes_agree_with_the_exact_norms_within_their_errors(task):
    net, batch = task
    exact = {(r.v, r.via): r.gauss_newton for r in curvature.graph(net, loss_fn, batch, nodes=NODES).routes}
    z = []
    for seed in range(12):
        found = curvature.graph(net, loss_fn, batch, nodes=NODES, probes=3, seed=seed)
        assert not found.exact and found.probes == 3
        z += [(r.gauss_newton - exact[r.v, r.via]) / r.stderr for r in found.routes if r.stderr > 0]
    assert abs(np.mean(np.clip(z, -6, 6))) < 1.5
    many = curvature.graph(net, loss_fn, batch, nodes=["head", "join"], of="join", probes=3, seed=1)
    assert many.blocks["join"].total > 0


GIVEN = {
    "mlp": ["1", "3"],
    "cnn": ["act1", "bn2", "act2"],
    "gpt": ["transformer.h.0", "transformer.h.0.mlp", "transformer.h.1"],
    "llama": ["model.layers.0", "model.layers.1"],
    "vit": ["*.layers.0", "*.layers.1"],
    "tied": ["act", "act#2", "act#3"],
}


@pytest.mark.parametrize("name", reader_models.NAMES)
def test_six_architectures(name):
    model, loss, batch = reader_models.make(name)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    found = curvature.graph(model, loss or "cross_entropy", batch, mode="eval", nodes=GIVEN[name], probes=4)
    assert found.blocks and all(b.total > 0 for b in found.blocks.values()) and found.passes > 0
    if name == "cnn":
        assert found.splits == ("act1",) and {r.via for r in found.into("act1")} == {"bn2", "act2"}
    assert len(str(found).splitlines()) <= 45 and found.plot().svg() and len(found.to_frame()) == len(found.routes)
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


def test_what_cannot_be_measured_is_refused():
    model, loss, batch = reader_models.make("cnn")
    with pytest.raises(ValueError, match="pass mode='eval'"):
        curvature.graph(model, loss, batch)
    own, _, given = reader_models.make("vit")
    with pytest.raises(ValueError, match="give loss_fn"):
        curvature.graph(own, None, given)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    batch = torch.randn(5, 3), torch.randn(5, 2)
    with pytest.raises(ValueError, match="there is no node '7'"):
        curvature.graph(net, "mse", batch, nodes=["0", "1"], of="7")
    with pytest.raises(ValueError, match="at least 2"):
        curvature.graph(net, "mse", batch, probes=1)
    with pytest.raises(ValueError, match="no node 'x' before the loss"):
        curvature.graph(net, F.mse_loss, batch, nodes=["0"]).into("x")
