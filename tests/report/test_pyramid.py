"""A picture of any number of steps: exact in what it keeps, bounded in what it holds, and no spike is lost."""

import numpy as np
import pytest

from netvitals.capture import Measurement
from netvitals.findings import Findings, open_run, table
from netvitals.report import words
from netvitals.report.live.pyramid import Pyramid
from netvitals.report.live.series import RunNumbers
from netvitals.runs import RunWriter


def _measurements(seed, pages):
    rng = np.random.default_rng(seed)
    if pages:  # every step has every series, in one order
        steps, series = np.repeat(np.arange(60), 5), np.tile(rng.permutation(5), 60)
    else:
        steps = np.sort(rng.integers(0, 60, 300))
        series = np.r_[4, rng.integers(0, 5, 299)]
    values = rng.normal(size=300)
    values[rng.random(300) < 0.05] = np.nan
    values[rng.random(300) < 0.02] = np.inf
    return steps, series, values


@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_every_cell_is_what_its_measurements_are(seed, pages):
    steps, series, values = _measurements(seed, pages)
    pyramid = Pyramid(columns=8)
    for at in range(0, 300, 35):
        pyramid.add(steps[at : at + 35], series[at : at + 35], values[at : at + 35])
    read = pyramid.read(range(5))
    column = (steps - pyramid.first) // pyramid.width
    used = [c for c in range(8) if (column == c).any()]
    assert read.steps.tolist() == [int(steps[column == c].max()) for c in used]
    for s in range(5):
        for place, c in enumerate(used):
            mine = values[(series == s) & (column == c)]
            good = mine[np.isfinite(mine)]
            if not len(mine):
                assert np.isnan(read.mean[s, place])
            elif not len(good):
                assert np.isinf(read.mean[s, place])
            else:
                assert read.mean[s, place] == pytest.approx(good.mean())
                assert read.low[s, place] == pytest.approx(good.min(), rel=1e-6)
                assert read.high[s, place] == pytest.approx(good.max(), rel=1e-6)


def test_a_spike_of_one_step_in_a_hundred_thousand_is_seen():
    pyramid = Pyramid()
    values = np.ones(100_000)
    values[54_321] = 1e4
    for at in range(0, 100_000, 777):
        part = slice(at, at + 777)
        pyramid.add(np.arange(100_000)[part], np.zeros(len(values[part]), int), values[part])
    read = pyramid.read([0])
    assert len(read.steps) <= 512 and read.high.max() == 1e4 and read.steps[-1] == 99_999


def test_it_holds_no_more_the_longer_the_run_is():
    sizes = []
    for steps in (100, 100_000):
        pyramid = Pyramid()
        for at in range(0, steps, 50):
            pyramid.add(np.repeat(np.arange(at, at + 50), 3), np.tile(np.arange(3), 50), np.zeros(150))
        sizes.append(sum(v.nbytes for v in vars(pyramid).values() if isinstance(v, np.ndarray)))
    assert sizes[0] == sizes[1]


def test_a_window_and_unknown_series():
    pyramid = Pyramid(columns=8)
    pyramid.add(np.arange(8), np.zeros(8, int), np.arange(8.0))
    assert pyramid.read([0], 2, 4).mean.tolist() == [[2.0, 3.0, 4.0]]
    assert np.isnan(pyramid.read([0, 5]).mean[1]).all()
    assert Pyramid().read([0]).mean.shape == (1, 0)


def test_a_page_counts_all_that_was_measured_and_not_what_is_left_of_it(tmp_path):
    """Curves of a long run are thinned to a few hundred columns."""
    steps, broken, lowest = 3000, {17, 1500, 1501}, 1234
    writer = RunWriter(tmp_path / "run")
    for step in range(steps):
        loss = np.nan if step in broken else -1.0 if step == lowest else 5.0 - step / steps
        rows = [Measurement(step, "loss", "model", "loss", loss)]
        if step % 2 == 0:
            rows.append(Measurement(step, "gates", "act", "density@0.01", 0.5))
        if step % 3 == 0:
            rows.append(Measurement(step, "rank", "head", "rank", 3.0))
        writer.write(rows)
        if step in (1000, 2000):
            writer.flush()
    writer.close()
    numbers = RunNumbers(tmp_path / "run")
    numbers.refresh()
    assert len(numbers.table.get("gates", "act", "density@0.01").steps) < 600
    totals = numbers.table.counted()
    measured = sum(step % 2 == 0 or step % 3 == 0 for step in range(steps))
    assert totals == (measured, len(broken), 5.0, -1.0)
    assert totals == table(open_run(tmp_path / "run")).counted()
    said = " ".join(words.sentences(numbers.table, Findings(()), kind="run", status="finished"))
    assert f"on {measured:,} measured steps" in said and "NaN or infinite on three steps" in said
    assert words.loss_caption(numbers.table).startswith("5 →") and "lowest -1" in words.loss_caption(numbers.table)
