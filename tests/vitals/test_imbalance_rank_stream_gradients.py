"""Chains of layers, effective rank, the residual stream, and norms of gradients and updates."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals
from netvitals import saddle
from netvitals.capture import LinearView, Site, TensorView, observe
from netvitals.saddle import chain_imbalance
from netvitals.stats import effective_rank
from netvitals.stats.spectrum import DEFINITIONS
from netvitals.vitals import Gradients, Imbalance, Rank, StreamVital


def square(t):
    return float(t.detach().double().square().sum())


# ------------------------------------------------------------------ imbalance


class Branched(nn.Module):
    """q and k read the same input: no chain. gate → silu → down is one, through dropout."""

    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(6, 6), nn.Linear(6, 6)
        self.up, self.drop, self.down = nn.Linear(6, 12), nn.Dropout(0.5), nn.Linear(12, 6)
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 2)

    def forward(self, x):
        x = x + self.q(x) * self.k(x)
        x = self.down(self.drop(F.silu(self.up(x))))
        return self.head(self.norm(x))


@pytest.mark.parametrize(
    ("net", "x", "pairs"),
    [
        (
            nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)),
            (4, 5),
            [("0", "2"), ("2", "4")],
        ),
        (
            nn.Sequential(nn.Linear(5, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 1)),
            (4, 5),
            [("0", "2")],
        ),
        (nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 3)), (4, 5), [("0", "1")]),
        (
            nn.Sequential(
                nn.Conv2d(1, 4, 3),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(4, 4, 3),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(4, 2),
            ),
            (3, 1, 8, 8),
            [("0", "3"), ("3", "6")],
        ),
        (Branched().train(), (4, 6), [("up", "down")]),
    ],
)
def test_pairs_are_found_and_their_imbalance_read(made, net, x, pairs):
    x = torch.randn(x)
    found = chain_imbalance(net, x)
    assert [(p.first, p.second) for p in found.pairs] == pairs
    seen = observe(net, None, x, vitals=[Imbalance()], mode="train")
    read = {(r.site, r.metric): r.value for r in seen.measurements}
    modules = dict(net.named_modules())
    for pair in found.pairs:
        first, second = modules[pair.first], modules[pair.second]
        expected = square(second.weight) - square(first.weight) - square(first.bias)
        assert pair.delta == pytest.approx(expected, rel=1e-12)
        assert read[f"{pair.first}→{pair.second}", "imbalance"] == pytest.approx(expected, rel=1e-5, abs=1e-5)
        total = square(second.weight) + square(first.weight) + square(first.bias)
        assert read[f"{pair.first}→{pair.second}", "relative"] == pytest.approx(expected / total, abs=1e-5)


@pytest.mark.parametrize("drop", [nn.Dropout(0.1), nn.Dropout1d(0.3), nn.Dropout2d(0.3)])
def test_dropout_does_not_switch_it_off_in_a_watch(drop):
    """On CPU its mask is drawn into an ``empty_like`` of the activations."""
    pictures = isinstance(drop, nn.Dropout2d)
    first = nn.Conv2d(1, 4, 3, padding=1) if pictures else nn.Linear(4, 8)
    second = nn.Conv2d(4, 2, 3, padding=1) if pictures else nn.Linear(8, 2)
    net = nn.Sequential(first, nn.ReLU(), drop, second)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with netvitals.watch(net, opt, every=1, vitals=["imbalance"]) as seen:
        for _ in range(2):
            loss = net(torch.randn(5, 1, 4, 4) if pictures else torch.randn(5, 4)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen.step(loss)
    assert {r.site for r in seen.measurements if r.vital == "imbalance"} == {"0→3"}, seen.skipped
    assert not [place for place in seen.skipped if "imbalance" in place]


def test_gradient_flow_of_a_relu_chain_conserves_it(made):
    net = made.relu_net([6, 10, 10, 2], bias=True)
    x, y = torch.randn(20, 6).double(), torch.randn(20, 2).double()
    before = chain_imbalance(net, x).delta
    weights = [p.detach().clone() for p in net.parameters()]
    for _ in range(400):
        grads = torch.autograd.grad(F.mse_loss(net(x), y), list(net.parameters()))
        with torch.no_grad():
            for p, g in zip(net.parameters(), grads):
                p -= 1e-3 * g
    after = chain_imbalance(net, x).delta
    moved = sum(square(p - w) for p, w in zip(net.parameters(), weights))
    assert moved > 1e-2
    assert np.abs(np.subtract(after, before)).max() < 1e-3 * moved


def test_every_place_has_the_same_imbalance():
    """The identity, the law and the account of a step beside the measurement of pairs."""
    torch.manual_seed(0)
    net, x, y = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1)), torch.randn(8, 3), torch.randn(8, 1)
    wanted = lambda: square(net[2].weight) - square(net[0].weight) - square(net[0].bias)
    assert chain_imbalance(net, x).delta == pytest.approx((wanted(),))
    assert saddle.imbalance(net, "mse", (x, y)).delta["0 → 2"] == pytest.approx(wanted(), rel=1e-5)
    assert saddle.conserved(net, "mse", (x, y))["0 → 2"].delta == pytest.approx(wanted(), rel=1e-9)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    with netvitals.watch(net, sgd, every=1, vitals=["accounting"]) as watch:
        for _ in range(2):
            loss = F.mse_loss(net(x), y)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            watch.step(loss)
    last = {r.metric: r.value for r in watch.measurements if r.step == 1}
    assert last["delta"] == pytest.approx(wanted(), rel=1e-5)
    assert last["gap"] == pytest.approx(0, abs=1e-5)
    with pytest.raises(ValueError, match="no two linear"):
        chain_imbalance(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.zeros(1, 2))


# ------------------------------------------------------------------ rank


def ranks(matrix, centred=False):
    m = matrix.double().flatten(1)
    s = np.linalg.svd((m - m.mean(0) if centred else m).numpy(), compute_uv=False)
    p, q = s / s.sum(), s**2 / (s**2).sum()
    entropy = [np.exp(-sum(v * math.log(v) for v in w if v > 1e-10)) for w in (p, q)]
    return [*entropy, (s**2).sum() / s[0] ** 2, (s**2).sum() ** 2 / (s**4).sum()]


@pytest.mark.parametrize("shape", [(20, 20), (64, 10), (10, 64), (8, 3, 3, 3)])
@pytest.mark.parametrize("centred", [False, True])
def test_four_definitions_against_singular_values(shape, centred):
    torch.manual_seed(0)
    matrix = torch.randn(shape) + 0.5
    found = effective_rank(matrix, centred=centred)
    assert [getattr(found, d) for d in DEFINITIONS] == pytest.approx(ranks(matrix, centred), rel=1e-5)
    assert found.shape == (shape[0], math.prod(shape[1:]))


def test_ranks_of_known_matrices():
    r = effective_rank(torch.outer(torch.arange(1.0, 5), torch.ones(6)))
    assert (r.entropy, r.energy, r.stable, r.participation) == pytest.approx((1, 1, 1, 1), abs=1e-5)
    r = effective_rank(torch.diag(torch.tensor([1.0, 1.0, 1.0, 0.0])))
    assert (r.entropy, r.energy, r.stable, r.participation) == pytest.approx((3, 3, 3, 3), abs=1e-5)
    assert math.isnan(effective_rank(torch.zeros(3, 3)).entropy)
    with pytest.raises(ValueError, match="expected a matrix"):
        effective_rank(torch.zeros(3))


def test_rank_of_weights_and_of_the_features_before_the_head(made):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3))
    x = torch.randn(30, 1, 4, 4)
    seen = observe(net, None, x, vitals=[Rank()], mode="train")
    read = {(r.site, r.metric): r.value for r in seen.measurements}
    features = net[:5](x).detach()
    for i, definition in enumerate(DEFINITIONS):
        assert read["features", definition] == pytest.approx(ranks(features, centred=True)[i], rel=1e-4)
        for name in ("0.weight", "3.weight", "5.weight"):
            assert read[name, definition] == pytest.approx(ranks(net.state_dict()[name])[i], rel=1e-4)
    assert {site for site, _ in read} == {"features", "0.weight", "3.weight", "5.weight"}


def test_features_are_the_last_norm_where_the_head_is_no_module(made):
    vital = Rank()
    linear = LinearView(
        Site("down", "linear", "Linear", channel_dim=-1), torch.randn(4, 5, 8), torch.randn(4, 5, 6), nn.Linear(8, 6)
    )
    h = torch.randn(4, 5, 6)
    norm = TensorView(Site("norm", "norm", "LayerNorm", channel_dim=-1), h, nn.LayerNorm(6))
    output = TensorView(Site("output", "output", "GPT", channel_dim=-1), torch.randn(4, 5, 9))
    out = made.shown(vital, linear, norm, output)
    assert out["features", "entropy"] == pytest.approx(ranks(h.reshape(-1, 6), centred=True)[0], rel=1e-4)


def test_rank_is_read_at_a_distance_of_steps(made):
    vital, view = Rank(min_steps=100), made.parameter_view(nn.Linear(4, 4))
    assert [s for s in range(0, 250, 50) if made.shown(vital, parameters=view, step=s)] == [0, 100, 200]
    with pytest.raises(ValueError, match="at least 1"):
        Rank(min_steps=0)


# ------------------------------------------------------------------ stream


@pytest.mark.parametrize(("shape", "dim"), [((3, 7, 16), -1), ((3, 16, 4, 5), 1), ((9, 16), 1)])
def test_norm_spread_and_growth_of_the_stream(made, shape, dim):
    torch.manual_seed(2)
    values = [torch.randn(shape) + 0.3, 2 * torch.randn(shape)]
    views = [TensorView(Site(f"b{i}", "stream", "Block", channel_dim=dim), v) for i, v in enumerate(values)]
    out = made.shown(StreamVital(), *views)
    rows = [v.double().movedim(dim, -1).reshape(-1, 16) for v in values]
    norms = [float(r.norm(dim=1).mean()) for r in rows]
    for i, r in enumerate(rows):
        assert out[f"b{i}", "norm"] == pytest.approx(norms[i], rel=1e-5)
        assert out[f"b{i}", "sigma"] == pytest.approx(float(r.std(correction=0)), rel=1e-4)
        assert out[f"b{i}", "rms"] == pytest.approx(float(r.square().mean().sqrt()), rel=1e-5)
    assert out["b0", "growth"] == 1
    assert out["b1", "growth"] == pytest.approx(norms[1] / norms[0], rel=1e-5)


# ------------------------------------------------------------------ gradients


def test_norms_of_gradients_and_updates(made):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 9), nn.Linear(9, 2))
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    F.mse_loss(net(torch.randn(8, 6)), torch.randn(8, 2)).backward()
    grads = {n: p.grad for n, p in net.named_parameters()}
    torch.optim.Adam(net.parameters(), lr=0.01).step()
    out = made.shown(Gradients(), parameters=made.parameter_view(net, grads=grads, before=before))
    for n, p in net.named_parameters():
        moved = math.sqrt(square(p - before[n]))
        assert out[n, "grad_norm"] == pytest.approx(math.sqrt(square(grads[n])), rel=1e-5)
        assert out[n, "update_norm"] == pytest.approx(moved, rel=1e-5)
        assert out[n, "weight_norm"] == pytest.approx(math.sqrt(square(before[n])), rel=1e-5)
        assert out[n, "update_ratio"] == pytest.approx(moved / math.sqrt(square(before[n])), rel=1e-5)
    gradient = math.sqrt(sum(map(square, grads.values())))
    update = math.sqrt(sum(square(p - before[n]) for n, p in net.named_parameters()))
    weights = math.sqrt(sum(map(square, before.values())))
    assert (out["model", "grad_norm"], out["model", "update_norm"], out["model", "update_ratio"]) == pytest.approx(
        (gradient, update, update / weights), rel=1e-5
    )
    alone = made.shown(Gradients(), parameters=made.parameter_view(net))
    assert {m for _, m in alone} == {"weight_norm"}


def test_the_update_of_a_tensor_that_was_zero_is_all_of_it(made):
    net = nn.Linear(3, 2)
    nn.init.zeros_(net.bias)
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    view = made.parameter_view(net, before=before)
    assert made.shown(Gradients(), parameters=view)["bias", "update_ratio"] == 0
    net.bias.data.fill_(0.5)
    assert made.shown(Gradients(), parameters=made.parameter_view(net, before=before))["bias", "update_ratio"] == 1


def test_a_frozen_tensor_has_a_norm_and_no_gradient(made):
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    grads = {n: torch.ones_like(p) for n, p in net.named_parameters() if n.startswith("1")}
    out = made.shown(Gradients(), parameters=made.parameter_view(net, grads=grads))
    assert ("0.weight", "grad_norm") not in out and out["1.weight", "grad_norm"] == 3
    assert out["model", "grad_norm"] == pytest.approx(math.sqrt(12))
