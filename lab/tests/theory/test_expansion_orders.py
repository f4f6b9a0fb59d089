"""Expansion around the zero saddle: orders and coefficients, measured on the exact chain."""

import pytest
import torch

from netvitals import saddle
from netvitals.saddle.laws.chain import ScalarChain
from netvitals_lab.theory.saddle.perturbation import expansion, gap_velocity, measured_order

X = torch.tensor([1.0, 1.1, 0.9, 1.05], dtype=torch.float64)


@pytest.mark.parametrize(("name", "slack"), [("tanh", 0.06), ("gelu", 0.26)])
def test_drift_of_gaps_has_the_predicted_order(name, slack):
    chain, exp = ScalarChain(name, 64), expansion(name, 4, 64)
    for i, j in ((1, 2), (1, 4), (2, 3), (2, 4), (3, 4)):
        order = float(measured_order(lambda x, i=i, j=j: gap_velocity(chain, x, i, j), X)[0])
        assert order == pytest.approx(exp.pair_order(i, j), abs=slack), (i, j)


@pytest.mark.parametrize("name", ["tanh", "gelu", "silu", "erf"])
def test_leading_drive_remainder_and_gap_coefficients(name):
    chain, exp = ScalarChain(name, 64), expansion(name, 4, 64)
    x = 1e-3 * X
    v = chain.velocity(x)
    assert torch.allclose(v, exp.leading(x), rtol=5e-3)
    assert torch.allclose(v - exp.leading(x), exp.remainder(x), rtol=2e-2)
    # the drive is the same in every layer: claim C12
    drive = chain.velocity(torch.full((4,), 1e-3, dtype=torch.float64)) / 1e-9
    assert float(drive.max() / drive.min()) == pytest.approx(1, abs=6e-3)
    assert float(drive[1]) == pytest.approx(saddle.drive(name, 4, 64).k, rel=3e-3)
    for j in (2, 3, 4):
        ratio = float(gap_velocity(chain, 0.01 * X, 1, j) / exp.gap_drift(0.01 * X))
        assert ratio == pytest.approx(1, abs=0.04)


def test_remainder_order_and_self_interaction():
    assert expansion("tanh", 4, 64).remainder_order == 5
    assert expansion("tanh", 2, 64).remainder_order == 3  # 2L − 1 < L + q − 2 never; equal at L = 2
    assert expansion("gelu", 4, 64).remainder_order == 4
    assert expansion("relu", 4, 64).remainder_order == 7  # only the self-interaction is left
    chain, exp = ScalarChain("tanh", 1), expansion("tanh", 4, 1)
    order = measured_order(lambda x: chain.velocity(x) - exp.leading(x), X)
    assert order.tolist() == pytest.approx([5.0] * 4, abs=0.1)


def test_output_splits_into_linear_part_and_insertions():
    chain, exp = ScalarChain("tanh", 64), expansion("tanh", 4, 64)
    g = torch.linspace(-2, 2, 9, dtype=torch.float64)
    x = 0.03 * X
    rest = chain.output(x, g) - exp.linear_output(x, g)
    insertion = sum(exp.insertion(x, g, k) for k in (1, 2, 3))
    assert float((rest - insertion).abs().max()) < 0.01 * float(rest.abs().max())
    orders = [float(measured_order(lambda x, k=k: exp.insertion(x, g[:1], k), X)[0]) for k in (1, 2, 3)]
    assert orders == pytest.approx([6, 8, 10], abs=1e-9)
    with pytest.raises(ValueError, match=r"activations 1\.\.3"):
        exp.insertion(x, g, 4)
    with pytest.raises(ValueError, match="1 ≤ i < j"):
        exp.pair_order(2, 2)
