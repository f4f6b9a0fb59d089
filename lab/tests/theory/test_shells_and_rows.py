"""Shells of the escape integral, the invariant off the ray, forces of a stage, moments of rows."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from netvitals.saddle.laws.chain import ScalarChain
from netvitals_lab.theory.saddle.blocks import BlockChain
from netvitals_lab.theory.saddle.perturbation import expansion
from netvitals_lab.theory.saddle.rows import row_moments
from netvitals_lab.theory.saddle.shells import exact_integral, integrand, shell_estimate, shell_sum
from netvitals_lab.theory.saddle.stages import printed_stage_integral, stage_forces, stage_integral


def test_the_integral_is_the_closed_form_of_two_and_of_equal_scales():
    a, b = 1e-3, 0.1
    d = math.sqrt(b * b - a * a)  # ∫ dY / √(Y(Y + d²)) = 2 asinh(√Y/d)
    assert exact_integral([a, b]) == pytest.approx(2 * (math.asinh(1 / d) - math.asinh(a / d)), rel=1e-9)
    assert exact_integral([a] * 4) == pytest.approx(a**-2 - 1, rel=1e-9) == shell_sum([a] * 4)
    assert exact_integral([a] * 3, end=0.5) == pytest.approx(2 * (1 / a - 2), rel=1e-9)


def test_shells_join_the_integrand_in_their_middle_and_miss_it_by_a_root_at_an_edge():
    s = [1e-6, 1e-4, 1e-2, 1.0]
    for a, b in pairwise(s):
        assert shell_estimate(a * b, s) == pytest.approx(float(integrand(a * b, s)), rel=0.011)
    assert float(integrand(s[1] ** 2, s)) / shell_estimate(s[1] ** 2, s) == pytest.approx(2**-0.5, rel=1e-3)
    assert shell_sum([1e-2, 2.0]) == pytest.approx(2 * (1 - 1e-2) / 2)  # scales above the end divide
    with pytest.raises(ValueError, match="positive and rising"):
        integrand(1.0, [0.2, 0.1])
    with pytest.raises(ValueError, match="below the first shell"):
        shell_estimate(1e-9, [0.1, 0.2])


@pytest.mark.parametrize("name", ["tanh", "gelu"])
def test_the_invariant_stands_still_off_the_ray_and_the_printed_one_does_not(name):
    chain, told = ScalarChain(name, 64), expansion(name, 4, 64)
    x = 0.01 * torch.tensor([1.5, 1.2, 0.8, 1.0], dtype=torch.float64)

    def drift(form, at):
        leaf = at.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(form(leaf), leaf)
        return float(slope @ chain.velocity(at))

    bare = drift(lambda z: z[0] ** 2 - z[-1] ** 2, x)
    assert abs(drift(told.invariant, x) / bare) < 0.03
    assert abs(drift(lambda z: told.invariant(z, printed=True), x) / bare) > 0.1
    ray = torch.full((4,), 0.01, dtype=torch.float64)
    assert float(told.invariant(ray)) == pytest.approx(float(told.invariant(ray, printed=True)), rel=1e-12)


def test_forces_of_a_stage_follow_their_powers_and_fitted_blocks_move_faster():
    chain = BlockChain("tanh", (1.0, 0.3), 3, 8, nodes=24)
    found = {rho: stage_forces(chain, 1, rho) for rho in (0.1, 0.05)}
    for rho, f in found.items():
        assert f.forcing == pytest.approx(f.forcing_law, rel=1e-3) and f.drag == pytest.approx(f.drag_law, rel=1e-6)
        assert f.rho == pytest.approx(rho, rel=1e-3)
    assert found[0.1].forcing / found[0.05].forcing == pytest.approx(4) and "drag" in str(found[0.1])
    assert found[0.1].fastest == pytest.approx(found[0.05].fastest, rel=0.01) and found[0.05].fastest > 10 * f.forcing
    with pytest.raises(ValueError, match=r"one of 1\.\.1, got 2"):
        stage_forces(chain, 2, 0.1)


def test_the_printed_stage_ode_has_the_law_of_depth_three_only():
    assert printed_stage_integral(3, 2.0) == pytest.approx(stage_integral(3, 2.0), rel=1e-10)
    assert printed_stage_integral(2, 2.0) == pytest.approx(math.log(3))
    assert printed_stage_integral(4, 3.0) / stage_integral(4, 3.0) > 1.2


def test_row_moments_are_those_of_the_measurements_block_by_block():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(2, 6, 3))
    v = np.array([0.0, 3.0, 4.0])
    found = row_moments(torch.tensor(w), torch.tensor(v), blocks=2, orders=3)
    u = (w @ (v / 5)).reshape(2, 2, 3)
    x = (u - u.mean(2, keepdims=True)) / u.std(2, keepdims=True)
    assert np.allclose(found.mean, u.mean(2)) and np.allclose(found.spread, u.std(2))
    assert np.allclose(found.hermite[..., 3], (x**3 - 3 * x).mean(2) / 6) and np.allclose(found.hermite[..., 1:3], 0)
    assert np.allclose(found.mean_share, u.mean(2) ** 2 / (u**2).mean(2))
    assert "2 blocks, 2 networks" in str(found)
    flat = row_moments(torch.ones(4, 2), torch.tensor([1.0, 0.0]))
    assert float(flat.spread) == 0 and bool(flat.hermite[0, 0, 2:].isnan().all())
    with pytest.raises(ValueError, match="6 units do not split evenly into 4 blocks"):
        row_moments(torch.tensor(w), torch.tensor(v), blocks=4)
