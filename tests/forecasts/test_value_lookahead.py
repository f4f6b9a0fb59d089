"""Values that a copy trains ahead to: on batches that do not change they are what comes, and nothing is disturbed."""

import copy
import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals.findings.forecasts import _open
from netvitals.forecasts import Forecast, Lookahead, LookaheadRun, look_ahead
from netvitals.forecasts.series_history import SeriesHistory
from netvitals.forecasts.value_lookahead import ENOUGH, WIDTHS, ValueLookahead, looks_around, reader
from netvitals.vitals import Gates

DENSITY = "gates/density@0.01"


def data(dtype=torch.float64):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(64, 4, generator=g, dtype=dtype)
    return x, x[:, :1] ** 2


def trained(look_ahead, probe=True, steps=60, batch=None, rng=0):
    """A run that closes and opens gates, and what was forecast on it."""
    torch.manual_seed(rng)
    net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.0), nn.Linear(32, 1)).double()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    x, y = data()
    pages, losses = [], []
    watched = nv.watch(
        net,
        optimizer,
        every=2,
        vitals=["gates", "optimizer"],
        probe=(x, y, F.mse_loss) if probe else None,
        scheduler=schedule,
        total_steps=steps,
        lookahead=look_ahead,
    )
    with watched as seen:
        seen._buffer.finished.append(pages.append)
        for _ in range(steps):
            rows = slice(None) if batch is None else torch.randint(0, 64, (batch,))
            loss = F.mse_loss(net(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.step(loss)
            schedule.step()
            losses.append(float(loss.detach()))
        live = seen._forecasts
    density = {page.step: dict(zip(page.names(), page.values.tolist()))["gates", "1", "density@0.01"] for page in pages}
    made = [f for f in live.forecaster.made if f.quantity == DENSITY]
    return losses, density, made, live, torch.get_rng_state()


def plan(**more):
    x, y = data()
    return Lookahead(**{"batches": [(x, y)] * ENOUGH, "loss_fn": "mse", "budget": -math.inf, **more})


def test_on_a_batch_that_does_not_change_a_rehearsal_is_what_comes():
    _, density, made, live, _ = trained(plan(horizon=1.0))
    told = [f for f in made if f.method == "look-ahead"]
    assert {f.horizon for f in told} == {"10 %", "25 %", "50 %", "100 %", "end"}
    moved = 0.0
    for f in told:
        around = looks_around([f.made_at - 2, f.made_at], f.for_step)
        if max(around) > max(density):
            continue  # the run ended before
        came = sum(weight * density[look] for look, weight in around.items())
        assert f.value == pytest.approx(came, abs=2e-6), str(f)
        assert f.interval50[0] <= f.value <= f.interval50[1] and f.interval80[0] <= f.interval50[0]
        moved = max(moved, abs(f.value - density[f.made_at]))
    assert moved > 0.02  # there was something to tell
    scores = [s for s in live.forecaster.scores if s.forecast.method == "look-ahead"]
    assert scores and max(s.error for s in scores) < 2e-6
    steps = sorted({f.made_at for f in told})
    assert all(b >= 2 * a for a, b in pairwise(steps)) and live.values.spent <= 2 * 60


def test_without_a_fixed_batch_the_change_of_the_copy_is_told():
    measurements = {11: {("gates", "a", "d"): 0.40}, 12: {("gates", "a", "d"): 0.44}, 14: {("gates", "a", "d"): 0.50}}
    track = SeriesHistory(["a", "b"], 0.0, 1.0)
    for step, value in zip(range(0, 11, 2), (0.3, 0.32, 0.3, 0.34, 0.35, 0.6)):
        track.add(step, step, [value, value])
    found = LookaheadRun(step=11, losses=((0.0,) * 3,), measurements=measurements)
    values = ValueLookahead(1.0)
    told = values.forecasts(10, {"25 %": 13}, found, {("gates", "d"): track}, {"25 %": 13.0}, fixed=False)
    assert [f.site for f in told] == ["a"]  # the copy was not read at b
    assert told[0].value == pytest.approx(0.6 + 0.47 - 0.40) and values.spent == 3
    fixed = values.forecasts(10, {"25 %": 13}, found, {("gates", "d"): track}, {"25 %": 13.0}, fixed=True)
    assert fixed[0].value == pytest.approx(0.47)
    unit = math.sqrt((1 + 4 * 3 / 10) * ((0.04 + 0.01 + 0.25) / 3) ** 2 + (0.5 * 0.07) ** 2)
    wide = told[0].interval80[1] - told[0].value
    narrow = told[0].interval50[1] - told[0].value
    assert wide == pytest.approx(WIDTHS["25 %"][1] * unit, rel=1e-4)
    assert narrow == pytest.approx(WIDTHS["25 %"][0] * unit, rel=1e-4)


def test_training_is_not_disturbed():
    plain = trained(False, probe=False, batch=16)
    told = trained(plan(horizon=0.5), probe=False, batch=16)
    assert plain[0] == told[0] and torch.equal(plain[-1], told[-1])
    assert not any(f.method == "look-ahead" for f in plain[2]) and any(f.method == "look-ahead" for f in told[2])


def test_of_few_batches_nothing_is_told_and_the_reason_is_kept():
    torch.manual_seed(0)
    net, (x, y) = nn.Linear(4, 1).double(), data()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    given = [(x, y)] * (ENOUGH - 1)
    with nv.watch(net, optimizer, lookahead=plan(horizon=1.0, batches=given)) as seen:
        seen._observer.notes["look-ahead"] = "a copy could not be made"
        for _ in range(3):
            loss = F.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.step(loss)
        assert (
            f"take {ENOUGH} batches to look ahead on, and there are {ENOUGH - 1}" in seen.skipped["look-ahead values"]
        )
        given.append((x, y))
        seen._forecasts.run_lookahead(2)
    assert "look-ahead values" not in seen.skipped
    assert seen.skipped["look-ahead"] == "a copy could not be made"  # why danger is not lookahead is not forgotten


def test_a_reading_is_of_the_copy_before_the_step_of_its_day():
    x, y = data()
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
    read = reader("mse", [(x, y)], lambda: [Gates()])
    found = look_ahead(net, "mse", [(x, y)], optimizer=sgd, step=7, steps=1, read=read, days=(7, 9, 12))
    assert sorted(found.measurements) == [7, 9, 12] and found.cost == 5
    twin, optimizer = copy.deepcopy((net, sgd))
    for step in range(7, 13):
        if step in found.measurements:
            assert found.measurements[step]["gates", "1", "density@0.01"] == pytest.approx(
                reader("mse", [(x, y)], lambda: [Gates()])(twin)["gates", "1", "density@0.01"], abs=1e-12
            )
        optimizer.zero_grad()
        F.mse_loss(twin(x), y).backward()
        optimizer.step()


def test_days_beyond_what_is_paid_for_are_not_lookahead():
    values = ValueLookahead(0.25)
    days = {"10 %": 44.0, "25 %": 50.0, "50 %": 60.0, "end": 51.0}
    assert values.due(40, days) == {"10 %": 44, "25 %": 50, "end": 51}
    assert values.due(79, days) == {} and values.due(80, {"10 %": 88.0}) == {"10 %": 88}


def test_what_a_copy_told_stands_until_its_day():
    from types import SimpleNamespace

    def record(method, made, day, value):
        return Forecast(
            quantity=DENSITY, site="1", made_at=made, for_step=day, value=value, method=method, horizon="end"
        ).to_dict()

    def shown(steps, *records):
        table = SimpleNamespace(steps=steps, loss=None, meta={"forecasts": list(records)})
        return [f.value for f in _open(SimpleNamespace(table=table), "gates/")]

    told, past = record("look-ahead", 10, 40, 0.2), record("relaxation", 20, 60, 0.5)
    assert shown([0, 25], told, past) == [0.2] and shown([0, 45], told, past) == [0.5]
    assert shown([0, 25], past, told) == [0.2]
