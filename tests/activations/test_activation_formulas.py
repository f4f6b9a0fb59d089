"""Forward and backward of every activation that torch lacks, against formulas written out here (weight-drift §2.6)."""

import math

import pytest
import torch
from torch import nn

from netvitals import activations as A

X = torch.cat([torch.linspace(-9, 9, 361, dtype=torch.float64) + 0.0123, torch.tensor([3.8, 3.95, 7.0, 7.2]).double()])
PHI = torch.special.ndtr


def density(x):
    return torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def logistic(x):
    return 1 / (1 + torch.exp(-x))


def gelu(x):
    return x * PHI(x)


def gelu_slope(x):
    return PHI(x) + x * density(x)


def silu(x):
    return x * logistic(x)


def silu_slope(x):
    return logistic(x) + x * logistic(x) * logistic(-x)


def clipped(value, slope, c):
    return lambda x: torch.clamp(value(x) ** 2, max=c), lambda x: 2 * value(x) * slope(x) * (value(x) ** 2 < c)


INF = math.inf
relu, step = (lambda x: x.clamp(min=0)), (lambda x: (x > 0).double())
CASES = {
    "relu2": clipped(relu, step, INF),
    "relu2:15": clipped(relu, step, 15.0),
    "relu2:50": clipped(relu, step, 50.0),
    "gelu2": clipped(gelu, gelu_slope, INF),
    "gelu2:15": clipped(gelu, gelu_slope, 15.0),
    "silu2": clipped(silu, silu_slope, INF),
    "silu2:15": clipped(silu, silu_slope, 15.0),
    "gelu": (gelu, gelu_slope),
    "silu": (silu, silu_slope),
    "relu": (relu, step),
    "b_silu": (
        lambda x: (x + 1.67) * logistic(x) - 0.835,
        lambda x: logistic(x) + (x + 1.67) * logistic(x) * (1 - logistic(x)),
    ),
    "sugar_b_silu": (relu, lambda x: logistic(x) + (x + 1.67) * logistic(x) * (1 - logistic(x))),
    "neg_relu": (lambda x: x.clamp(max=0), lambda x: (x < 0).double()),
    "centered:softplus": (lambda x: torch.log1p(torch.exp(x)) - math.log(2), logistic),
    "centered:sigmoid": (lambda x: logistic(x) - 0.5, lambda x: logistic(x) * logistic(-x)),
    "zero_mean:relu": (lambda x: relu(x) - 1 / math.sqrt(2 * math.pi), step),
    "sigmoid:40:0.5": (
        lambda x: logistic(40 * (x - 0.5)),
        lambda x: 40 * logistic(40 * (x - 0.5)) * logistic(20 - 40 * x),
    ),
    "softplus:20": (lambda x: torch.logaddexp(20 * x, torch.zeros_like(x)) / 20, lambda x: logistic(20 * x)),
    "quick_gelu": (
        lambda x: x * logistic(1.702 * x),
        lambda x: logistic(1.702 * x) * (1 + 1.702 * x * logistic(-1.702 * x)),
    ),
    "erf": (torch.special.erf, lambda x: 2 / math.sqrt(math.pi) * torch.exp(-x * x)),
    "sin": (torch.sin, torch.cos),
    "arctan": (torch.atan, lambda x: 1 / (1 + x * x)),
    "identity": (lambda x: x, torch.ones_like),
    "poly:0:1:0:-0.25": (lambda x: x - x**3 / 4, lambda x: 1 - 0.75 * x**2),
    "leaky_relu:0.2": (lambda x: torch.where(x > 0, x, 0.2 * x), lambda x: 0.2 + 0.8 * step(x)),
    "noisy_relu": (relu, step),
}


@pytest.mark.parametrize("spec", CASES)
def test_forward_and_backward_are_the_stated_formulas(spec):
    value, slope = CASES[spec]
    x = X.clone().requires_grad_(True)
    y = A.get(spec).double().eval()(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.allclose(y, value(X), rtol=1e-12, atol=1e-8 if "softplus:20" in spec else 1e-12)
    assert torch.allclose(grad, slope(X), rtol=1e-11, atol=1e-8 if "softplus:20" in spec else 1e-12)


@pytest.mark.parametrize("spec", [s for s in CASES if not s.startswith("sugar")])
def test_gradcheck(spec):
    module = A.get(spec).double().eval()
    x = (torch.linspace(-3, 3, 25, dtype=torch.float64) + 0.0371).requires_grad_(True)
    assert torch.autograd.gradcheck(module, x)
    if spec not in ("noisy_relu",):
        assert torch.autograd.gradgradcheck(module, x)


@pytest.mark.parametrize("spec", [*CASES, "topk:gelu:0.75"])
def test_vmap_grad_and_jvp(spec):
    module = A.get(spec).double().eval()
    x = torch.randn(5, 8, dtype=torch.float64)
    per_sample = torch.func.vmap(torch.func.grad(lambda row: module(row[None]).sum()))(x)
    inside = x.clone().requires_grad_(True)
    (whole,) = torch.autograd.grad(module(inside).sum(), inside)
    assert torch.allclose(per_sample, whole)
    _, tangent = torch.func.jvp(module, (x,), (torch.ones_like(x),))
    assert torch.allclose(tangent, whole)


@pytest.mark.parametrize(
    ("spec", "at", "value"),
    [
        ("gelu", -0.7518, -0.16997),
        ("silu", -1.2785, -0.27846),
        ("gelu2", -0.7518, 0.02889),
        ("silu2", -1.2785, 0.07754),
    ],
)
def test_dips_and_bumps_are_where_the_reference_says(spec, at, value):
    x = torch.linspace(-3, -0.1, 290_001, dtype=torch.float64)
    y = A.get(spec)(x)
    i = int(y.abs().argmax())
    assert (x[i].item(), y[i].item()) == (pytest.approx(at, abs=6e-5), pytest.approx(value, abs=6e-6))


def test_clipping_saturates_at_the_root_and_kills_the_gradient_there():
    module = A.get("relu2:15").double()
    x = torch.tensor([math.sqrt(15) - 1e-9, math.sqrt(15) + 1e-9, 4.0], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(module(x).sum(), x)
    assert grad.tolist() == pytest.approx([2 * math.sqrt(15), 0, 0])
    exact = torch.tensor([4.0], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(A.get("relu2:16").double()(exact).sum(), exact)
    assert grad.item() == 0  # at equality too
    assert torch.isfinite(A.get("relu2:15")(torch.tensor([60000.0]).half())).all()


def test_surrogate_lets_gradient_through_dead_units_in_training():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), A.get("sugar_b_silu"), nn.Linear(8, 1))
    with torch.no_grad():
        net[0].bias.fill_(-5.0)  # every unit is dead for ReLU
    net(torch.randn(16, 4)).sum().backward()
    assert net[0].weight.grad.abs().sum() > 0
    assert (net[1](torch.full((3,), -2.0)) == 0).all()


def noisy(alpha=1.0, scale=1.0, noise="half_normal", p=0.7):
    module = A.NoisyReLU(alpha, scale, noise).double()
    with torch.no_grad():
        module.p.fill_(p)
    return module


@pytest.mark.parametrize("alpha", [1.0, 0.8, 1.3])
@pytest.mark.parametrize("noise", ["half_normal", "normal"])
def test_noisy_relu_in_training_is_the_stated_formula(alpha, noise):
    module, p, c = noisy(alpha, 2.0, noise), 0.7, 2.0
    x = torch.randn(400, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(5)
    y = module(x)
    torch.manual_seed(5)
    draw = torch.randn_like(x)
    eps = draw.abs() if noise == "half_normal" else draw
    sign = -1 if alpha > 1 else 1
    s = logistic(-p * x)
    expected = torch.where(x < 0, (1 - alpha) * x + sign * c * (s - 0.5) ** 2 * eps, x)
    assert torch.allclose(y, expected)
    gx, gp = torch.autograd.grad(y.sum(), (x, module.p))
    common = sign * c * 2 * (s - 0.5) * s * (1 - s) * eps
    assert torch.allclose(gx, torch.where(x < 0, (1 - alpha) - p * common, torch.ones_like(x)))
    assert gp.item() == pytest.approx(torch.where(x < 0, -x * common, torch.zeros_like(x)).sum().item())


def test_noisy_relu_is_noisy_only_below_zero_and_only_in_training():
    module = noisy()
    x = torch.randn(1000, dtype=torch.float64)
    first, second = module(x), module(x)
    assert torch.equal(first[x >= 0], x[x >= 0]) and (first[x < 0] != second[x < 0]).all()
    assert torch.equal(module.eval()(x), x.clamp(min=0))


def test_zero_mean_has_no_mean():
    for inner in ("relu", "gelu", "softplus", "relu2:15"):
        assert A.expect(A.get(f"zero_mean:{inner}").double()) == pytest.approx(0, abs=1e-7), inner


def test_softplus_does_not_overflow_far_out():
    x = torch.tensor([30.0, 300.0], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(A.get("softplus:50").double()(x).sum(), x)
    assert grad.tolist() == [1.0, 1.0]
