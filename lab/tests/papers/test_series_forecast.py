"""The end of a plateau from the series of its signal alone."""

import math

import numpy as np
import pytest
import torch

from netvitals.saddle.laws.integration import integrate
from netvitals_lab.papers.saddle_escape.series_forecast import series_forecast


@pytest.mark.parametrize("r", [1, 2, 3, 5])
def test_series_forecast_follows_its_own_law(r):
    """γ̇ = c(γ² + b²)^{1−1/r} integrated exactly: the series alone must find its end."""
    b, c, end = 1e-3, 0.01, 2 * (1 - math.sqrt(0.5)) * 0.2
    path = integrate(
        lambda x, rows: c * (x.square() + b * b) ** (1 - 1 / r),
        torch.zeros(1, 1).double(),
        events=lambda x, rows: x - end,
        rtol=1e-9,
    )
    true = float(path.event_t)
    t, g = path.t[:, 0].numpy(), path.x[:, 0, 0].numpy()
    grid = np.linspace(0, 0.8 * true, 60)
    found = series_forecast(grid, np.interp(grid, t, g), resting=0.2, r=r)
    assert found.step == pytest.approx(true, rel=0.05) and found.low < true < found.high
    free = series_forecast(grid, np.interp(grid, t, g), resting=0.2)
    assert free.known and free.step == pytest.approx(true, rel=0.25)


def test_series_forecast_refuses_with_a_reason():
    t = np.arange(20.0)
    assert "too few" in series_forecast([1, 2], [0.1, 0.2], resting=1.0).reason
    assert "over" in series_forecast(t, np.linspace(0, 2, 20), resting=1.0).reason
    assert "not positive" in series_forecast(t, -np.ones(20), resting=1.0).reason
    assert "bend" in series_forecast(t, 1e-5 * (t + 1), resting=1.0, r=4).reason
    assert "not grow" in series_forecast(t, 1e-3 * np.exp(-t), resting=1.0, r=3).reason
    with pytest.raises(ValueError, match="one length"):
        series_forecast(t, t[:-1], resting=1.0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        series_forecast(t, t, resting=1.0, drop=2.0)


def test_the_height_of_the_plateau_sets_the_end():
    t = np.arange(0, 400, 10)
    signal = (0.5 - t / 1000) ** -3 / 40000
    low, high = (series_forecast(t, signal, resting=r, r=3).step for r in (0.2, 0.8))
    end = lambda resting: 1000 * (0.5 - (40000 * 2 * (1 - math.sqrt(0.5)) * resting) ** (-1 / 3))
    assert low == pytest.approx(end(0.2), rel=0.03) and high == pytest.approx(end(0.8), rel=0.03)
