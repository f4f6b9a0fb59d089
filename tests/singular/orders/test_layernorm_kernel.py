"""LayerNorm's kernel on real models, and the finite-t constants against simulation."""

import numpy as np
import pytest
import torch
from torch import nn

from netvitals.singular.checkpoint.layernorm import ln_finite_t, ln_kernel, ln_kernel_test, ln_reset_rate
from netvitals_lab import models

f64 = {"dtype": torch.float64}


def test_covariance_of_layernorm_has_exactly_this_kernel():
    torch.manual_seed(0)
    norm = nn.LayerNorm(12).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    out = norm(torch.randn(4000, 12, **f64)).detach()
    cov = torch.cov(out.T)
    values, vectors = torch.linalg.eigh(cov)
    v = ln_kernel(norm.weight)[:, 0]
    assert float((cov @ v).norm()) < 1e-12 * float(values[-1])
    assert float((vectors[:, 0] @ v).abs()) == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("name", ["gpt-micro,norm=layer,depth=2,width=32,heads=2", "vit-mini,depth=2"])
def test_layernorm_models_pass(name):
    model = models.build(name, seed=0)
    batch = torch.randint(0, 256, (8, 32)) if "gpt" in name else torch.randn(16, 1, 8, 8)
    with torch.no_grad():
        for m in model.modules():
            if isinstance(m, nn.LayerNorm):
                m.weight.add_(0.3 * torch.randn_like(m.weight))
    found = ln_kernel_test(model, batch)
    assert len(found) >= 4
    for t in found:
        assert t.passes and t.overlap == pytest.approx(1, abs=1e-3), str(t)


def test_rmsnorm_models_fail():
    found = ln_kernel_test(
        models.build("gpt-micro,norm=rms,depth=2,width=32,heads=2", seed=0), torch.randint(0, 256, (8, 32))
    )
    assert found and not any(t.passes for t in found)
    assert max(t.overlap for t in found) < 0.9, [str(t) for t in found]


def test_zero_gains_are_the_kernel():
    norm = nn.LayerNorm(6)
    with torch.no_grad():
        norm.weight[[1, 4]] = 0
    assert torch.equal(ln_kernel(norm.weight), torch.eye(6)[:, [1, 4]])
    (found,) = ln_kernel_test(nn.Sequential(nn.Linear(6, 6), norm), torch.randn(100, 6))
    assert found.passes and found.overlap == pytest.approx(1, abs=1e-6)


def test_few_rows_are_said():
    (found,) = ln_kernel_test(nn.Sequential(nn.LayerNorm(20)), torch.randn(10, 20))
    assert found.passes and "only 10 rows" in found.note


@pytest.mark.parametrize(
    ("d", "k2", "k4", "printed"),
    [(8, 0.1922, 1.2004, 1.4613), (16, 0.0767, 1.1313, 1.1647), (64, 0.01638, 1.0291, 1.0333)],
)
def test_finite_t_constants(d, k2, k4, printed):
    """The reference values are a simulation, whose own error is about 3e-3 of κ₄."""
    found = ln_finite_t(d)
    assert (found.kappa2, found.kappa4, found.kappa4_printed) == pytest.approx((k2, k4, printed), rel=3e-3)


def test_finite_t_constants_are_exact():
    from scipy.integrate import quad
    from scipy.stats import beta

    d, n = 8, 7
    exact = [
        quad(lambda b, f=f: f(b, d - n * b) * beta.pdf(b, 0.5, (n - 1) / 2), 0, 1, limit=500)[0]
        for f in (lambda b, r: n * b / r, lambda b, r: n**2 / (n - 2) * (1 / r - 5 * b / r**2 + 4 * b**2 / r**3))
    ]
    found = ln_finite_t(d)
    assert [found.kappa2, found.kappa4] == pytest.approx(exact, rel=1e-9)


def test_finite_t_against_simulation():
    """E[z_h²] at t = 0.1, d = 8: 0.2041; the printed form says 0.2068."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(800_000, 8, generator=generator, **f64)
    x[:, -1] *= 0.1
    centred = x - x.mean(1, keepdim=True)
    z = centred[:, -1] / centred.square().mean(1).sqrt()
    measured, error = float(z.square().mean()), float(z.square().std()) / len(z) ** 0.5
    law = ln_finite_t(8)
    text, printed = (float(law.fisher(0.1, printed=p)) / 4 / 0.01 for p in (False, True))
    assert measured == pytest.approx(0.2041, abs=3 * error + 5e-5)
    assert text == pytest.approx(measured, abs=4 * error + 1e-4)  # the next term of the series is 1e-4 here
    assert printed - measured > 5 * error


def test_slope_has_three_regimes():
    law = ln_finite_t(1024, sigma=1e-5)
    t1, t2 = law.crossovers
    assert t2 == pytest.approx(1024**-0.5, rel=0.02)
    assert law.slope(np.array([t1 / 30, np.sqrt(t1 * t2), 0.9])) == pytest.approx([0, 2, 4], abs=0.02)


def test_reset_rates():
    assert [ln_reset_rate((1,) * 4, (1, 2, 3), layer) for layer in (1, 2, 3, 4)] == [0, 0, 0, 0]
    assert [ln_reset_rate((1, 2, 1, 3), (), layer) for layer in (1, 2, 3, 4)] == [12, 8, 6, 0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ln_kernel(torch.ones(1)), "two finite"),
        (lambda: ln_finite_t(2), "must be at least 3"),
        (lambda: ln_finite_t(8, -1.0), "standard deviation"),
        (lambda: ln_reset_rate((1,), (), 2), "must lie between 1 and"),
        (lambda: ln_kernel_test(nn.Linear(2, 2), torch.ones(2, 2)), "no LayerNorm"),
        (lambda: ln_kernel_test(nn.LayerNorm(2), torch.ones(2, 2), only=["x"]), "no norm 'x'"),
        (lambda: ln_kernel_test(nn.Sequential(nn.LayerNorm(3)), torch.full((4, 3), torch.nan)), "NaN or infinit"),
    ],
)
def test_wrong_input_gets_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_looking_changes_nothing():
    model = models.build("gpt-micro,norm=layer,depth=1,width=16,heads=2", seed=0).train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = torch.get_rng_state()
    ln_kernel_test(model, torch.randint(0, 256, (2, 8), generator=torch.Generator().manual_seed(0)))
    assert model.training and torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks for m in model.modules())
