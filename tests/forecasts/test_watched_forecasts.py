"""Forecasts of a watched run: on by default, stored when made, scored, told as findings and on the page."""

import contextlib
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.cli import main
from netvitals.findings import table
from netvitals.forecasts import forecast_log, skill
from netvitals.report.forecast_panel import forecast_panel


def factorised(seed=0, scale=0.05):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    for layer in net:
        nn.init.normal_(layer.weight, std=scale / 8**0.5)
    x = torch.eye(8)
    return net, x, x[:, :1] @ x[:1].flip(1)


def trained(run=None, steps=300, lr=0.02, probe=True, stop=None, **options):
    net, x, y = factorised()
    loss_fn = lambda out, target: (out - target).square().sum()
    opt = torch.optim.SGD(net.parameters(), lr=lr)
    given = {"vitals": ["default", "plateau"], "probe": (x, y, loss_fn)} if probe else {}
    with nv.watch(net, opt, run=run, every=2, total_steps=steps, **given, **options) as seen:
        for _ in range(steps if stop is None else stop):
            loss = loss_fn(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen.step(loss)
    return seen


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A run of a factorised matrix with its plateau, whatever the skill on its kind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(skill, "LEAST", -math.inf)
        seen = trained(tmp_path_factory.mktemp("runs") / "whole", steps=300)
    return nv.open_run(seen.path), seen


def test_by_default_no_plateau_is_forecast():
    seen = trained(probe=False, steps=300)
    assert not [f for f in seen.forecasts if f.quantity.startswith("plateau")]


def test_the_command_line_says_first_whether_the_forecasts_were_worth_anything(stored, capsys):
    main_run("forecasts", str(stored[0].path))
    out = capsys.readouterr().out
    assert out.startswith("Divergence: nothing was called, and the run did not diverge. Plateaus: worth it.")
    assert "plateau/drop@0.5 by saddle" in out
    main_run("forecasts", str(stored[0].path), "--quantity", "plateau/drop", "--json")
    found = json.loads(capsys.readouterr().out)
    assert {m["quantity"] for m in found["methods"]} == {"plateau/drop@0.5"} and "worth it" in found["worth"]
    assert all(row["quantity"] == "plateau/drop@0.5" for row in found["scored"]) and "skill" in found["methods"][0]


def main_run(*arguments):
    with contextlib.suppress(SystemExit):
        main(list(arguments))


def test_the_page_has_a_panel_and_the_export_its_forecasts(stored, tmp_path):
    shown = forecast_panel(table(stored[0]))
    assert shown is not None and "Plateaus: worth it" in shown["methods"][0]
    from netvitals.runs import export

    document = json.loads(export(stored[0], "json", tmp_path / "out.json").read_text())
    assert len(document["forecasts"]) == len(stored[0].forecasts()) > 0


def test_forecasts_off_leaves_none(tmp_path):
    trained(tmp_path / "off", steps=60, forecasts=False)
    assert nv.open_run(tmp_path / "off").forecasts() == []


def test_a_plateau_is_forecast_stored_scored_and_told(tmp_path, stored, every_kind):
    run, seen = stored
    losses = {r.step: r.value for r in seen.measurements if (r.vital, r.metric) == ("plateau", "loss")}
    truth = min(t for t, v in losses.items() if v <= 0.5 * losses[0])
    book = forecast_log(run)
    events = [s for s in book.scores if s.forecast.quantity == "plateau/drop@0.5"]
    assert len(events) >= 3
    half = min(events, key=lambda s: abs(s.forecast.made_at - truth / 2))
    assert half.error <= 0.15 * truth and half.covered80, (half.forecast, truth)

    trained(tmp_path / "cut", steps=300, stop=int(0.7 * truth))
    cut = nv.open_run(tmp_path / "cut")
    told = [f for f in cut.findings() if f.rule == "plateau forecast"]
    assert told and "have fallen by half near step" in told[0].what and "80 % interval" in told[0].what
    band = forecast_panel(table(cut))["ahead"]
    assert band["text"] == "fallen by half" and band["from"] < band["at"] < band["to"]


def test_the_plateau_vital_sign_works_by_its_name_alone():
    net, x, y = factorised()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with nv.watch(net, opt, every=1, vitals=["plateau"]) as seen:
        for _ in range(4):
            loss = (net(x) - y).square().sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen.step(loss)
    assert {r.metric for r in seen.measurements if r.vital == "plateau"} == {"speed"}
    assert "without probe=" in seen.skipped["plateau"]


def test_a_network_without_a_chain_is_followed_and_its_reason_is_kept():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            return x + self.b(torch.tanh(self.a(x)))

    torch.manual_seed(0)
    net = Residual()
    x = torch.randn(32, 8)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    probe = (x, torch.zeros(32, 8), nn.functional.mse_loss)
    with nv.watch(net, opt, every=1, vitals=["plateau"], probe=probe) as seen:
        for _ in range(5):
            loss = net(x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen.step(loss)
    assert len([r for r in seen.measurements if (r.vital, r.metric) == ("plateau", "loss")]) == 5
    assert "no forecast at step" in seen.skipped["plateau"]


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.value = nn.Linear(6, 24, bias=False), nn.Linear(6, 24, bias=False)
        self.out = nn.Linear(24, 2, bias=False)

    def forward(self, x):
        return self.out(nn.functional.silu(self.gate(x)) * self.value(x))


def gated_run(make=torch.optim.SGD, lr=0.2, steps=130, watched=True, run=None, schedule=None):
    g = torch.Generator().manual_seed(0)
    x, a = torch.randn(256, 6, generator=g), torch.randn(2, 6, 6, generator=g) / 6
    batch = x, torch.einsum("bi,oij,bj->bo", x, a, x)
    torch.manual_seed(1)
    net = Gated()
    for p in net.parameters():
        nn.init.uniform_(p, -0.04, 0.04)
    opt = make(net.parameters(), lr=lr)
    scheduler = None if schedule is None else torch.optim.lr_scheduler.LambdaLR(opt, schedule)
    losses, vital = [], nv.vitals.PlateauForecast()
    watch = nv.watch(net, opt, run=run, every=5, vitals=[vital], probe=(*batch, nn.functional.mse_loss))
    with watch if watched else contextlib.nullcontext() as seen:
        for _ in range(steps):
            loss = nn.functional.mse_loss(net(x), batch[1])
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(float(loss.detach()))
            if watched:
                seen.step(loss)
            if scheduler is not None:
                scheduler.step()
    rest = float(batch[1].square().mean())
    left = next((i for i, v in enumerate(losses) if v < 0.95 * rest), None)
    return seen, vital, left, [p.detach().clone() for p in net.parameters()]


@pytest.mark.parametrize(("make", "lr"), [(torch.optim.SGD, 0.2), (torch.optim.Adam, 4e-4)])
def test_a_gated_block_is_rehearsed_on_a_few_looks_and_training_is_the_same(make, lr, tmp_path, every_kind):
    seen, vital, left, weights = gated_run(make, lr, run=tmp_path / "r")
    made = vital._lookaheads.made
    assert [f.at for f in made] == [0, 20, 60] and left > 90 and vital._examples == 256
    assert made[0].known == (make is torch.optim.SGD) and ("Adam divides" in made[0].reason) != made[0].known
    assert all(f.r == 3 and f.low < left < f.high for f in made[1:]), (made, left)
    on = [f for f in vital.forecasts if 20 <= f.at < left - 10]
    assert {f.method for f in on} == {"look-ahead"} and all(abs(f.step - left) < 0.15 * left for f in on)
    assert np.ptp([f.step for f in on if f.at < 60]) < 1e-6 * left  # carried on between look-aheads
    later = [f for f in vital.forecasts if f.at > left and f.known and f.rest == vital.observations[0].resting]
    assert later and all(f.method == "growth" and f.r == 3 for f in later)  # the slope's law has the order counted
    stored = [f for f in seen.forecasts if f.known and f.quantity == "plateau/leaves"]
    assert stored and stored[0].conditions["law"] == "look-ahead" and stored[-1].interval80[0] < left
    state = torch.get_rng_state()
    _, _, again, same = gated_run(make, lr, watched=False)
    assert again == left and all(torch.equal(a, b) for a, b in zip(weights, same))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_schedule_moves_the_date_that_was_looked_ahead():
    """Half the learning rate from step 10 on: twice the wait from there, foreseen at the first look."""
    plain, slow = gated_run(steps=1)[1].latest, gated_run(steps=1, schedule=lambda t: 1.0 if t < 10 else 0.5)[1].latest
    assert slow.step - 10 == pytest.approx(2 * (plain.step - 10), rel=1e-3)


def test_what_cannot_be_rehearsed_says_why_in_the_forecast():
    class Normed(Gated):
        def forward(self, x):
            return super().forward(nn.functional.layer_norm(x, (6,)))

    net, x = Normed(), torch.randn(32, 6)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    probe = (x, torch.zeros(32, 2), nn.functional.mse_loss)
    with nv.watch(net, opt, every=1, vitals=["plateau"], probe=probe) as seen:
        for _ in range(3):
            loss = net(x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen.step(loss)
    refused = [f for f in seen.forecasts if f.quantity.startswith("plateau")]
    assert refused and all(not f.known for f in refused)
    assert any("layer_norm removes the scale" in f.refused for f in refused)
    assert len(refused) == len({f.refused for f in refused})  # a reason is told once


def test_forecasts_of_an_abandoned_branch_do_not_count(tmp_path, every_kind):
    trained(tmp_path / "r", steps=120)
    before = nv.open_run(tmp_path / "r").forecasts()
    net, x, y = factorised()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with nv.watch(net, opt, run=tmp_path / "r", every=2, resume=40) as seen:
        loss = (net(x) - y).square().sum()
        loss.backward()
        opt.step()
        seen.step(loss)
    after = nv.open_run(tmp_path / "r").forecasts()
    assert {f["made_at"] for f in after} == {f["made_at"] for f in before if f["made_at"] < 40}


def test_a_failing_forecaster_is_said_once_and_training_goes_on(monkeypatch, recwarn):
    from netvitals.forecasts.forecaster import Forecaster

    def broken(self, columns):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(Forecaster, "observe", broken)
    seen = trained(probe=False, steps=30)
    said = [str(w.message) for w in recwarn if "making forecasts failed" in str(w.message)]
    assert len(said) == 1 and "planted" in said[0] and len(seen.measurements) > 30


@pytest.mark.filterwarnings("error")
def test_where_warnings_are_errors_a_plateau_that_never_ends_does_not_switch_forecasting_off(caplog):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.15)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 400)  # no rate is left to leave the plateau
    x = torch.randn(64, 4)
    y = x[:, :1] * x[:, 1:2]
    with nv.watch(model, optimizer, every=5) as watching:
        for _ in range(400):
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            watching.step(loss)
    assert "making forecasts failed" not in caplog.text
