"""Several teacher modes: stage law, exact block reduction, Perron test, truncations, homotopy."""

import math

import numpy as np
import pytest
import torch

from netvitals import saddle
from netvitals.activations import gauss_hermite
from netvitals.saddle.laws.chain import ScalarChain
from netvitals.saddle.students.network import gradients
from netvitals_lab.theory.saddle.blocks import BlockChain
from netvitals_lab.theory.saddle.closures import duhamel, off_block, quasi_steady, rotation_coefficients
from netvitals_lab.theory.saddle.homotopy import attribute, hitting_time
from netvitals_lab.theory.saddle.perron_modes import (
    block_growth,
    graded_example,
    jacobian_blocks,
    perron,
    stage_matrix,
    truncations,
)
from netvitals_lab.theory.saddle.stages import forecast_rank, stage_integral, stage_law, transfer

BETAS = (1.0, 0.3, 0.08)


@pytest.mark.parametrize(("depth", "ratio"), [(2, 1.0008), (3, 1.0003), (4, 1.00015), (5, 1.00009)])
def test_stage_law_times_a_chain_that_starts_without_its_first_layer(depth, ratio):
    law = stage_law("tanh", depth, 1, [1.0], [0.01], theta=3.0)
    flow = saddle.reduced_flow([0.0] + [0.01] * (depth - 1), "tanh", 1, threshold=0.03)
    measured = flow.escape_t / law.times[0]
    assert measured == pytest.approx(1, abs=1e-3)
    # the reference values belong to the transfer factor at ρ = 0
    assert measured / transfer("tanh", depth, 0.01) == pytest.approx(ratio, abs=1e-4)


def test_stage_integrals_and_transfer():
    for depth, exact in ((2, math.asinh), (3, math.atan), (4, lambda t: t / math.sqrt(1 + t * t))):
        for theta in (0.3, 1.0, 7.0):
            assert stage_integral(depth, theta) == pytest.approx(exact(theta), rel=1e-12)
    assert transfer("gelu", 4, 0.0) == pytest.approx(0.125)
    with pytest.raises(ValueError, match="at least 2"):
        stage_integral(1, 1.0)


def test_a_weaker_mode_with_fewer_small_layers_escapes_first():
    law = stage_law("tanh", 4, 64, betas=[1.0, 0.3], rhos=[0.01, 0.1])
    assert law.order == (1, 0)
    assert law.ratio(0, 1) == pytest.approx(0.3 * 10**2, rel=0.02)
    assert forecast_rank([1.0, 0.3], eps=0.01, necks=[4, 3]) == (1, 0)
    assert forecast_rank([1.0, 0.3], eps=0.01, necks=[3, 3]) == (0, 1)
    strong, weak = ([0.01] * 4, [0.01] * 3 + [1.0])
    t = [float(saddle.escape_time(x, "tanh", 64, beta=b, threshold=0.1)) for x, b in ((strong, 1.0), (weak, 0.3))]
    assert t[1] < t[0]
    with pytest.raises(ValueError, match="one rho per mode"):
        stage_law("tanh", 4, 64, [1.0], [0.1, 0.2])


@pytest.fixture(scope="module")
def blocks():
    return BlockChain("tanh", BETAS, depth=4, block=20, nodes=10)


def test_block_reduction_equals_the_full_network(blocks):
    theta = blocks.aligned(0.05) + 0.01 * torch.randn(30, dtype=torch.float64)
    directions = torch.linalg.qr(torch.randn(16, 16, dtype=torch.float64))[0][:3]
    z, w = gauss_hermite(10, dim=3)
    x = z @ directions
    stack = blocks.embed(theta, directions)
    task = saddle.Teacher(blocks.f, directions, blocks.betas)
    grads, loss = gradients(stack, x, task.target(x), task.f, w)
    assert float(loss) == pytest.approx(float(blocks.loss(theta)), abs=1e-12)
    in_t = [-20 * grads[0]] + [-g for g in grads[1:]]  # rates (1, 1/N_B, …) and t = s/N_B
    assert float((blocks.reduce(in_t, directions)[0] - blocks.velocity(theta)).abs().max()) <= 1e-12
    assert torch.allclose(blocks.reduce(stack, directions)[0], theta, atol=1e-13)


def test_block_aligned_ansatz_is_not_invariant(blocks):
    """Erratum E12: off-block velocities equal on-block ones."""
    theta = blocks.aligned(0.05)
    assert float(blocks.loss(theta)) == pytest.approx(0.21777, abs=1e-5)  # 10 nodes
    found = off_block(blocks, theta)
    assert found.exact[1] == pytest.approx([3.378e-4, 1.010e-4, 2.70e-5], rel=3e-3)
    assert found.exact[0, 0] == pytest.approx(3.367e-4, rel=2e-3)
    assert found.ratio == pytest.approx(1, abs=0.01)
    assert found.exact == pytest.approx(found.leading, rel=0.02)
    assert np.abs(found.printed_coupling).max() < 1e-3 * np.abs(found.exact_coupling).max()
    with pytest.raises(ValueError, match="block-aligned state"):
        off_block(blocks, theta + 0.1)
    assert float(BlockChain("tanh", BETAS, 4, 20, nodes=32).loss(theta)) == pytest.approx(0.216130, abs=1e-5)


def test_jacobian_and_closures(blocks):
    theta = blocks.aligned(0.3) + 0.05 * torch.randn(30, dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(blocks.loss, theta)
    assert float((blocks.jacobian(theta) + hessian).abs().max()) <= 1e-10
    v = lambda k: blocks.velocity(theta + 2e-3 * k * torch.eye(30, dtype=torch.float64))
    differences = ((8 * (v(1) - v(-1)) - (v(2) - v(-2))) / (12 * 2e-3)).T
    assert float((blocks.jacobian(theta) - differences).abs().max()) <= 1e-10
    assert [int(blocks.closure_mask(c).sum()) for c in ("full", "truncated", "decoupled")] == [30, 24, 12]
    assert {k: int(v.sum()) for k, v in blocks.channels().items()} == {
        "on-block": 12,
        "rotations": 6,
        "couplings 2": 6,
        "couplings 3": 6,
    }
    one = ScalarChain("tanh", 20, beta=0.3, nodes=64)
    scales = torch.tensor([[0.1, 0.2, 0.3], [0.2, 0.1, 0.2], [0.3, 0.2, 0.1], [0.1, 0.3, 0.2]], dtype=torch.float64)
    v = blocks.velocity(blocks.aligned(scales), "decoupled")
    p, q, r = blocks.split(v)
    assert torch.stack([p[1, 1], q[0][1, 1], q[1][1, 1], r[1]]).tolist() == pytest.approx(
        one.velocity(scales[:, 1]).tolist(), rel=1e-10
    )


def test_printed_closures(blocks):
    t = np.linspace(0, 3, 3001)
    filled = duhamel(t, np.full_like(t, 2.0), np.full_like(t, 6.0))[-1]
    assert filled == pytest.approx(3 * (1 - math.exp(-6)), rel=1e-5)
    steady = quasi_steady(blocks, torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64))
    assert (steady < 0).any() or float(steady.abs().max()) < 1e-12  # odd q: E[z³ σ'] is odd, so the drive vanishes
    damping, drive = rotation_coefficients(blocks, blocks.aligned(0.05))
    assert bool((damping > 0).all()) and bool((drive > 0).all())
    exact = blocks.split(blocks.velocity(blocks.aligned(0.05)))[0]
    assert float(drive.max()) < 1e-2 * float(exact.max())  # erratum E12: printed order is too small


@pytest.mark.slow
def test_homotopy_attribution(blocks):
    """T22 and the acceptance of E5 on a shorter plateau."""
    theta = blocks.aligned(0.15)
    f0, f1 = (lambda x: blocks.velocity(x, "decoupled")), (lambda x: blocks.velocity(x))
    found = attribute(f0, f1, theta, 0, 0.4, channels=blocks.channels(), rtol=1e-8)
    assert found.error < 0.05, str(found)
    assert sum(found.channels.values()) == pytest.approx(found.estimate, rel=1e-9)
    assert max(s.invariant for s in found.slices) < 1e-5
    nu, h = found.slices[0].nu, 1e-3
    ends = [hitting_time(f0, f1, theta, 0, 0.4, nu + k * h, rtol=1e-9) for k in (1, -1)]
    assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(found.slices[0].rate, rel=1e-4)
    with pytest.raises(ValueError, match="already past"):
        hitting_time(f0, f1, theta, 0, 0.1, 0.5)
    with pytest.raises(ValueError, match="does not reach"):
        hitting_time(f0, f1, theta, 0, 5.0, 0.5, t_max=10.0)


def test_perron_against_plain_eigenvalues():
    """T23: loop gain above 1 exactly when J has a positive eigenvalue, and the rate is that eigenvalue."""
    rng = np.random.default_rng(0)
    unstable = 0
    for _ in range(400):
        n, m = rng.integers(1, 6, 2)
        a, d = rng.uniform(0.1, 2, n), rng.uniform(0.1, 2, m)
        b = rng.uniform(0, 1.5, (n, m)) * (rng.random((n, m)) < 0.7)
        c = rng.uniform(0, 1.5, (m, n)) * (rng.random((m, n)) < 0.7)
        found = perron(a, b, c, d)
        values = np.linalg.eigvals(stage_matrix(a, b, c, d))
        top = values[np.argmax(values.real)]
        assert found.unstable == (top.real > 1e-12)
        unstable += found.unstable
        if found.unstable:
            assert abs(top.imag) < 1e-9  # Metzler: never a complex pair (erratum E19)
            assert found.rate == pytest.approx(top.real, abs=1e-8)
            j = stage_matrix(a, b, c, d)
            assert np.abs(j @ found.vector - found.rate * found.vector).max() < 1e-7
            assert (found.vector >= -1e-12).all()
    assert 100 < unstable < 380


def test_perron_vector_may_vanish_and_bad_input():
    found = perron([1, 1], [[1, 1], [0, 0]], [[3, 0], [3, 0]], [1, 1])
    assert found.unstable and not found.strictly_positive and "zero row" in str(found)
    with pytest.raises(ValueError, match="must be positive"):
        perron([0.0], [[1.0]], [[1.0]], [1.0])
    with pytest.raises(ValueError, match="not be negative"):
        perron([1.0], [[-1.0]], [[1.0]], [1.0])
    with pytest.raises(ValueError, match="shapes do not fit"):
        perron([1.0, 2.0], [[1.0]], [[1.0]], [1.0])


def test_jacobian_blocks(blocks):
    theta = blocks.aligned(0.3)
    j = blocks.jacobian(theta).numpy()
    parts = blocks.channels()
    x, eta = np.flatnonzero(parts["on-block"].numpy()), np.flatnonzero(parts["rotations"].numpy())
    a, b, c, d = jacobian_blocks(j, x, eta)
    assert a.shape == (12,) and b.shape == (12, 6) and c.shape == (6, 12)
    assert np.array_equal(b, j[np.ix_(x, eta)]) and np.array_equal(d, -np.diag(j)[eta])


def test_the_stage_one_jacobian_grows_without_any_loop_gain():
    """At the balanced saddle the hypotheses of Prop. 24 fail, and the on-block coordinates grow by themselves."""
    chain = BlockChain("tanh", (1.0, 0.3, 0.08), depth=4, block=20, nodes=16)
    parts = chain.channels()
    x, eta = (np.flatnonzero(parts[n].numpy()) for n in ("on-block", "rotations"))
    jacobian = chain.jacobian(chain.aligned(0.05)).numpy()
    found = block_growth(jacobian, x, eta)
    assert found.violated["A is not diagonal"] == pytest.approx(6.76e-3, rel=0.01)
    assert found.violated["B has negative entries"] == pytest.approx(3.36e-5, rel=0.02)
    assert "A is not positive" not in found.violated and math.isnan(found.loop_gain)
    assert float(-np.diag(jacobian)[x].min()) < 8.1e-5
    assert found.own == pytest.approx(0.020215, rel=1e-3) and found.rate == pytest.approx(0.020695, rel=1e-3)
    with pytest.raises(ValueError, match=r"got -3.36e-05.*growth\(\)"):
        perron(*jacobian_blocks(jacobian, x, eta))


def test_growth_agrees_with_the_loop_gain_where_prop_24_holds():
    rng = np.random.default_rng(3)
    for _ in range(50):
        a, d = rng.uniform(0.1, 2, 3), rng.uniform(0.1, 2, 2)
        b, c = rng.uniform(0, 1.5, (3, 2)), rng.uniform(0, 1.5, (2, 3))
        found, test = block_growth(stage_matrix(a, b, c, d), [0, 1, 2], [3, 4]), perron(a, b, c, d)
        assert not found.violated and found.loop_gain == test.loop_gain
        assert (found.rate > 0) == test.unstable and found.own == pytest.approx(-a.min())
        assert not test.unstable or found.rate == pytest.approx(test.rate, abs=1e-8)
    with pytest.raises(ValueError, match="square"):
        block_growth(np.zeros((2, 3)), [0], [1])


def test_truncations_increase_strictly():
    a, b, c, d = graded_example(12)
    cut = truncations(a, b, c, d)
    assert cut.strictly_increasing and cut.first == 1
    assert cut.times(0.01)[0] > cut.times(0.01)[-1]
    weak = truncations(a, 0.6 * b, c, d)  # erratum E20: small truncations may have no growing mode
    assert weak.first is not None and weak.first > 1 and math.isnan(weak.rates[0])
