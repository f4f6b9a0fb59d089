"""Full networks: SGD on fresh batches and the adaptive flow, many copies at once."""

import numpy as np
import pytest
import torch

from netvitals import saddle
from netvitals.saddle.students.network import ansatz_stack, normalized_rates, project
from netvitals.saddle.students.task import antithetic_sample
from netvitals.saddle.students.trajectories import flow


@pytest.mark.slow
def test_flow_exponents_at_he_initialisation():
    """T19 by adaptive flow (L = 4, N = 32, d = 8): local slopes −1.004…−1.009 (r = 3), −2.000 (r = 4)."""
    task, sample = saddle.teacher("tanh", 8), antithetic_sample(256, 8)
    eps, seeds = [0.01, 0.003], [0, 1]
    for r, tolerance in ((3, 0.02), (4, 0.005)):
        stack = saddle.he_stack(4, 32, 8, small=r, eps=eps, seeds=seeds, dtype=torch.float64)
        run = flow(stack, task, sample, thresholds=(0.05, 0.02))
        assert set(run.status) == {"reached"}
        t = run.escape[:, 1].reshape(2, 2)
        slopes = np.log(t[0] / t[1]) / np.log(eps[0] / eps[1])
        assert slopes == pytest.approx([-(r - 2)] * 2, abs=tolerance)
        assert (run.escape[:, 0] < run.escape[:, 1]).all()


def test_flow_copies_do_not_see_each_other():
    task, sample = saddle.teacher("gelu", 4), antithetic_sample(64, 4)
    stack = saddle.he_stack(3, 8, 4, small=2, eps=0.2, seeds=[0, 1], dtype=torch.float64)
    both = flow(stack, task, sample, thresholds=(0.1,), rtol=1e-7).escape
    single = lambda i: flow([w[i : i + 1] for w in stack], task, sample, thresholds=(0.1,), rtol=1e-7)
    alone = [single(i).escape[0] for i in (0, 1)]
    assert both == pytest.approx(np.array(alone), rel=1e-5)


def test_symmetric_network_follows_the_scalar_chain():
    """E1 in small: plain GD on the full network against the reduced ODE."""
    task = saddle.teacher("tanh", 4)
    x0, width, lr, steps = torch.tensor([0.3, 0.3, 0.3]), 8, 0.2, 500
    stack = [w.float() for w in ansatz_stack(x0, width, task.directions[0])]
    run = saddle.descend(
        stack, task, lr=lr, steps=steps, batch=1024, rates=normalized_rates(3, width), thresholds=(), snapshots=6
    )
    ode = saddle.reduced_flow(x0.double(), "tanh", width, t_max=1.0)
    worst = 0.0
    for step, weights in run.snapshots[1:]:
        state = ode.at(lr * step / width)[0]
        worst = max(worst, float(np.abs(project(weights, task.directions[0])[0][0].numpy() - state).max()))
    assert len(run.snapshots) == 6 and worst < 0.02, worst


def test_sgd_escapes_and_counts_steps():
    task = saddle.teacher("tanh", 8)
    stack = saddle.he_stack(4, 24, 8, small=3, eps=[0.2, 0.1], seeds=[0, 1])
    run = saddle.descend(stack, task, lr=0.05, steps=4000, batch=128, thresholds=(0.1, 0.05), smooth=5)
    assert np.isfinite(run.escape).all()
    assert (run.escape[:, 0] <= run.escape[:, 1]).all()
    assert run.escape[2:, 1].mean() > 1.4 * run.escape[:2, 1].mean()  # half the scale, about twice the plateau
    again = saddle.descend(stack, task, lr=0.05, steps=4000, batch=128, thresholds=(0.1, 0.05), smooth=5)
    assert np.array_equal(again.escape, run.escape)
    short = saddle.descend(stack, task, lr=0.05, steps=3, batch=32)
    assert np.isnan(short.escape).all() and "0 of 4" in str(short)


def test_bad_input():
    with pytest.raises(ValueError, match="must lie in"):
        saddle.he_stack(3, 4, 2, small=[3], eps=0.1, seeds=[0])
    with pytest.raises(ValueError, match="must be positive"):
        saddle.he_stack(3, 4, 2, small=1, eps=0.0, seeds=[0])
    with pytest.raises(ValueError, match="must all be positive"):
        saddle.descend([torch.ones(1, 2, 2)], saddle.teacher("tanh", 2), lr=0.0, steps=1)
