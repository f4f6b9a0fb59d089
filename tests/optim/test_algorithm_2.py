"""DDCAdam is Algorithm 2 as printed, and DDC around SGD is descent on the invariant metric of Corollary 79."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import Parameter
from torch.nn import functional as F

from netvitals import optim
from netvitals.optim.gauges import shared_weights

LR, BETAS, EPS = 3e-3, (0.9, 0.999), 1e-8


def draw(*shape):
    return Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64))


class Moments:
    """m̂/(√v̂ + ε), as in the paper's step 3."""

    def __init__(self):
        self.m = self.v = self.t = 0

    def __call__(self, g):
        self.t += 1
        self.m = BETAS[0] * self.m + (1 - BETAS[0]) * g
        self.v = BETAS[1] * self.v + (1 - BETAS[1]) * g**2
        return self.m / (1 - BETAS[0] ** self.t) / ((self.v / (1 - BETAS[1] ** self.t)).sqrt() + EPS)


class Printed:
    """Algorithm 2 for one chain of n whole matrices, line by line (steps 2 to 7 of §11.1)."""

    def __init__(self, weights, vertical, lr_vertical):
        self.ws, self.vertical, self.lr_vertical, n = weights, vertical, lr_vertical, len(weights)
        i = torch.arange(n, dtype=torch.float64)
        rows = [torch.full((n,), 1 / math.sqrt(n), dtype=torch.float64)]
        rows += [math.sqrt(2 / n) * torch.cos(math.pi * k * (2 * i + 1) / (2 * n)) for k in range(1, n)]
        self.basis = torch.stack(rows)
        self.radial, self.modes, self.tangents = Moments(), Moments(), [Moments() for _ in weights]

    def step(self, grads):
        rho = [w.norm() for w in self.ws]
        hats = torch.stack([(g * w).sum() for g, w in zip(grads, self.ws)])
        c = self.basis @ hats
        up = -LR * self.radial(c[:1])
        v = {"frozen": lambda q: 0 * q, "sgd": lambda q: -self.lr_vertical * q}
        v["adam"] = lambda q: -self.lr_vertical * self.modes(q)
        logs = self.basis.T @ torch.cat([up, v[self.vertical](c[1:])])
        out = []
        for w, g, r, hat, log, ad in zip(self.ws, grads, rho, hats, logs, self.tangents):
            u = ad(r * (g - hat / r**2 * w))
            u = u - (u * w).sum() / r**2 * w
            out.append(log.exp() * w - LR * r * u)
        self.ws = out


@pytest.mark.parametrize("vertical", ["frozen", "sgd", "adam"])
@pytest.mark.parametrize("shapes", [((6, 4), (3, 6)), ((6, 4), (5, 6), (5, 5), (3, 5))])
def test_a_chain_steps_as_printed(shapes, vertical):
    ws = [draw(*s) for s in shapes]
    reference = Printed([w.detach().clone() for w in ws], vertical, 1e-3)
    optimiser = optim.DDCAdam(ws, [optim.chained_rescale(ws)], lr=LR, vertical=vertical, lr_vertical=1e-3)
    generator = torch.Generator().manual_seed(5)
    for _ in range(60):
        grads = [torch.randn(w.shape, generator=generator, dtype=torch.float64) for w in ws]
        for w, g in zip(ws, grads):
            w.grad = g.clone()
        optimiser.step()
        reference.step(grads)
    for w, r in zip(ws, reference.ws):
        assert torch.allclose(w, r, rtol=1e-11, atol=0)


def test_a_channel_steps_as_a_pair_of_its_own():
    """The norm's gauge per channel is the pair's, once a channel; rows of a fused weight are a block like any other."""
    gain, fused = draw(3), draw(4, 6)
    columns = torch.tensor([-1, 0, 1, 2, -1, -1])
    spec = optim.gauges.Rescale(
        "fused", (optim.blocks.GaugeBlock((gain,), (0,)), optim.blocks.GaugeBlock((fused,), (1,), (columns,)))
    )
    pairs = [Printed([gain.detach()[i : i + 1], fused.detach()[:, i + 1 : i + 2]], "frozen", 0.0) for i in range(3)]
    rest = Parameter(fused.detach()[:, [0, 4, 5]].clone())
    optimiser, adam = optim.DDCAdam([gain, fused], [spec], lr=LR), torch.optim.Adam([rest], lr=LR)
    generator = torch.Generator().manual_seed(6)
    for _ in range(40):
        gain.grad, fused.grad = (torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in (gain, fused))
        rest.grad = fused.grad[:, [0, 4, 5]].clone()
        for i, pair in enumerate(pairs):
            pair.step([gain.grad[i : i + 1], fused.grad[:, i + 1 : i + 2]])
        optimiser.step()
        adam.step()
    for i, pair in enumerate(pairs):
        # a gain alone in its block is its own direction: what is tangential in it is a rounding error
        assert torch.allclose(gain[i : i + 1], pair.ws[0], rtol=1e-8)
        assert torch.allclose(fused[:, i + 1 : i + 2], pair.ws[1], rtol=1e-8)
    assert torch.allclose(fused[:, [0, 4, 5]], rest, rtol=1e-10)


def network(depth=3):
    torch.manual_seed(0)
    sizes = [6, *[8] * (depth - 1), 4]
    parts = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*parts[:-1]).double()


def trained(make, gauge_of, scale, steps=100):
    """Outputs of a network that was moved along its orbit, then trained with gradients of its own."""
    model = network()
    gauge = gauge_of(model)
    generator = torch.Generator().manual_seed(1)
    gauge.act(scale * torch.randn(gauge.modes, generator=generator, dtype=torch.float64))
    x, y = torch.randn(64, 6, dtype=torch.float64, generator=generator), torch.arange(64) % 4
    optimiser = make(model.parameters(), [gauge])
    for _ in range(steps):
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model(x).detach()


CHAINED = lambda m: optim.chained_rescale([m[i].weight for i in (0, 2, 4)], [m[0].bias, m[2].bias])
UNITS = lambda m: optim.channel_rescale([(m[0].weight, 0), (m[0].bias, 0)], [(m[2].weight, 1)])
OPTIMISERS = {
    "printed": lambda p, g: optim.DDCAdam(p, g, lr=LR),
    "printed, along the orbit too": lambda p, g: optim.DDCAdam(p, g, lr=LR, vertical="sgd"),
    "SGD on the metric": lambda p, g: optim.DDC(p, g, optim.SGDBase(), lr=LR, vertical="sgd"),
    "with momentum": lambda p, g: optim.DDC(p, g, optim.SGDBase(0.9), lr=1e-3),
    "balanced SGD": lambda p, g: optim.Balanced(p, g, optim.SGDBase(), lr=LR),
}


@pytest.mark.parametrize("gauge", [CHAINED, UNITS], ids=["chain", "units"])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_the_function_does_not_know_where_on_the_orbit_it_was_trained(optimiser, gauge):
    """With live gradients in float64, not synchronised ones: eps is added to invariant parts."""
    here, there = (trained(OPTIMISERS[optimiser], gauge, s) for s in (0.0, 1.0))
    assert float((here - there).abs().max()) < 1e-10 * float(here.abs().max())


def test_sgd_and_adam_do_know():
    for make in (lambda p, _: torch.optim.SGD(p, lr=0.1), lambda p, _: torch.optim.Adam(p, lr=LR)):
        here, there = (trained(make, CHAINED, s) for s in (0.0, 1.0))
        assert float((here - there).abs().max()) > 0.05 * float(here.abs().max())


def test_the_printed_and_the_balanced_optimiser_are_two():
    make = lambda kind: lambda p, g: kind(p, g, lr=LR)
    printed, balanced = (trained(make(kind), CHAINED, 0.0) for kind in (optim.DDCAdam, optim.BalancedAdam))
    assert float((printed - balanced).norm()) > 0.05 * float(balanced.norm())


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_sgd_on_the_invariant_metric_is_gradient_flow_on_the_quotient(depth):
    """Scalars w₁ … w_L with loss u²/2 of their product u: u' = −L u³, exactly solved by (1/u₀² + 2Lt)^(−1/2)."""
    ws = [Parameter(torch.tensor([[1.3 ** (1 + i - depth / 2)]], dtype=torch.float64)) for i in range(depth)]
    start = math.prod(float(w.detach()) for w in ws)
    lr, steps = 1e-4, 1000
    optimiser = optim.DDC(ws, [optim.chained_rescale(ws)], optim.SGDBase(), lr=lr, vertical="sgd")
    for _ in range(steps):
        optimiser.zero_grad()
        u = torch.ones((), dtype=torch.float64)
        for w in ws:
            u = u * w.sum()
        (0.5 * u**2).backward()
        optimiser.step()
    end = math.prod(float(w.detach()) for w in ws)
    assert end == pytest.approx((start**-2 + 2 * depth * lr * steps) ** -0.5, rel=3e-3)
    assert end < 0.97 * start


def test_a_shift_is_reprojected_unless_the_printed_version_is_asked_for():
    results = {}
    for reproject in (True, False, None):
        w = draw(5, 3)
        gauge = optim.ce_shift_rows(w)
        kind = (
            torch.optim.Adam([w], lr=LR)
            if reproject is None
            else optim.DDCAdam([w], [gauge], lr=LR, reproject=reproject)
        )
        for i in range(30):
            x, y = (
                torch.randn(8, 3, generator=torch.Generator().manual_seed(i), dtype=torch.float64),
                torch.arange(8) % 3,
            )
            kind.zero_grad()
            F.cross_entropy(x @ w.T, y).backward()
            kind.step()
        results[reproject] = w.detach()
    drift = lambda key: float((results[key].mean(0) - draw(5, 3).detach().mean(0)).abs().max())
    assert drift(True) < 1e-12 and drift(False) > 1e-3
    assert torch.allclose(results[False], results[None], rtol=1e-6)  # printed, it is Adam (erratum E10)


def test_gauges_that_share_weights_are_refused_and_a_disjoint_choice_is_taken():
    model = network(4)
    found = optim.find_gauges(model, "ce", torch.randn(8, 6, dtype=torch.float64))
    assert len(found) == 5
    with pytest.raises(ValueError, match=r"share weights.*disjoint\(\).*BalancedAdam"):
        optim.DDCAdam(model.parameters(), found.gauges)
    chosen = found.disjoint()
    assert 0 < len(chosen) < 5 and shared_weights(chosen) is None
    before = [p.detach().clone() for p in model.parameters()]
    optimiser = optim.DDCAdam(model.parameters(), chosen, lr=LR)
    model(torch.randn(8, 6, dtype=torch.float64)).square().sum().backward()
    optimiser.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters()))


def test_a_weight_in_two_blocks_of_one_gauge_is_refused():
    w = draw(4, 4)
    with pytest.raises(ValueError, match="share weights"):
        optim.DDCAdam([w], [optim.chained_rescale([w, w])])


def test_momentum_out_of_range():
    with pytest.raises(ValueError, match="momentum"):
        optim.SGDBase(1.0)
