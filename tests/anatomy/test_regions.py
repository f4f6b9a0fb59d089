"""Pointwise regions: what was silently missing is one activation with its true derivative, or has a reason."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from netvitals.anatomy import chart


class Net(nn.Module):
    def __init__(self, f, width=64):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.f = nn.Linear(8, width), nn.Linear(width, 3), f

    def forward(self, x):
        return self.b(self.f(self.a(x)))


class Branches(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.a, self.b, self.c, self.f = nn.Linear(8, 6), nn.Linear(8, 6), nn.Linear(6, 2), f

    def forward(self, x):
        return self.c(self.f(self.a(x), self.b(x)))


def batch():
    return torch.randn(2000, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("f", [F.relu6, lambda h: h.clamp(0, 6)])
def test_58_of_64_dead_units_are_dead_however_the_clipping_is_written(f):
    net = Net(f)
    with torch.no_grad():
        net.a.bias[:58] = -100.0
    found = chart(net, batch())
    (region,) = found.activations
    slope = region.derivative(found.at(region)[0])
    assert int((slope.abs() > 0).any(0).sum()) == 6 and region.role == "hidden activation" and not found.skipped


def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


@pytest.mark.parametrize(
    "f",
    [lambda h: h * torch.sigmoid(h), new_gelu, lambda h: torch.relu(h).square(), lambda h: h * torch.sigmoid(1.7 * h)],
)
def test_a_composite_has_the_density_of_the_whole_function(f):
    net = Net(f)
    found = chart(net, batch())
    (region,) = found.activations
    h = net.a(batch()).detach().double().requires_grad_()
    (slope,) = torch.autograd.grad(f(h).sum(), h)
    true = float((slope.abs() > 0.1).double().mean())
    seen = float((region.derivative(h).abs() > 0.1).double().mean())
    assert seen == pytest.approx(true, abs=1e-6)


@pytest.mark.parametrize("how", ["bfloat16", "float16", "autocast"])
def test_the_small_slope_of_a_leaky_unit_is_not_above_a_hundredth_in_half_precision(how):
    net, x = Net(nn.LeakyReLU()), batch()
    if how == "autocast":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = chart(net, x)
    else:
        found = chart(net.to(getattr(torch, how)), x.to(getattr(torch, how)))
    (region,) = found.activations
    h, _ = found.at(region)
    assert h.dtype in (torch.bfloat16, torch.float16)
    share = float((region.derivative(h).abs() > 0.01).double().mean())
    assert share == pytest.approx(float((h > 0).double().mean()), abs=1e-6) and 0.4 < share < 0.6


class Swish(nn.Module):
    def __init__(self, buffer):
        super().__init__()
        if buffer:
            self.register_buffer("beta", torch.tensor(1.0))
        else:
            self.beta = nn.Parameter(torch.tensor(1.0))

    def forward(self, h):
        return h * torch.sigmoid(F.softplus(self.beta) * h)


@pytest.mark.parametrize("buffer", [True, False])
def test_a_region_is_replayed_with_the_parameters_and_buffers_of_today(buffer):
    net = Net(Swish(buffer))
    (region,) = chart(net, batch()).activations
    assert region.reads == ("f.beta",)
    h = torch.linspace(-3, 3, 64).expand(2000, 64)
    with torch.no_grad():
        net.f.beta.fill_(2.5)
    today = {"f.beta": net.f.beta.detach()}
    expected = h * torch.sigmoid(F.softplus(torch.tensor(2.5)) * h)
    assert torch.allclose(region.replay(h, today), expected, atol=1e-6)
    wide = h.double().clone().requires_grad_()
    (slope,) = torch.autograd.grad(
        (wide * torch.sigmoid(F.softplus(torch.tensor(2.5, dtype=torch.float64)) * wide)).sum(), wide
    )
    assert torch.allclose(region.derivative(h.double(), today), slope, atol=1e-12)
    if not buffer:  # parameters are the model's own: they are read where they are
        assert torch.allclose(region.f(h), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("f", "name"),
    [
        (torch.maximum, "maximum()"),
        (lambda a, b: torch.where(a > 0, a, b), "where()"),
        (lambda a, b: a / (b.abs() + 1), "div()"),
        (torch.atan2, "atan2()"),
        (lambda a, b: torch.lerp(a, b, torch.sigmoid(a)), "lerp()"),
        (lambda a, b: a + torch.maximum(b.mean(-1, keepdim=True), torch.zeros(6)), "maximum()"),
    ],
)
def test_what_bends_two_tensors_or_broadcasts_has_a_reason(f, name):
    found = chart(Branches(f), batch())
    assert name in found.skipped and len(found.skipped[name]) > 20, found.skipped


SIGNS = torch.tensor([1.0, -2.0] * 32)


@pytest.mark.parametrize(
    ("f", "kind"),
    [
        (lambda h: h.clamp(-1e9, 1e9), "affine"),
        (lambda h: h.pow(1), "affine"),
        (lambda h: torch.where(SIGNS > 0, h, SIGNS * h) + 3, "affine"),
        (lambda h: torch.relu(h) - torch.relu(-h), "affine"),
        (lambda h: torch.maximum(h, torch.full((), -torch.inf)), "affine"),
        (lambda h: h + 1e-6 * h.pow(2), "activation"),
        (lambda h: h.clamp(max=6.0), "activation"),  # beyond what was seen, within twice as far
        (lambda h: h.clamp(min=-6.0), "activation"),
        (lambda h: torch.where(SIGNS > 0, h, SIGNS * h.abs()), "activation"),
        (lambda h: h.abs() - 1e30 * (SIGNS > 0), "activation"),  # bent where nothing is masked
        (lambda h: 1 / (h + 1e3), "activation"),
        (lambda h: h * h, "activation"),
    ],
)
def test_affine_is_what_acts_so_and_not_what_is_written_so(f, kind):
    found = chart(Net(f), batch()[:300])
    (region,) = found.regions
    assert region.kind == kind and float(found.at(region)[0].abs().max()) < 5 and not found.skipped


def test_what_is_too_large_to_try_is_known_by_its_operations():
    net = Net(lambda h: torch.tanh(h) * 2 + 1)
    for rows in (2, 2000):  # 128 and 128 000 elements
        assert [r.kind for r in chart(net, batch()[:rows]).regions] == ["activation"]


def test_what_cannot_be_replayed_has_a_reason():
    found = chart(Net(lambda h: torch.fft.fft(h).abs()), batch())
    assert "could not be repeated on other inputs" in found.skipped["abs()"] and not found.activations
    assert [r.role for r in found.regions] == ["other"]


def test_a_product_of_two_branches_is_a_gate_with_both_factors_and_a_sum_is_nothing():
    found = chart(Branches(lambda a, b: torch.sigmoid(a) * torch.tanh(b)), batch())
    (gate,) = found.gates
    ends = {r.end: r.text for r in found.activations}
    assert (ends[gate.left], ends[gate.right]) == ("sigmoid", "tanh") and not found.skipped
    mask = torch.rand(6) > 0.5
    found = chart(Branches(lambda a, b: torch.where(mask, a, b) + a - b), batch())
    assert not found.gates and not found.activations and not found.skipped


def test_a_fused_multiplication_and_addition_is_a_gate():
    found = chart(Branches(lambda a, b: torch.addcmul(a, torch.sigmoid(a), b)), batch())
    assert len(found.gates) == 1 and [r.text for r in found.activations] == ["sigmoid"]


def test_dropout_masks_and_noise_do_not_make_a_gate():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 6), nn.Linear(6, 2)

        def forward(self, x):
            h = self.a(x)
            h = h + torch.randn_like(h) * 0.1
            return self.b(F.alpha_dropout(torch.relu(h * torch.bernoulli(torch.full_like(h, 0.5))), 0.1, self.training))

    found = chart(Noisy(), batch())
    assert not found.gates and [r.text for r in found.activations] == ["relu"] and not found.skipped
