"""Decay, bands, bottlenecks, low rank, steps, words, plans and the monitor."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals import curvature
from netvitals.curvature import between_layers, operators
from netvitals.curvature.advice import design, distance, lowrank, steps
from netvitals.curvature.engine.operator import Operator
from netvitals.curvature.measure import metrics
from netvitals.curvature.measure.jacobians import lyapunov


def mlp(widths, act=nn.Tanh, out=3, norm=False):
    layers = []
    for a, b in zip([widths[0], *widths], widths):
        layers += [nn.Linear(a, b), *([nn.LayerNorm(b)] if norm else []), act()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], out))


def batch(d, k=3, n=8, dtype=torch.float32):
    return torch.randn(n, d, dtype=dtype), torch.randint(0, k, (n,))


@pytest.fixture(scope="module")
def deep():
    torch.manual_seed(0)
    net = mlp([16] * 6).double()
    data = batch(16, dtype=torch.float64)
    return net, data, between_layers(net, F.cross_entropy, data, method="exact")


def test_decay_of_a_contracting_net(deep):
    found = deep[2]
    d = curvature.decay(found)
    assert d.distance.tolist() == [0, 1, 2, 3, 4, 5]
    assert d.coupling[0] == 1 and d.resonance[0] == pytest.approx(np.diag(found.resonance).mean())
    pairs = np.triu_indices(6)
    assert found.global_gap == pytest.approx(found.tensor[pairs].sum() / found.gauss_newton[pairs].sum())
    assert found.mean_gap == pytest.approx(found.gn_gap[pairs].mean())
    assert d.tensor[-1] < 1e-12  # the head is linear
    assert d.gap[1] == pytest.approx(d.tensor[1] / d.gauss_newton[1])
    slope = np.polyfit(d.distance, np.log(d.resonance), 1)[0]
    assert d.rate == pytest.approx(-slope)
    assert distance.fixed_end(found, found.nodes[-1]).shape == (6,)
    assert distance.averages(found, [("1", "3")])["resonance"] == pytest.approx(found.at("1", "3")["resonance"])
    assert "decay rate" in str(d)
    with pytest.raises(ValueError, match="at least one pair"):
        distance.averages(found, [])


def test_bands(deep):
    _, _, found = deep
    masses = [distance.mass_outside(found, k) for k in range(6)]
    assert masses == sorted(masses, reverse=True) and masses[-1] == 0
    k = curvature.bandwidth(found, 0.3)
    assert distance.mass_outside(found, k) ** 0.5 <= 0.3
    assert distance.band_threshold(0.5, 1e-3) == 10 and distance.band_threshold(1.2, 1e-3) is None
    r = distance.interaction_radius(found, 0.5, 1.0, 1e-2)
    goal = 1e-2 * np.diag(found.resonance).min()
    assert 0.5**r < goal <= 0.5 ** (r - 1)
    assert distance.interaction_radius(found, 1.5, 1.0, 1e-2) is None


class Branches(nn.Module):
    """A long branch and a short one beside it: neighbours in the list are not neighbours in the graph."""

    def __init__(self):
        super().__init__()
        self.stem, self.short = nn.Linear(3, 4), nn.Linear(4, 4)
        self.long = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = torch.tanh(self.stem(x))
        y = x
        for layer in self.long:
            y = torch.tanh(layer(y))
        return self.head(torch.tanh(y + self.short(x)))


def test_bands_follow_the_graph_and_not_the_list():
    torch.manual_seed(0)
    net, batch = Branches().double(), (torch.randn(8, 3, dtype=torch.float64), torch.zeros(8, dtype=torch.long))
    nodes = ["stem", "long.0", "long.1", "long.2", "short", "head"]
    found = between_layers(net, F.cross_entropy, batch, nodes=nodes, method="exact")
    apart = distance.distances(found)
    at = {(v, w): apart[found.position(v), found.position(w)] for v in nodes for w in nodes}
    assert (
        at["stem", "short"] == 1
        and at["long.2", "short"] == 2
        and at["stem", "head"] == 2
        and at["stem", "long.2"] == 3
    )
    squares = found.resonance**2
    outside = sum(squares[found.position(v), found.position(w)] for v in nodes for w in nodes if at[v, w] > 1)
    assert distance.mass_outside(found, 1) == pytest.approx(outside / squares.sum())
    kept = lowrank.banded(found, 1, 1e-12)
    assert ("stem", "short") in kept.off and ("long.2", "short") not in kept.off  # a list would have it the other way
    assert kept.dropped_by_band**2 == pytest.approx(distance.mass_outside(found, 1), rel=1e-6)
    assert distance.mass_outside(found, 3) == 0 and curvature.bandwidth(found, 0.0) == 3
    with pytest.raises(ValueError, match="the norms of the Hessian blocks, but not the blocks"):
        lowrank.banded(between_layers(net, F.cross_entropy, batch, nodes=nodes), 1, 1e-3)


def test_banded_low_rank_storage(deep):
    _, _, found = deep
    h = found.blocks.hessian
    z = torch.randn(len(h), dtype=torch.float64)
    exact = lowrank.banded(found.blocks, 5, 1e-12)
    torch.testing.assert_close(exact @ z, h @ z)
    cut = lowrank.banded(found.blocks, 2, 1e-2)
    dense = torch.stack([cut @ e for e in torch.eye(len(h), dtype=torch.float64)], 1)
    assert cut.error == pytest.approx(float((dense - h).norm() / h.norm()), rel=1e-6)
    assert cut.dropped_by_band == pytest.approx(distance.mass_outside(found, 2) ** 0.5)
    assert cut.stored < cut.full


def test_low_rank_blocks(deep):
    net, data, found = deep
    v, w = found.nodes[0], found.nodes[3]
    h = found.block(v, w).H
    s = torch.linalg.svdvals(h)
    with operators(net, F.cross_entropy, data, nodes=list(found.nodes), space="activation") as of:
        low = lowrank.randomised_svd(of.block(v, w), 4)
    torch.testing.assert_close(low.s, s[:4], rtol=1e-3, atol=0)
    best = lowrank.truncated(h, 4)
    error, bound = lowrank.truncation_error(s, 4)
    assert float((h - best.dense()).norm()) == pytest.approx(error) and error <= bound
    z = torch.randn(16, 2, dtype=torch.float64)
    torch.testing.assert_close(best @ z, best.dense() @ z)
    rank, relative = lowrank.needed_rank(s, 0.05)
    assert lowrank.truncation_error(s, rank)[0] <= relative * float(s[0]) + 1e-15
    with pytest.raises(ValueError, match="positive relative error"):
        lowrank.needed_rank(s, 0.0)


def test_root_factors_survive_re_truncation():
    torch.manual_seed(0)
    children = {u: torch.randn(6, 3, dtype=torch.float64) for u in "ab"}
    edges = {u: torch.randn(6, 5, dtype=torch.float64) for u in "ab"}
    exact = sum(edges[u].mT @ children[u] for u in "ab")
    kept = lowrank.propagated_root(children, edges, 3)
    torch.testing.assert_close(kept @ kept.mT, exact @ exact.mT)
    one = lowrank.propagated_root(children, edges, 1)
    assert one.shape == (5, 1)


def test_bottleneck_report_and_far_pairs():
    torch.manual_seed(0)
    net = mlp([24, 24, 24, 4, 24, 24, 24]).double()
    found = between_layers(net, F.cross_entropy, batch(24, dtype=torch.float64), method="exact", reduction="per_sample")
    report = curvature.bottlenecks(found)
    assert report[0].node == "7" and report[0].width == 4 and report[0].before == ("1", "3", "5")
    far = distance.far_pairs(found.nodes, 3)
    assert ("1", "9") in far and len(far) == 9
    assert report[0].stable_rank == pytest.approx(distance.averages(found, far)["stable_rank"])
    assert (found.per_sample["stable_rank"][:, 0, 6] <= 4 + 1e-9).all()
    assert "carries everything" in str(report[0])
    narrowing = between_layers(mlp([24, 12, 6]), F.cross_entropy, batch(24), probes=6)
    assert curvature.bottlenecks(narrowing) == []


def test_what_a_block_diagonal_method_drops():
    net = mlp([6, 6, 6]).double()
    found = between_layers(net, F.cross_entropy, batch(6, dtype=torch.float64), method="exact", space="parameter")
    dropped = curvature.dropped_blocks(found)
    assert sum(d.share for d in dropped) == pytest.approx(found.off_diagonal_mass)
    assert dropped[0].share == max(d.share for d in dropped)
    h = found.blocks.hessian
    diagonal = sum(float(found.block(v, v).H.square().sum()) for v in found.nodes)
    assert found.off_diagonal_mass == pytest.approx(1 - diagonal / float(h.square().sum()))


@pytest.mark.parametrize("act", [nn.ReLU, nn.GELU])
def test_recommendations_follow_what_gauss_newton_misses_of_the_parameters(act):
    net, data = mlp([8, 8, 8], act).double(), batch(8, dtype=torch.float64)
    found = between_layers(net, F.cross_entropy, data, method="exact", space="parameter")
    h, gn = found.blocks.hessian, found.blocks.gauss_newton
    advice = curvature.recommend(found)
    assert advice.missed == pytest.approx(float((h - gn).norm() / h.norm()))
    assert advice.choice == ("gauss-newton" if advice.missed < 0.1 else "full" if advice.missed > 0.7 else "mixed")
    assert curvature.recommend(found, small=-1.0, large=-0.5).choice == "full"
    with pytest.raises(ValueError, match="space='parameter'"):  # a ReLU net has no gap there, and one here
        curvature.recommend(between_layers(net, F.cross_entropy, data, probes=8))


def test_layers_that_gauss_newton_misses_are_not_hidden_by_one_that_holds_the_curvature():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    data = torch.randn(8, 3, dtype=torch.float64), torch.randint(0, 2, (8,))
    found = between_layers(net, F.cross_entropy, data, space="parameter", probes=4)
    size, missed = np.diag([100.0, 1.0]), np.diag([0.5, 0.99])
    advice = curvature.recommend(replace(found, resonance=size, tensor=missed))
    assert advice.missed < 0.02 and advice.choice == "mixed", advice
    assert found.nodes[1] in advice.why and found.nodes[0] not in advice.why
    fair = curvature.recommend(replace(found, resonance=size, tensor=np.diag([0.5, 0.5])))
    assert fair.choice == "gauss-newton", fair


def test_jacobians_and_three_growth_rates(deep):
    net, data, _ = deep
    with curvature.node_jacobians(net, F.cross_entropy, data) as of:
        direct = of.jacobian("3", "1")
        w = net[2].weight
        a = net[1](net[0](data[0]))
        slope = 1 - torch.tanh(net[2](a)) ** 2
        torch.testing.assert_close(direct, (slope[:, :, None] * w).detach())
        torch.testing.assert_close(of.jacobian("5", "1"), of.jacobian("5", "3") @ direct)
        assert of.jacobian("1", "5").abs().max() == 0
        chain = [of.jacobian(b, a) for a, b in zip(of.names, of.names[1:])]
        edges = of.edges()
        assert edges.rho == pytest.approx(max(float(torch.linalg.matrix_norm(d, 2).mean()) for d in chain))
        assert edges.fan_out == 1 and edges.contraction == edges.rho
        rates = lyapunov(chain)
        product = of.jacobian(of.names[-1], of.names[0])
        assert rates.eq8 == pytest.approx(float(torch.linalg.matrix_norm(product, 2).log().mean()) / 5)
        assert rates.qr <= rates.eq8 + 1e-12 and rates.gain <= rates.eq8 + 1e-12
        # the chain identity of Theorem 25 on a module: H_{v,w} = Πᵀ H_{w,w}
        apart = between_layers(net, F.cross_entropy, data, method="exact", reduction="per_sample")
        torch.testing.assert_close(apart.block("1", "5").H, of.jacobian("5", "1").mT @ apart.block("5", "5").H)
        assert of.output("1").shape == (8, 3, 16)


def test_bend_of_activations():
    z = torch.randn(200_000, 1)
    for act, name in ((nn.GELU(), "gelu"), (nn.Softplus(), "softplus")):
        found = curvature.activation_bend(nn.Sequential(act), z)
        x = z.double().requires_grad_()
        (first,) = torch.autograd.grad(act(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        assert found.pooled == pytest.approx(float(second.square().mean()), rel=1e-6), name
    assert curvature.activation_bend(nn.Sequential(nn.Linear(1, 1), nn.ReLU()), z).pooled == 0
    zero = torch.zeros(4, 1)
    at_zero = [curvature.activation_bend(nn.Sequential(a), zero).pooled for a in (nn.GELU(), nn.SiLU(), nn.Softplus())]
    assert at_zero == pytest.approx([0.6366, 0.25, 0.0625], abs=1e-3)
    with pytest.raises(ValueError, match="no activation module"):
        curvature.activation_bend(nn.Linear(1, 1), zero)


def test_newton_steps():
    g = torch.randn(4, dtype=torch.float64)
    h = torch.randn(4, 4, dtype=torch.float64)
    h = h @ h.mT + torch.eye(4)
    torch.testing.assert_close(steps.newton_step(h, g), -torch.linalg.solve(h, g))
    torch.testing.assert_close(steps.newton_step(h, g, damping=2.0), -torch.linalg.solve(h + 2 * torch.eye(4), g))
    flat = torch.diag(torch.tensor([2.0, 0.0, 0.0, 1.0], dtype=torch.float64))
    least = -torch.linalg.lstsq(flat, g[:, None], driver="gelsd").solution[:, 0]
    torch.testing.assert_close(steps.newton_step(flat, g), least)
    op = Operator((4, 4), torch.float64, lambda z: z @ h, lambda z: z @ h)
    solved = steps.newton_cg(op, g, tol=1e-12)
    assert solved.ended == "converged" and solved.products <= 5
    torch.testing.assert_close(solved.step, -torch.linalg.solve(h, g))
    down = Operator((4, 4), torch.float64, lambda z: -z, lambda z: -z)
    assert steps.newton_cg(down, g).ended == "negative curvature"
    torch.testing.assert_close(steps.newton_cg(down, g).step, -g)


def test_the_escape_step_lowers_the_loss_at_a_saddle():
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False)).double()
    for p in net.parameters():
        nn.init.zeros_(p)
    data = (torch.randn(20, 2).double(), torch.randn(20, 1).double())
    loss = lambda: float(F.mse_loss(net(data[0]), data[1]))
    before = loss()
    with operators(net, F.mse_loss, data) as of:
        gradient = torch.zeros(6, dtype=torch.float64)  # a saddle: the gradient vanishes
        found = steps.escape_step(of.whole(), gradient, length=0.1)
        _, vector = metrics.escape_vector(of.whole().dense())
    assert found.eigenvalue < -1e-3 and abs(float(found.direction @ vector)) > 0 and found.residual < 1e-8
    with torch.no_grad():
        for p, s in zip(net.parameters(), found.step.split([4, 2])):
            p += s.view_as(p)
    assert loss() < before
    bowl = Operator((3, 3), torch.float64, lambda z: z, lambda z: z)
    assert steps.escape_step(bowl, torch.ones(3, dtype=torch.float64)).step.abs().max() == 0


def test_skip_placement_by_search_beats_or_equals_uniform():
    assert design.uniform_skips(8, 4) == (0, 2, 4, 6)
    measure = lambda placed: -abs(placed[0] - 1) - abs(placed[1] - 6.0)
    assert design.best_skips(8, 2, measure) == ((1, 6), 0.0)
    _, value = design.best_skips(40, 2, measure, most=60)
    assert value >= measure(design.uniform_skips(40, 2))
    with pytest.raises(ValueError, match="must be between 1 and"):
        design.uniform_skips(3, 5)


def test_plan_predicts_the_products():
    net = mlp([40] * 4)
    data = batch(40)
    planned = curvature.cost(net, F.cross_entropy, data, probes=12)
    found = between_layers(net, F.cross_entropy, data, probes=12)
    assert planned.products == found.products and planned.nodes == found.nodes
    assert planned.gradients == pytest.approx(found.cost, rel=0.3)
    exact = curvature.cost(net, F.cross_entropy, data, method="exact")
    assert exact.products == 160 and exact.block_bytes == 2 * 160**2 * 8
    assert "gradient-equivalents" in str(exact) and planned.seconds > 0


def test_result_reads_as_text(deep):
    text = str(deep[2])
    assert "6 nodes in activation space (exact" in text and "stable rank" in text and "GN-gap over all pairs" in text


def test_negative_mass_and_escape_vector():
    h = torch.diag(torch.tensor([1.0, -2.0, -0.5], dtype=torch.float64))
    assert metrics.negative_mass(h) == 2.5
    value, vector = metrics.escape_vector(h)
    assert value == -2 and abs(vector[1]) == 1
