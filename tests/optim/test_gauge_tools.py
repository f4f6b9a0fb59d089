"""DDC around other bases, the z-loss, and gauge drift as a vital sign."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import netvitals as nv
from netvitals import optim
from netvitals.optim.symmetry import equivariance
from netvitals.vitals.gauge_charges import GaugeCharges


def draw(*shape):
    return nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64))


SPECS = {
    "rows": lambda: optim.ce_shift_rows(draw(7, 5)),
    "relu": lambda: optim.relu_rescale(draw(6, 4), draw(3, 6)),
    "norm": lambda: optim.ln_scale(draw(6), draw(6), [draw(5, 6), draw(4, 6)]),
    "chain": lambda: optim.chained_rescale([draw(6, 4), draw(6, 6), draw(3, 6)], [draw(6), draw(6), None]),
}


@pytest.mark.parametrize("base", [optim.RMSBase, optim.SGDBase, optim.SignBase, optim.AdamBase])
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    ("kind", "vertical"), [(optim.Balanced, "frozen"), (optim.Balanced, "base"), (optim.DDC, "base")]
)
def test_any_base_becomes_equivariant(spec, base, kind, vertical):
    found = equivariance(
        SPECS[spec](),
        lambda gauges: kind(
            [p for g in gauges for p in g.params], gauges, base(), lr=1e-3, vertical=vertical, lr_vertical=1e-4
        ),
        steps=100,
    )
    assert found.residual <= 1e-12, str(found)


@pytest.mark.parametrize("base", [optim.RMSBase, optim.SignBase])
def test_without_the_decomposition_the_same_base_is_not(base):
    found = equivariance(
        SPECS["relu"](),
        lambda gauges: optim.Balanced([p for g in gauges for p in g.params], [], base(), lr=1e-2),
        steps=100,
    )
    assert found.residual > 0.05, str(found)


def test_a_base_of_ones_own():
    class Plain:
        def descent(self, value, state, group):
            return -value

    w = nn.Parameter(torch.tensor([3.0]))
    opt = optim.Balanced([w], [], Plain(), lr=0.5)
    w.grad = torch.tensor([2.0])
    opt.step()
    assert w.item() == 2.0
    with pytest.raises(TypeError, match="descent"):
        optim.Balanced([w], [], object())


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))


def test_state_of_a_wrapped_base_round_trips():
    def make(model):
        return optim.Balanced(
            model.parameters(),
            [optim.relu_rescale(model[0].weight, model[2].weight, model[0].bias)],
            optim.RMSBase(),
            lr=1e-2,
        )

    x, y = torch.randn(16, 6), torch.randint(0, 5, (16,))

    def run(model, opt, steps):
        for _ in range(steps):
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()

    first = net()
    opt = make(first)
    run(first, opt, 4)
    second = copy.deepcopy(first)
    again = make(second)
    again.load_state_dict(copy.deepcopy(opt.state_dict()))
    run(first, opt, 4)
    run(second, again, 4)
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters()))


def test_a_copied_optimiser_steps_its_own_parameters():
    model = net()
    opt = optim.BalancedAdam(model.parameters(), [optim.relu_rescale(model[0].weight, model[2].weight)], lr=1e-2)
    twin, other = copy.deepcopy((model, opt))
    for p in twin.parameters():
        p.grad = torch.ones_like(p)
    before = model[0].weight.clone()
    other.step()
    assert torch.equal(model[0].weight, before) and not torch.equal(twin[0].weight, before)


def test_strided_parameters_and_gradients():
    """Memory layout must not matter: a transposed weight and its gradient step as contiguous ones do."""
    torch.manual_seed(0)
    w1, w2, g1, g2 = torch.randn(6, 4), torch.randn(3, 6), torch.randn(6, 4), torch.randn(3, 6)
    results = []
    for strided in (False, True):
        lay = (lambda t: t.T.contiguous().T) if strided else torch.clone
        a, b = nn.Parameter(lay(w1)), nn.Parameter(lay(w2))
        opt = optim.BalancedAdam([a, b], [optim.relu_rescale(a, b)], lr=1e-2)
        free = nn.Parameter(lay(w1))
        plain = optim.BalancedAdam([free], lr=1e-2)
        for _ in range(3):
            a.grad, b.grad, free.grad = lay(g1), lay(g2), lay(g1)
            opt.step()
            plain.step()
        results.append([a.detach(), b.detach(), free.detach()])
    for p, q in zip(*results):
        assert torch.allclose(p, q, atol=1e-6)


def test_z_loss_fixes_the_shift():
    logits = torch.randn(20, 6, dtype=torch.float64)
    shifted = logits + 3.0
    assert F.cross_entropy(logits, torch.zeros(20).long()).item() == pytest.approx(
        F.cross_entropy(shifted, torch.zeros(20).long()).item()
    )
    assert optim.z_loss(shifted).item() > optim.z_loss(logits).item()
    bias = torch.full((6,), 2.0, dtype=torch.float64, requires_grad=True)
    for _ in range(300):
        (g,) = torch.autograd.grad(optim.z_loss(logits + bias, 1.0), bias)
        bias.data -= 0.1 * g
    assert abs(torch.logsumexp(logits + bias, -1).mean().item()) < 0.05
    assert optim.z_loss(logits, 2.0, reduction="none").shape == (20,)
    for bad in ({"weight": -1.0}, {"reduction": "max"}):
        with pytest.raises(ValueError, match=r"z-loss|reduction"):
            optim.z_loss(logits, **bad)


@pytest.mark.parametrize(
    ("make", "low", "high"),
    [
        (lambda m, g: torch.optim.Adam(m.parameters(), lr=1e-2), 0.05, 10.0),
        (lambda m, g: torch.optim.SGD(m.parameters(), lr=1e-3), 0.0, 1e-4),
        (lambda m, g: optim.BalancedAdam(m.parameters(), g.gauges, lr=1e-3), 0.0, 1e-6),
    ],
)
def test_logit_drift_is_read_while_watching(make, low, high):
    model = net()
    gauges = optim.find_gauges(model, "ce", torch.randn(4, 6))
    opt = make(model, gauges)
    x, y = torch.randn(256, 6), torch.multinomial(torch.tensor([0.6, 0.1, 0.1, 0.1, 0.1]), 256, replacement=True)
    with nv.watch(model, optimizer=opt, every=50, vitals=[GaugeCharges(gauges)]) as seen:
        for i in range(301):
            rows = torch.arange(i * 16, (i + 1) * 16) % 256
            opt.zero_grad()
            loss = F.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            opt.step()
            seen.step(loss)
    drift = [r for r in seen.measurements if r.metric == "orbit_moved" and "shift" in r.site and "bias" in r.site]
    assert len(drift) == 7 and low <= drift[-1].value <= high, drift[-1]


def test_charges_are_conserved_by_small_sgd_steps_and_not_by_adam():
    moved = {}
    for name, make in (
        ("sgd", lambda p: torch.optim.SGD(p, lr=1e-3)),
        ("adam", lambda p: torch.optim.Adam(p, lr=1e-2)),
    ):
        model = net()
        charges = GaugeCharges([optim.relu_rescale(model[0].weight, model[2].weight, model[0].bias)])
        opt = make(model.parameters())
        x, y = torch.randn(64, 6), torch.randint(0, 5, (64,))
        for _ in range(200):
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()
        (drift,) = charges.drifts()
        moved[name] = drift.charge_moved
    assert moved["sgd"] < 0.02 < moved["adam"], moved


def test_a_model_without_gauges_is_told_so():
    with pytest.raises(ValueError, match="find_gauges"):
        GaugeCharges([])
    assert GaugeCharges(net()).gauges  # found by itself
