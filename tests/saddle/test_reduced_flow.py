"""Reduced flow: reference values of experiment E1, batches, both clocks, events, saturation."""

import numpy as np
import pytest
import torch

from netvitals import saddle
from netvitals.saddle.laws.chain import ScalarChain
from netvitals.saddle.laws.integration import integrate

X0 = [0.03, 0.05, 0.07, 0.09]


def test_reference_trajectory():
    flow = saddle.reduced_flow(X0, "tanh", 64, t_max=100.0)
    assert flow.loss[0] == pytest.approx(0.197101, abs=1e-6)
    for t, x, loss in (
        (25.0, (0.12813, 0.13502, 0.14364, 0.15438), 0.195317),
        (30.0, (0.36902, 0.38870, 0.39334, 0.39757), 0.112005),
        (40.0, (0.62112, 0.56907, 0.55270, 0.54925), 0.001214),
        (100.0, (0.8353, 0.59438, 0.51068, 0.48695), 2.4e-5),
    ):
        state = flow.at(t)[0]
        assert state == pytest.approx(x, abs=6e-5)
        assert float(flow.chain.loss(torch.from_numpy(state))) == pytest.approx(loss, abs=1e-6)


def test_escape_times_and_clocks():
    for threshold, t, lead in ((0.3, 29.4949, 28.9765), (0.5, 30.8580, 29.6764)):
        flow = saddle.reduced_flow(X0, "tanh", 64, threshold=threshold)
        assert flow.escape_t == pytest.approx(t, abs=1e-4)
        assert flow.escape_s == pytest.approx(64 * t, abs=1e-2)
        assert flow.final[0] == pytest.approx(threshold, abs=1e-9)
        law = saddle.escape_time(X0, "tanh", 64, threshold=threshold, method="leading")
        assert float(law) == pytest.approx(lead, abs=1e-4)
    assert np.all(flow.s == 64 * flow.t)


def test_batch_equals_single_runs_and_scipy():
    from scipy.integrate import solve_ivp

    rng = np.random.default_rng(0)
    starts = np.exp(rng.uniform(np.log(0.02), np.log(0.2), (6, 4)))
    batch = saddle.reduced_flow(starts, "gelu", 16, threshold=0.4)
    assert batch.status == ("reached",) * 6
    chain = ScalarChain("gelu", 16)
    for row, t in zip(starts[:3], batch.escape_t):
        assert saddle.reduced_flow(row, "gelu", 16, threshold=0.4).escape_t == pytest.approx(t, rel=1e-8)
        hit = lambda _, x: x[0] - 0.4
        hit.terminal = True
        run = solve_ivp(
            lambda _, x: chain.velocity(torch.from_numpy(x)).numpy(),
            (0, 1e7),
            row,
            method="LSODA",
            rtol=1e-11,
            atol=1e-14,
            events=hit,
        )
        assert run.t_events[0][0] == pytest.approx(t, rel=1e-7)


@pytest.mark.slow
def test_threshold_out_of_reach_is_reported_with_where_it_stops():
    """Erratum E6: with N = 64 and β = 1 the flow never gets to X = 1."""
    flow = saddle.reduced_flow(X0, "tanh", 64, threshold=1.0)
    assert flow.status == "saturated" and np.isnan(flow.escape_t)
    assert 0.8 < flow.final[0] < 0.95
    text = str(saddle.escape_time(X0, "tanh", 64, threshold=1.0))
    assert "not reached" in text and "saturates at" in text


def test_gaps_are_almost_conserved():
    flow = saddle.reduced_flow([0.01, 0.02, 0.015, 0.012], "tanh", 64, threshold=0.05)
    drift = np.abs(flow.gaps[-1] - flow.gaps[0]).max()
    assert drift < 1e-2 * 0.05**2


def test_linear_chain_conserves_gaps_exactly():
    flow = saddle.reduced_flow([0.1, 0.2, 0.15], "identity", 4, t_max=20.0)
    assert np.abs(flow.gaps - flow.gaps[0]).max() < 1e-9


def test_bad_input():
    with pytest.raises(ValueError, match="threshold= or t_max="):
        saddle.reduced_flow(X0, "tanh", 64)
    with pytest.raises(ValueError, match="shape"):
        saddle.reduced_flow([0.1], "tanh", 64, t_max=1.0)
    with pytest.raises(ValueError, match="must be finite"):
        saddle.reduced_flow([0.1, float("nan")], "tanh", 64, t_max=1.0)
    with pytest.raises(ValueError, match="positive"):
        saddle.reduced_flow([0.1, 0.1], "tanh", 64, threshold=-1.0)


def test_integrator_events_per_row_and_orders():
    x0 = torch.tensor([[1.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    spin = lambda x, rows: torch.stack([x[:, 1], -x[:, 0]], 1)
    levels = torch.tensor([0.5, -0.25], dtype=torch.float64)
    for method, rtol, tol in (("dop853", 1e-12, 1e-10), ("rk45", 1e-9, 1e-6)):
        got = integrate(
            spin, x0, events=lambda x, rows: (levels[rows] - x[:, 0])[:, None], rtol=rtol, atol=1e-13, method=method
        )
        expected = [np.arccos(0.5), np.arccos(-0.125)]
        assert got.event_t[:, 0].tolist() == pytest.approx(expected, abs=tol)
    late = integrate(spin, x0, t_max=torch.tensor([1.0, 2.0]).double())
    assert late.t[-1].tolist() == [1.0, 2.0] and late.status == ("out of time",) * 2
    assert float(late.x[-1, 1, 0]) == pytest.approx(2 * np.cos(2.0), abs=1e-8)
