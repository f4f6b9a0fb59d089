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
from netvitals.curvature.dag.parameters import parameter_block


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


class Wide(nn.Module):
    """Nodes wider than the probes."""

    def __init__(self):
        super().__init__()
        self.stem, self.inner, self.head = nn.Linear(5, 20), nn.Linear(20, 20), nn.Linear(20, 3)
        self.first, self.second, self.join = nn.Tanh(), nn.Tanh(), nn.GELU()

    def forward(self, x):
        h = self.first(self.stem(x))
        return self.head(self.join(h + self.second(self.inner(h))))


def test_errors_of_edges_are_right_by_their_z_scores_over_seeds():
    torch.manual_seed(0)
    net, batch = Wide().double(), (torch.randn(6, 5).double(), torch.arange(6) % 3)
    exact = curvature.graph(net, "cross_entropy", batch, nodes=NODES, probes=20)
    assert exact.exact and all(r.stderr == 0 for r in exact.routes)
    z = []
    for seed in range(40):
        found = curvature.graph(net, "cross_entropy", batch, nodes=NODES, probes=12, seed=seed)
        assert not found.exact and found.probes == 12
        z.append(
            [(a.gauss_newton - b.gauss_newton) / a.stderr for a, b in zip(found.routes, exact.routes)]
            + [(found.blocks[v].total - exact.blocks[v].total) / found.blocks[v].stderr for v in NODES]
        )
    z = np.array(z)
    assert abs(z.mean()) < 0.5 and 0.7 < z.std() < 1.5, (z.mean(), z.std())


def test_a_skip_connection_is_named_with_its_share(task):
    net, batch = task
    found = curvature.graph(net, loss_fn, batch, nodes=NODES)
    (skip,) = found.skips
    assert (skip.v, skip.via) == ("first", "join") and found.splits == ("first",)
    assert skip.share == pytest.approx(skip.gauss_newton**2 / sum(r.gauss_newton**2 for r in found.into("first")))
    assert f"skip first → join: {skip.share:.0%} of what leaves first" in str(found)
    assert found.plot().series[0].y == [100 * skip.share]


def test_a_loss_that_reads_activations_has_an_edge_of_its_own(task):
    net, batch = task
    kept = copy.deepcopy(net)

    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = kept

        def forward(self, x):
            self.h = self.net.first(self.net.a(x))
            n = self.net
            return n.head(n.join(self.h * n.second(n.b(self.h)) + n.c(self.h)))

    model = Keeps()
    penalised = lambda out, y: loss_fn(out, y) + 0.3 * (model.h.pow(4).sum(1) * out.square().sum(1)).mean()
    names = [f"net.{n}" for n in NODES]
    found = curvature.graph(model, penalised, batch, nodes=names)
    dense = curvature.between_layers(model, penalised, batch, nodes=names, method="exact")
    assert found.parents["loss term"] == ("net.first",)
    for v in names:
        at = dense.at(v, "net.first")
        assert found.blocks[v].total == pytest.approx(at["resonance"], rel=1e-9)
        assert found.blocks[v].gauss_newton == pytest.approx(at["gauss_newton"], rel=1e-9)
        assert found.blocks[v].tensor == pytest.approx(at["tensor"], rel=1e-9)
    assert ("net.first", "loss term") in {(r.v, r.via) for r in found.routes}
    assert {p.from_v[-1] for p in found.paths} == {"out", "loss term"}


def test_a_list_of_batches_is_their_union(task):
    net, (x, y) = task
    whole = curvature.graph(net, loss_fn, (x, y), nodes=NODES)
    parts = curvature.graph(net, loss_fn, [(x[:2], y[:2]), (x[2:], y[2:])], nodes=NODES)
    for a, b in zip(parts.routes, whole.routes):
        assert (a.v, a.via) == (b.v, b.via)
        assert a.gauss_newton == pytest.approx(b.gauss_newton, rel=1e-9)
        assert a.tensor_added == pytest.approx(b.tensor_added, rel=1e-9, abs=1e-12)
    assert all(r.sampling > 0 for r in parts.routes) and np.isnan(whole.routes[0].sampling)
    dense = curvature.between_layers(net, loss_fn, [(x[:2], y[:2]), (x[2:], y[2:])], nodes=NODES, method="exact")
    for v in NODES:
        assert parts.blocks[v].sampling == pytest.approx(dense.sampling["resonance"][dense.position(v), 0], rel=1e-9)


def test_blocks_of_weights_have_five_terms_and_the_bound_of_corollary_17():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2)).double()
    x, y = torch.randn(5, 3).double(), torch.randn(5, 2).double()
    flat = lambda m: torch.cat([p.detach().flatten() for p in m.parameters()])
    used = lambda m, t: (t[: m.weight.numel()].view_as(m.weight), t[m.weight.numel() :])
    e = DagEvaluation(
        Graph(
            [
                GraphNode("1", ("x",), lambda f, t: torch.tanh(F.linear(f, *used(net[0], t))), theta="0"),
                GraphNode("3", ("1",), lambda f, t: F.gelu(F.linear(f, *used(net[2], t))), theta="2"),
                GraphNode("out", ("3",), lambda f, t: F.linear(f, *used(net[4], t)), theta="4"),
            ],
            loss=lambda out, t: (out - t).square().sum() / 2,
            parameters={k: flat(net[int(k)]) for k in ("0", "2", "4")},
        ),
        x,
        y,
    )
    loss = lambda out, t: (out - t).square().sum(1).mean() / 2
    whole = curvature.between_layers(net, loss, (x, y), nodes=["0", "2", "4"], space="parameter", method="exact")
    for w, layer in (("1", "0"), ("3", "2")):
        found = curvature.graph(net, loss, (x, y), nodes=["1", "3"], of=w, weights=True)
        assert list(found.weights) == ["1", "3", "out"]
        for (v, b), other in zip(found.weights.items(), ("0", "2", "4")):
            assert b.total == pytest.approx(whole.at(other, layer)["resonance"], rel=1e-9)
            exact = parameter_block(e, v, w).norms()
            names = {"gauss_newton": "ggn", "through": "tensor_through"} | {
                k: k for k in ("pure", "mixed_left", "mixed_right")
            }
            for mine, theirs in names.items():
                assert getattr(b, mine) == pytest.approx(exact[theirs], rel=1e-9, abs=1e-12), (v, w, mine)
            assert b.total <= b.bound and b.stderr == b.bound_stderr == 0
            d = [torch.linalg.matrix_norm(e.parameter_edge(n).flatten(0, 1), 2) for n in (v, w)]
            assert b.jacobians == pytest.approx([float(s) for s in d], rel=1e-3)
            joint = dag.block(e, v, w, reduction="per_sample").H.norm() / 5
            rest = exact["pure"] + exact["mixed_left"] + exact["mixed_right"]
            assert b.bound == pytest.approx(float(d[0] * d[1] * joint) + rest, rel=1e-3)
    assert "at most" in str(found)
    told = []
    curvature.graph(
        net, loss, (x, y), nodes=["1", "3"], weights=True, progress=lambda done, all: told.append((done, all))
    )
    assert told == [(k + 1, 4 + 16) for k in range(20)]
    few = [curvature.graph(net, loss, (x, y), nodes=["1", "3"], weights=True, probes=6, seed=s) for s in range(20)]
    z = [(f.weights["3"].total - whole.at("2", "0")["resonance"]) / f.weights["3"].stderr for f in few]
    assert abs(np.mean(z)) < 1 and np.std(z) < 2


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
    by_default = curvature.graph(model, loss or "cross_entropy", batch, mode="eval", probes=2)
    assert bool(by_default.skips) == (name in ("cnn", "gpt", "llama", "vit"))
    if name == "cnn":
        assert found.splits == ("act1",) and {r.via for r in found.into("act1")} == {"bn2", "act2"}
    assert len(str(found).splitlines()) <= 45 and found.plot().svg() and len(found.to_frame()) == len(found.routes)
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


def test_what_cannot_be_measured_is_refused():
    model, loss, batch = reader_models.make("cnn")
    with pytest.raises(ValueError, match="pass mode='eval'"):
        curvature.graph(model, loss, batch)
    own, _, given = reader_models.make("vit")
    with pytest.raises(ValueError, match="Give loss_fn"):
        curvature.graph(own, None, given)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    batch = torch.randn(5, 3), torch.randn(5, 2)
    with pytest.raises(ValueError, match="there is no node '7'"):
        curvature.graph(net, "mse", batch, nodes=["0", "1"], of="7")
    with pytest.raises(ValueError, match="at least 2"):
        curvature.graph(net, "mse", batch, probes=1)

    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            z = torch.tanh(self.a(x))
            return self.b(z - z.mean(0))

    with pytest.raises(ValueError, match="at out examples influence each other"):
        curvature.graph(Centred(), "mse", batch, nodes=["a"], weights=True)
    assert curvature.graph(Centred(), "mse", batch, nodes=["a"]).blocks["a"].total > 0
    with pytest.raises(ValueError, match="one batch: give one"):
        curvature.graph(net, "mse", [batch, batch], weights=True)
    with pytest.raises(ValueError, match="the data holds no batch"):
        curvature.graph(net, "mse", [])
    with pytest.raises(ValueError, match="no trainable parameter between 1"):
        curvature.graph(net, "mse", batch, nodes=["0", "1"], of="1", weights=True)
    with pytest.raises(ValueError, match="no node 'x' before the loss"):
        curvature.graph(net, F.mse_loss, batch, nodes=["0"]).into("x")
