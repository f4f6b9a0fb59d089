"""The scalar chain equals the symmetric network: gradient, flow, invariance, both metrics."""

import math

import pytest
import torch

from netvitals import saddle
from netvitals.saddle.laws.chain import ScalarChain
from netvitals.saddle.students.network import ansatz_stack, gradients, normalized_rates, output, permuted, project
from netvitals.saddle.students.task import aligned_sample, antithetic_sample

X = torch.tensor([0.03, 0.05, 0.07, 0.09], dtype=torch.float64)


@pytest.mark.parametrize("name", ["tanh", "erf", "gelu", "silu"])
def test_analytic_gradient_matches_finite_differences(name):
    chain = ScalarChain(name, 64)
    x = torch.tensor([0.4, 0.6, 0.5, 0.7], dtype=torch.float64)
    h = 1e-6
    exact = chain.gradient(x)
    for ell in range(4):
        e = torch.zeros(4, dtype=torch.float64)
        e[ell] = h
        slope = (chain.output(x + e) - chain.output(x - e)) / (2 * h)
        assert float((exact[ell] - slope).abs().max()) <= 1e-8
    by_hand = -((chain.output(x) - chain.teacher) * exact * chain.w).sum(-1)
    assert torch.allclose(chain.velocity(x), by_hand, rtol=1e-12, atol=1e-15)


def test_printed_first_layer_gradient_is_wrong():
    """Erratum E5: eq. 5 has σ(g) where g belongs."""
    chain = ScalarChain("tanh", 64)
    right, printed = chain.gradient(X), chain.gradient(X, printed=True)
    assert torch.equal(right[1:], printed[1:])
    drive = lambda d: float((chain.teacher * d[0] * chain.w).sum())
    assert drive(printed) / drive(right) == pytest.approx(0.394294 / 0.605706, rel=2e-3)  # E[σ²] instead of h


@pytest.mark.parametrize("name", ["tanh", "gelu"])
def test_symmetric_manifold_is_invariant_and_carries_the_scalar_flow(name):
    task = saddle.teacher(name, inputs=6, seed=3)
    v, width = task.directions[0], 16
    sample = aligned_sample(v, 64)
    stack = ansatz_stack(10 * X, width, v)
    grads, loss = gradients(stack, sample.x, task.target(sample.x), task.f, sample.weight)
    scalars, residual = project(grads, v)
    assert float(residual.max()) <= 1e-13
    chain = ScalarChain(name, width, nodes=64)
    assert float(loss) == pytest.approx(float(chain.loss(10 * X)), rel=1e-12)
    rates = torch.tensor(normalized_rates(4, width), dtype=torch.float64)
    velocity = chain.velocity(10 * X)
    # W_1 and the others see the same scalar velocity in t = s/N under the normalized metric
    assert torch.allclose(-width * rates * scalars[0], velocity, rtol=1e-12)
    uniform = chain.velocity(10 * X, clock="s", metric="uniform")
    assert torch.allclose(-scalars[0], uniform, rtol=1e-12)
    assert float((uniform / velocity)[0] / (uniform / velocity)[1]) == pytest.approx(1 / width, rel=1e-12)


def test_projection_inverts_the_ansatz():
    v = torch.randn(5, dtype=torch.float64)
    scalars, residual = project(ansatz_stack(torch.stack([X, 2 * X]), 8, v), v)
    assert torch.allclose(scalars, torch.stack([X, 2 * X]), rtol=1e-12)
    assert float(residual.max()) < 1e-12


def test_renaming_hidden_units_changes_nothing():
    task = saddle.teacher("silu", 4)
    stack = saddle.he_stack(4, 7, 4, small=2, eps=0.5, seeds=[0, 1], dtype=torch.float64)
    x = torch.randn(10, 4, dtype=torch.float64)
    order = torch.randperm(7)
    for layer in (1, 2, 3):
        moved = permuted(stack, layer, order)
        assert torch.allclose(output(moved, x, task.f), output(stack, x, task.f), atol=1e-12)
        grads = gradients(stack, x, task.target(x), task.f)[0]
        again = gradients(moved, x, task.target(x), task.f)[0]
        assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(again, permuted(grads, layer, order)))
    with pytest.raises(ValueError, match="hidden layers are"):
        permuted(stack, 4, order)


def test_jacobian_is_minus_the_hessian():
    chain = ScalarChain("tanh", 16)
    x = torch.tensor([0.3, 0.4, 0.5], dtype=torch.float64)
    jac, h = chain.jacobian(x), 1e-6
    for j in range(3):
        e = torch.zeros(3, dtype=torch.float64)
        e[j] = h
        assert torch.allclose(jac[:, j], (chain.velocity(x + e) - chain.velocity(x - e)) / (2 * h), atol=1e-7)


def test_resting_loss_and_samples():
    assert ScalarChain("tanh", 64).resting_loss == pytest.approx(0.197147, abs=1e-6)
    sample = antithetic_sample(64, 5)
    assert torch.allclose(sample.x.T @ (sample.weight[:, None] * sample.x), torch.eye(5).double(), atol=1e-12)
    assert float(sample.x.mean(0).abs().max()) < 1e-13
    aligned = aligned_sample(torch.tensor([1.0, 2.0, 2.0]), 32)
    g = aligned.x @ torch.tensor([1.0, 2.0, 2.0], dtype=torch.float64) / 3
    signal = aligned.mean(torch.tanh(g)[:, None] * aligned.x)
    expected = 0.6057055 * torch.tensor([1.0, 2.0, 2.0], dtype=torch.float64) / 3
    assert torch.allclose(signal, expected, atol=1e-6)
    with pytest.raises(ValueError, match="whitening"):
        antithetic_sample(6, 5)


def test_multi_mode_baseline_loss():
    task = saddle.teacher("gelu", 8, betas=(1.0, 0.3), seed=1)
    g = torch.Generator().manual_seed(0)
    _, y = task.batch(200_000, g, dtype=torch.float64)
    mc = 0.5 * y.square()
    assert abs(task.baseline - float(mc.mean())) < 4 * float(mc.std()) / math.sqrt(200_000)
    with pytest.raises(ValueError, match="at least as many input dimensions"):
        saddle.teacher("tanh", 2, betas=(1.0, 0.5, 0.2))
    with pytest.raises(ValueError, match="positive"):
        saddle.teacher("tanh", 2, betas=(1.0, -0.5))
