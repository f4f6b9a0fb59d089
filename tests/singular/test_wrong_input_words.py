"""What cannot be measured is refused with a sentence, and no number is made up for it."""

import math

import pytest
import torch
from torch import nn

from netvitals import singular
from netvitals.singular import learning_coefficient
from netvitals.singular.checkpoint.attention import value_output
from netvitals.singular.checkpoint.layernorm import ln_finite_t, ln_kernel_test
from netvitals.singular.checkpoint.stream import sigma_stream
from netvitals.singular.laws.fluctuation import functional_variance_mc
from netvitals.singular.laws.volume import eps_scan_volume
from netvitals.singular.moments.schur import schur_profile, schur_ratios
from netvitals.singular.networks.architecture import Chain
from netvitals.singular.networks.ladders import freeze_probe
from netvitals.singular.orders.order import directional_fisher, kl_along, score_expansion
from netvitals.singular.orders.spectrum import operational_selection
from netvitals.vitals.dead_directions import Orders

NAN = math.nan
ZERO, AXIS = torch.zeros(2, dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)


def line(theta):
    return theta[:1].expand(4, 1)


def broken(theta):
    return line(theta) * NAN


@pytest.mark.parametrize(
    "call",
    [
        lambda f: directional_fisher(f, ZERO, AXIS),
        lambda f: kl_along(f, ZERO, AXIS, [0.1]),
        lambda f: singular.kl_order(f, ZERO, AXIS),
        lambda f: score_expansion(f, ZERO, AXIS),
    ],
)
@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        (broken, "NaN or infinit"),
        (lambda th: line(th)[:, 0], "samples, outputs"),
        (lambda th: line(th)[:0], "at least one"),
        (lambda th: line(th)[:, :0], "at least one"),
    ],
)
def test_outputs_that_are_no_samples(call, outputs, words):
    with pytest.raises(ValueError, match=words):
        call(outputs)


def test_half_precision_is_promoted_before_it_overflows():
    steep = lambda th: 300.0 * th[:1].expand(4, 1)
    found = directional_fisher(steep, ZERO.half(), AXIS.half())
    assert found.dtype == torch.float64 and float(found) == 90_000


def test_an_expansion_without_a_term_says_so():
    sixth = lambda th: th[:1].pow(6).expand(3, 1)
    assert "no coefficient up to t^4" in str(score_expansion(sixth, ZERO, AXIS, 4))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: operational_selection([], [], 2.0), "at least one"),
        (lambda: operational_selection([1.0], [1.0, 2.0], 2.0), "each exponent needs one magnitude"),
        (lambda: eps_scan_volume(lambda u: u[:, 0] * NAN, 1, draws=1000), "negative or NaN"),
        (lambda: singular.nu(2, beta=math.inf), "1/4 for even"),
        (lambda: functional_variance_mc(2, data_sets=1), "data_sets= must be at least 2"),
        (lambda: freeze_probe(Chain(), ts=[]), "at least three"),
        (lambda: freeze_probe(Chain(), ts=[0.0, 0.1, 0.2]), "at least three"),
        (lambda: freeze_probe(Chain(), direction=1), "less than 1, the number of dead directions"),
        (lambda: freeze_probe(Chain(), loss="ce", fisher="true"), "got 'true'"),
        (lambda: freeze_probe(Chain(), examples=0), "examples= must be at least 2"),
        (lambda: Chain(norm_after=(4,)), "norm= must be"),
        (lambda: Chain(norm="batch"), "'layer' or 'rms'"),
        (lambda: singular.predict_rates(Chain(), direction=3), "less than 1, the number of dead directions"),
        (lambda: ln_finite_t(8, NAN), "standard deviation"),
        (lambda: ln_kernel_test(nn.LayerNorm(4), torch.randn(0, 4)), "empty"),
        (lambda: schur_ratios(torch.randn(4)), "examples, units"),
        (lambda: schur_profile(nn.Linear(3, 3), torch.randn(0, 3)), "at least one example"),
        (lambda: sigma_stream(nn.Linear(3, 3), torch.randn(0, 3)), "at least one example"),
        (lambda: value_output(nn.Linear(3, 3), "mse", torch.randn(4, 3)), "pair"),
    ],
)
def test_refused_with_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_nu_of_a_cold_posterior():
    """The rule must follow Z, which spreads as √β; checked by a plain sum in s = η^k."""
    for k, limit in ((2, 0.25), (3, 0.5)):
        assert singular.nu(k, beta=1000.0) == pytest.approx(limit, abs=5e-4) and singular.nu(k, beta=1000.0) < limit


def test_layernorm_in_half_precision_still_has_its_kernel():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 6), nn.RMSNorm(6)).half()
    assert [t.passes for t in ln_kernel_test(model, torch.randn(50, 4).half())] == [
        True,
        False,
    ]


def test_units_behind_a_layernorm_are_said_to_be_related():
    model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 6))
    assert "without the kernel" in schur_profile(model, torch.randn(50, 4), references=0)[0].note
    with torch.no_grad():
        model[0].weight[1::2], model[0].bias[1::2] = model[0].weight[::2], model[0].bias[::2]
    repeated = nn.Sequential(model[0], nn.Linear(6, 6))
    assert "exact linear relation" in schur_profile(repeated, torch.randn(50, 4), references=0)[0].note
    assert "no t⁴ coefficient" in str(ln_finite_t(3))


def data():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(200, 3, generator=generator), torch.randn(200, 1, generator=generator)


def squared(outputs, y):
    return (outputs - y).square().sum(1).mean() / 2


@pytest.mark.parametrize(
    "options",
    [
        {"step_size": -1.0},
        {"step_size": NAN},
        {"step_size": "large"},
        {"nbeta": -1.0},
        {"nbeta": NAN},
        {"localization": -1.0},
        {"batch_size": 0},
        {"burn_in": -1},
    ],
)
def test_settings_under_which_no_chain_could_run(options):
    with pytest.raises(ValueError, match=r"must be|positive"):
        learning_coefficient(nn.Linear(3, 1), squared, data(), draws=4, **options)


def test_chains_that_never_moved_give_no_coefficient():
    found = learning_coefficient(nn.Linear(3, 1), squared, data(), draws=20, step_size=1e3)
    assert math.isnan(found.mean) and found.acceptance == 0 and "no move was accepted" in str(found)


def test_a_point_that_is_no_minimum_is_said_to_be_none():
    model = nn.Linear(3, 1)
    nn.init.constant_(model.weight, 3.0)
    assert "not a minimum" in str(learning_coefficient(model, squared, data(), draws=50))


def test_a_half_model_with_half_data_is_promoted():
    x, y = data()
    found = learning_coefficient(nn.Linear(3, 1).half(), squared, (x.half(), y.half()), draws=10)
    assert math.isfinite(found.mean) and "promoted" in found.note


def test_losses_that_are_no_mean():
    with pytest.raises(ValueError, match="reduction='mean'"):
        learning_coefficient(nn.Linear(3, 1), nn.MSELoss(reduction="none"), data())
    with pytest.raises(TypeError, match="the order of arguments is"):
        learning_coefficient(nn.Linear(3, 1), data(), nn.MSELoss())


def test_a_monitor_refuses_its_task_before_the_run():
    model, (x, y) = nn.Linear(3, 1), data()
    for loss, batch, words in (
        ("l1", (x, y), "likelihood"),
        ("hinge", (x, y), "no loss"),
        ("mse", (x[:0], y[:0]), "empty"),
    ):
        with pytest.raises(ValueError, match=words):
            Orders(model, loss, batch)


def test_the_error_of_a_volume_scan_covers_what_it_leaves_out():
    found = eps_scan_volume(lambda u: u.prod(1) ** 2, 2, draws=500_000)
    assert found.m == 2 and abs(found.lam - 0.5) < 2 * found.lam_stderr < 0.1
