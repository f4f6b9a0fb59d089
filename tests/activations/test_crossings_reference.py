"""Crossings of |f'| = θ against the reference table, closed forms, and an independent root finder."""

import math

import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from netvitals import activations as A

THETAS = (0.001, 0.005, 0.01, 0.05, 0.10)
# gate-density §2.2, printed to four digits, some cut and some rounded
SIGNED = {
    "gelu": (-0.7494, -0.7403, -0.7290, -0.6459, -0.5543),
    "gelu_tanh": (-0.7501, -0.7409, -0.7296, -0.6463, -0.5546),
    "silu": (-1.2738, -1.2558, -1.2338, -1.0768, -0.9123),
    "mish": (-1.1886, -1.1739, -1.1559, -1.0268, -0.8910),
    "relu": (0.0,) * 5,
}
LITERAL = {
    "gelu": (-3.0674, -1.8613),
    "gelu_tanh": (-3.0528, -1.8690),
    "silu": (-6.2613, -0.9123),
    "mish": (-6.2639, -2.8274),
    "relu": (0.0, 0.0),
}
SLITS = {
    "gelu": (-0.7754, -0.7290),
    "gelu_tanh": (-0.7762, -0.7296),
    "silu": (-1.3258, -1.2338),
    "mish": (-1.2310, -1.1559),
}
ACTIVE = {
    "gelu": [(-1.8613, -1.0778), (-0.5543, math.inf)],
    "gelu_tanh": [(-1.8690, -1.0796), (-0.5546, math.inf)],
    "silu": [(-0.9123, math.inf)],
    "mish": [(-2.8274, -1.8334), (-0.8910, math.inf)],
    "relu": [(0, math.inf)],
}
PRINTED = 1.0e-4  # one unit of the last printed digit


@pytest.mark.parametrize("name", SIGNED)
def test_signed_crossings_equal_the_reference_table(name):
    for theta, expected in zip(THETAS, SIGNED[name]):
        assert A.crossings(name, theta).z_low == pytest.approx(expected, abs=PRINTED), theta


@pytest.mark.parametrize("name", LITERAL)
def test_literal_crossings_equal_the_reference_table(name):
    for theta, expected in zip((0.01, 0.10), LITERAL[name]):
        assert A.crossings(name, theta).z_low_literal == pytest.approx(expected, abs=PRINTED), theta


@pytest.mark.parametrize("name", SLITS)
def test_the_inactive_slit_at_one_percent(name):
    (slit,) = A.crossings(name, 0.01).slits
    assert slit == pytest.approx(SLITS[name], abs=PRINTED)


@pytest.mark.parametrize("name", ACTIVE)
def test_the_active_set_at_ten_percent(name):
    intervals = A.crossings(name, 0.10).intervals
    assert len(intervals) == len(ACTIVE[name])
    for found, expected in zip(intervals, ACTIVE[name]):
        assert found == pytest.approx(expected, abs=PRINTED)


@pytest.mark.parametrize(
    ("beta", "theta", "printed"),
    [
        (50, 0.10, -0.0439),
        (50, 0.01, -0.0919),
        (20, 0.10, -0.1099),
        (10, 0.10, -0.2197),
        (5, 0.10, -0.4394),
        (20, 0.01, -0.2298),
        (10, 0.01, -0.4595),
        (5, 0.01, -0.9190),
    ],
)
def test_softplus_crosses_at_the_logit(beta, theta, printed):
    found = A.crossings(f"softplus:{beta}", theta)
    assert found.z_low == pytest.approx(printed, abs=PRINTED)
    assert found.z_low == pytest.approx(math.log(theta / (1 - theta)) / beta, abs=1e-10)
    assert found.intervals == ((found.z_low, math.inf),)


@pytest.mark.parametrize("theta", THETAS)
def test_gelu_crossings_are_right_to_1e_10(theta):
    slope = lambda z: norm.cdf(z) + z * norm.pdf(z)
    upper = brentq(lambda z: slope(z) - theta, -0.7518, 0, xtol=1e-14)
    assert A.crossings("gelu", theta).z_low == pytest.approx(upper, abs=1e-10)
    lower = brentq(lambda z: slope(z) + theta, -10, -math.sqrt(2), xtol=1e-14)
    assert A.crossings("gelu", theta).z_low_literal == pytest.approx(lower, abs=1e-10)


def test_leaky_slopes_count_only_when_above_theta():
    assert A.crossings("leaky_relu:0.1", 0.1).z_low == 0  # the comparison is strict
    assert A.crossings("leaky_relu:0.11", 0.1).z_low == -math.inf
    assert A.crossings(nn.PReLU(init=0.1), 0.1).z_low == 0  # float32 0.1 means 0.1
    assert A.crossings(nn.PReLU(init=0.25), 0.1).z_low == -math.inf
    assert A.crossings("relu", 0.99).intervals == ((0.0, math.inf),)
    assert A.crossings("relu", 1.0).intervals == () and A.crossings("relu", 1.0).z_low == math.inf


def test_a_learned_slope_is_not_answered_from_the_cache():
    prelu = nn.PReLU(3, init=0.5)
    single = nn.PReLU(init=0.5)
    assert A.crossings(single, 0.1).z_low == -math.inf
    with torch.no_grad():
        single.weight.fill_(0.05)
    assert A.crossings(single, 0.1).z_low == 0
    assert prelu.weight.dtype == torch.float32


def test_narrow_slits_and_steep_steps_are_found():
    assert len(A.crossings("gelu", 1e-6).intervals) == 2  # slit 5e-6 wide, 200 times under the grid step
    step = A.crossings("sigmoid:10000:0.5", 0.01)  # active set 3e-3 wide
    half = math.acosh(math.sqrt(10000 / 4 / 0.01)) * 2 / 10000
    assert step.intervals[0] == pytest.approx((0.5 - half, 0.5 + half), abs=1e-10)
    assert A.crossings("softplus:0.1", 0.01).z_low == pytest.approx(math.log(0.01 / 0.99) / 0.1, abs=1e-9)


def test_an_oscillating_derivative_says_so():
    wave = A.crossings("sin", 0.1)
    assert wave.oscillates and wave.z_low == -math.inf
    for z in wave.crossings:
        assert abs(math.cos(z)) == pytest.approx(0.1, abs=1e-10)


def test_any_callable_or_module_is_accepted_and_left_alone():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.tensor(2.0))

        def forward(self, x):
            return torch.tanh(self.gain * x)

    own = Own().train()
    root = math.acosh(math.sqrt(2 / 0.1)) / 2
    assert A.crossings(own, 0.1).intervals[0] == pytest.approx((-root, root), abs=1e-10)
    assert own.training and own.gain.dtype == torch.float32 and own.gain.requires_grad and own.gain.grad is None
    assert A.crossings(lambda z: torch.tanh(2 * z), 0.1).z_low == pytest.approx(-root, abs=1e-10)
    with torch.no_grad():
        assert A.crossings(lambda z: torch.tanh(2 * z), 0.1).z_low == pytest.approx(-root, abs=1e-10)


def test_what_has_no_gate_function_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="not elementwise"):
        A.crossings("topk:gelu:0.5", 0.1)
    with pytest.raises(ValueError, match="3 slopes, one per channel"):
        A.crossings(nn.PReLU(3), 0.1)
    with pytest.raises(ValueError, match="only elementwise functions"):
        A.crossings(lambda z: z.sum(), 0.1)
    with pytest.raises(TypeError, match="expected an activation"):
        A.crossings(3, 0.1)
    with pytest.raises(ValueError, match="must not be negative"):
        A.crossings("gelu", -0.1)


def test_asking_leaves_the_random_state_and_the_module_alone():
    module = A.get("noisy_relu").train()
    before, state = module.p.item(), torch.get_rng_state()
    for question in (
        lambda: A.crossings(module, 0.0765),
        lambda: A.classify("noisy_relu:1:2"),
        lambda: A.constants("noisy_relu:1:3"),
        lambda: A.derivative("noisy_relu"),
    ):
        question()
    assert torch.equal(torch.get_rng_state(), state) and module.p.item() == before and module.training


class CountCalls(TorchDispatchMode):
    """Counts the operations on tensors."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_repeated_questions_cost_nothing():
    module = A.get("mish")
    first = A.crossings(module, 0.0321)
    with CountCalls() as calls:
        assert all(A.crossings(module, 0.0321) is first for _ in range(100))
    assert calls.count == 0
    with CountCalls() as calls:
        A.crossings(module, 0.0322)  # another question is work
    assert calls.count > 10


# gate-density §2.3: density at θ = .01 and .10 under N(0,1) and N(−.05, .33²), exact and by Φ(margin)
TABLE = {
    "relu": ((0.5000, 0.5000), (0.5000, 0.5000), (0.4398, 0.4398), (0.4398, 0.4398)),
    "gelu": ((0.9850, 0.8195), (0.7670, 0.7103), (0.9942, 0.9377), (0.9802, 0.9368)),
    "silu": ((0.9838, 0.8192), (0.8914, 0.8192), (0.9999, 0.9955), (0.9998, 0.9955)),
    "mish": ((0.9853, 0.8446), (0.8761, 0.8135), (0.9998, 0.9946), (0.9996, 0.9946)),
}


@pytest.mark.parametrize("name", TABLE)
def test_gaussian_density_over_the_interval_union(name):
    wide, wide_margin, narrow, narrow_margin = TABLE[name]
    for i, theta in enumerate((0.01, 0.10)):
        c = A.crossings(name, theta)
        assert c.density(0.0, 1.0).item() == pytest.approx(wide[i], abs=6e-5)
        assert c.density(-0.05, 0.33).item() == pytest.approx(narrow[i], abs=6e-5)
        assert norm.cdf(c.margin(0.0, 1.0).item()) == pytest.approx(wide_margin[i], abs=6e-5)
        assert norm.cdf(c.margin(-0.05, 0.33).item()) == pytest.approx(narrow_margin[i], abs=6e-5)


def test_gelu_inactive_mass_is_not_monotone_in_sigma():
    sigma = torch.tensor([1.5, 1.2, 1, 0.75, 0.6, 0.5, 0.4, 0.33], dtype=torch.float64)
    printed = [0.0313, 0.0180, 0.0150, 0.0149, 0.0141, 0.0119, 0.0079, 0.0042]
    assert (1 - A.crossings("gelu", 0.01).density(0.0, sigma)).tolist() == pytest.approx(printed, abs=6e-5)


def test_density_without_spread_is_the_side_of_the_mean():
    c = A.crossings("gelu", 0.1)
    assert c.density(torch.tensor([-0.6, -0.5, -1.5]), 0.0).tolist() == [0.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="sigma= must not be negative"):
        c.density(0.0, -1.0)


def test_density_equals_the_share_of_a_large_sample():
    z = torch.randn(200_000, dtype=torch.float64) * 0.7 - 0.3
    for name in ("mish", "hardswish", "tanh", "relu2"):
        share = (A.derivative(name)(z).abs() > 0.1).double().mean().item()
        assert A.crossings(name, 0.1).density(-0.3, 0.7).item() == pytest.approx(share, abs=0.005), name
