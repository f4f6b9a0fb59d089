"""Signal energy off the manifold: the identity, its remainders, rank one, nondegeneracy, bounds."""

import numpy as np
import pytest
import torch

from netvitals import saddle
from netvitals.saddle.measure.signal import bracket, comparison, exit_time, nondegeneracy, stack_signal
from netvitals.saddle.students.network import gradients
from netvitals.saddle.students.task import aligned_sample
from netvitals.saddle.students.trajectories import flow

TASK = saddle.teacher("tanh", 8)
SAMPLE = aligned_sample(TASK.directions[0], 48)


def he(eps, seeds=(0,), r=3, depth=4):
    return saddle.he_stack(depth, 32, 8, small=r, eps=eps, seeds=list(seeds), dtype=torch.float64)


def test_teacher_term_tends_to_beta_h_t_quadratically():
    """T15: measured 1.2e-2, 2.1e-3, 2.2e-4, 2.4e-5 for one draw; the size is that, the order is M²."""
    gaps = []
    for eps in (0.1, 0.03, 0.01):
        s = stack_signal(he(eps), TASK, SAMPLE, 3)
        gaps.append(abs(float(s.teacher_term / (s.beta * s.h * s.energy)) - 1))
    assert gaps[2] < 5e-5 and gaps[0] < 5e-3
    assert np.log(gaps[1] / gaps[2]) / np.log(3) == pytest.approx(2, abs=0.15)


def test_gamma_dot_is_the_time_derivative_of_gamma():
    stack = he(0.2, seeds=(0, 1))
    s = stack_signal(stack, TASK, SAMPLE, 3)
    grads, _ = gradients(stack, SAMPLE.x, TASK.target(SAMPLE.x), TASK.f, SAMPLE.weight)
    h = 1e-6
    ahead = lambda k: [w - k * h * g for w, g in zip(stack, grads)]
    moved = [stack_signal(ahead(k), TASK, SAMPLE, 3).gamma for k in (1, -1)]
    assert torch.allclose((moved[0] - moved[1]) / (2 * h), s.gamma_dot, rtol=1e-6)


def test_gradients_of_gamma_are_rank_one_up_to_second_order():
    a, b = (stack_signal(he(e), TASK, SAMPLE, 3) for e in (0.03, 0.01))
    assert float(b.rank_one.max()) < 1e-3
    order = torch.log(a.rank_one / b.rank_one) / np.log(3)
    assert torch.allclose(order, torch.full_like(order, 2.0), atol=0.1)


def test_gamma_is_the_linear_path_without_the_printed_h():
    """Erratum E10: γ ≈ α^{L−1} W_L⋯W_1 v_1, no factor h."""
    s = stack_signal(he(0.003), TASK, SAMPLE, 3)
    assert float(s.gamma / s.linear_gain) == pytest.approx(1, abs=1e-3)


def test_output_norm_carries_the_part_across_the_teacher():
    """Erratum E17: ‖f‖/|γ| is ‖W_L⋯W_1‖/|W_L⋯W_1v_1|, not 1."""
    stack = he(0.003)
    s = stack_signal(stack, TASK, SAMPLE, 3)
    path = stack[3][0] @ stack[2][0] @ stack[1][0] @ stack[0][0]
    expected = float(path.norm()) / abs(float(path @ TASK.directions[0]))
    assert float(s.output_norm / s.gamma.abs()) == pytest.approx(expected, rel=1e-2)
    assert expected > 2


def test_self_interaction_and_drive_along_a_trajectory():
    """T16, T19: S/(γT) bounded, γ̇ ≥ ½βhT while M is small, T/γ^{2−2/r} bounded below."""
    stack = he(0.02, seeds=(0, 3))
    run = flow(stack, TASK, SAMPLE, thresholds=(0.15,), keep=True)
    steps = range(0, run.paths.t.shape[0], max(1, run.paths.t.shape[0] // 12))
    seen = [stack_signal(run.weights(i), TASK, SAMPLE, 3) for i in steps]
    plateau = [(s, c) for s in seen for c in range(2) if float(s.scale[c]) <= 0.4 and abs(float(s.gamma[c])) > 1e-9]
    assert len(plateau) > 8
    # erratum E18: a start with γ < 0 is an ordinary event; near its sign change the ratios have no meaning
    assert all(float(s.drive_ratio[c]) > 0.5 for s, c in plateau)
    floor = min(float(s.am_gm[c]) for s, c in plateau)
    assert floor > 1
    assert all(abs(float(s.self_ratio[c])) < 20 for s, c in plateau if float(s.gamma[c]) > 1e-5)


def test_layers_outside_the_bottleneck_hardly_move():
    """T18: drift/m0² bounded."""
    stack = saddle.he_stack(5, 32, 8, small=3, eps=0.02, seeds=[0], dtype=torch.float64)
    run = flow(stack, TASK, SAMPLE, thresholds=(0.19,), keep=True)
    for i in range(run.paths.t.shape[0]):
        now = run.weights(i)
        m0 = max(float(torch.linalg.matrix_norm(now[k], 2)) for k in range(3))
        drift = max(float((now[k] - stack[k]).norm()) for k in (3, 4))
        if m0 <= 0.4:
            assert drift <= 1.0 * m0**2


def test_nondegeneracy_over_seeds():
    found = nondegeneracy(saddle.he_stack(4, 32, 8, small=3, eps=0.1, seeds=range(600)), TASK.directions[0])
    density, error = found.density_at_zero()
    assert abs(density - 0.399) < 4 * error
    assert 0.4 < found.positive < 0.6
    assert found.probability(0.1) < 2 * found.probability(0.2) < 0.5


def test_comparison_solutions_and_bracket():
    for r in (1, 2, 3, 5):
        t = exit_time(0.1, 2.0, r, 0.5)
        assert float(comparison(0.1, 2.0, r, t)) == pytest.approx(0.5)
    assert exit_time(0.5, 1.0, 3, 0.1) == 0.0
    b = bracket(0.03, 1e-6, growth=1.0, feed=2.0, r=3, level=0.3)
    assert b.lower == pytest.approx(1 / 0.03 - 1 / 0.3) and b.upper == pytest.approx(1.5 * 1e-6 ** (-1 / 3))
    assert np.isinf(comparison(0.1, 1.0, 3, 11.0))


def test_bad_r():
    with pytest.raises(ValueError, match="small layers"):
        stack_signal(he(0.1), TASK, SAMPLE, 5)
