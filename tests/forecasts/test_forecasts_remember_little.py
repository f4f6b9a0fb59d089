"""What a forecaster remembers does not grow with the run."""

import numpy as np

from netvitals.forecasts.plateaus import RECENT, PlateauWatch
from netvitals.forecasts.series_history import KEPT, SeriesHistory


def test_tracks_keep_the_last_looks_whole_and_the_past_thinned_out():
    tracks = SeriesHistory(["a", "b"])
    for look in range(3000):
        tracks.add(look, 0.1 * look, [1.0, 0.001 * look])
    lists = (tracks.steps, tracks.taus, tracks.values)
    assert {len(one) for one in lists} == {len(tracks)} and len(tracks) <= KEPT
    assert tracks.steps[0] == 0 and tracks.steps[-KEPT // 4 :] == list(range(3000 - KEPT // 4, 3000))
    assert np.all(np.diff(tracks.steps) > 0)
    assert abs(tracks.naive(3009, 300.9)["per step"][1] - (2.999 + 0.01)) < 1e-6


def test_losses_that_no_look_takes_are_dropped():
    plateaus = PlateauWatch()
    for start in range(0, 5000, 100):
        plateaus.losses(range(start, start + 100), [1.0] * 100)
    assert len(plateaus._recent) == RECENT and plateaus._recent[-1][0] == 4999
