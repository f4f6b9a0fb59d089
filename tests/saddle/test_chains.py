"""Chains of the linear path: ratios against loops, degenerate chains, blow-up times against closed forms and flows."""

import numpy as np
import pytest
import torch

from netvitals import saddle
from netvitals.saddle.measure.chains import chains, linear_escape
from netvitals.saddle.measure.signal import signal_margins, stack_signal
from netvitals.saddle.students.network import ansatz_stack
from netvitals.saddle.students.task import aligned_sample
from netvitals.saddle.students.trajectories import flow


def test_ratios_equal_products_of_matrices_one_network_at_a_time():
    stack = saddle.he_stack(4, 6, 3, small=2, eps=0.1, seeds=[0, 1], dtype=torch.float64)
    v = torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64)
    found = chains(stack, v)
    for copy in range(2):
        w = [m[copy].numpy() for m in stack]
        norm = [np.linalg.norm(m, 2) for m in w]
        a, b = np.array([1.0, 0, 0]), np.ones(1)
        for j in range(4):
            assert float(found.forward[copy, j]) == pytest.approx(np.linalg.norm(a) / np.prod(norm[:j]), rel=1e-12)
            a = w[j] @ a
        assert float(found.signed[copy]) == pytest.approx(a[0] / np.prod(norm), rel=1e-12)
        for j in range(3, -1, -1):
            assert float(found.backward[copy, j]) == pytest.approx(
                np.linalg.norm(b) / np.prod(norm[j + 1 :]), rel=1e-12
            )
            b = w[j].T @ b
    assert found.least.tolist() == pytest.approx(torch.cat([found.forward, found.backward], 1).amin(1).tolist())
    assert "2 networks" in str(found)


def test_chains_are_whole_on_the_manifold_and_none_where_the_first_layer_does_not_see_the_teacher():
    v = torch.tensor([1.0, 0.0], dtype=torch.float64)
    on = ansatz_stack(torch.tensor([0.1, 0.2, 0.3]), 5, v)
    assert float(chains(on, v).least) == pytest.approx(1, abs=1e-12)
    across = torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert float(chains(on, across).least) == pytest.approx(0, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("r", [3, 4])
def test_blow_up_time_with_equal_gains_is_the_law_and_scales_as_a_power(r):
    n, v = 6, torch.tensor([1.0, 0.0], dtype=torch.float64)
    for eps in (1e-2, 1e-4):
        gains = [eps] * r + [0.7] * (5 - r)
        stack = ansatz_stack(torch.tensor([gains[0] / n**0.5, *gains[1:]]), n, v)
        got = float(linear_escape(stack, v, r, strength=0.5))
        assert got == pytest.approx(eps ** -(r - 2) / ((r - 2) * 0.5 * 0.7 ** (5 - r)), rel=1e-4)


def test_blow_up_time_of_unequal_gains_is_the_integral():
    """y1 = a, y2 = y3 = b: differences of squares are conserved, so t = ∫ dy / (y² + b² − a²)."""
    n, v, a, b = 4, torch.tensor([1.0, 0.0], dtype=torch.float64), 0.01, 0.03
    stack = ansatz_stack(torch.tensor([a / n**0.5, b, b], dtype=torch.float64), n, v)
    d = np.sqrt(b**2 - a**2)
    assert float(linear_escape(stack, v, 3)) == pytest.approx((np.pi / 2 - np.arctan(a / d)) / d, rel=1e-4)


def test_two_small_layers_have_no_power_law():
    stack = saddle.he_stack(3, 4, 2, small=2, eps=0.1, seeds=[0])
    with pytest.raises(ValueError, match="at least 3 small layers, got 2"):
        linear_escape(stack, torch.tensor([1.0, 0.0]), 2)


def test_detectors_fire_where_signal_and_scale_pass_their_levels():
    task = saddle.teacher("tanh", 4)
    sample = aligned_sample(task.directions[0], 12)
    stack = saddle.he_stack(4, 8, 4, small=3, eps=0.1, seeds=[1, 2], dtype=torch.float64)
    events = signal_margins(task, sample, 3, gammas=(0.05,), scales=(0.4, 0.6))
    run = flow(stack, task, sample, thresholds=(), events=events, keep=True, rtol=1e-8)
    assert np.isfinite(run.escape).all() and (run.escape[:, 1] < run.escape[:, 2]).all()
    for copy in range(2):
        s = run.paths.t[:, copy].numpy()
        told = [stack_signal(run.weights(i), task, sample, 3) for i in range(len(s))]
        gamma = np.array([float(t.gamma[copy]) for t in told])
        scale = np.array([float(t.scale[copy]) for t in told])
        assert np.interp(run.escape[copy, 0], s, gamma) == pytest.approx(0.05, rel=0.05)
        assert np.interp(run.escape[copy, 2], s, scale) == pytest.approx(0.6, rel=0.02)


def test_the_blow_up_time_is_the_escape_time_of_a_tanh_network_as_eps_falls():
    task = saddle.teacher("tanh", 4)
    v, d = task.directions[0], saddle.drive("tanh", 4, 8)
    departure = []
    for eps in (0.03, 0.003):
        stack = saddle.he_stack(4, 8, 4, small=3, eps=eps, seeds=[1], dtype=torch.float64)
        run = flow(stack, task, aligned_sample(v, 12), thresholds=(task.baseline / 2,))
        departure.append(abs(run.escape[0, 0] / float(linear_escape(stack, v, 3, strength=d.h)) - 1))
    assert departure[1] < departure[0] / 5 and departure[0] < 0.1, departure  # of the order of eps
