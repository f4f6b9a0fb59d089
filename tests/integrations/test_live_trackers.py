"""What is measured goes into the tracker that the user has open, while the model trains."""

import random
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals.integrations import trackers


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def train(log, steps=5, every=2, said=True, run=None, dead=False):
    model = net()
    if dead:
        with torch.no_grad():
            model[0].bias.fill_(-100.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with nv.watch(model, optimizer, every=every, log=log, run=run) as watching:
        for _ in range(steps):
            loss = F.cross_entropy(model(torch.randn(5, 6)), torch.randint(0, 3, (5,)))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            if said:
                watching.step(loss)
    return model, watching, losses


class WandbRun:
    """As documented: rows wait with commit=False; ``step`` counts committed rows."""

    def __init__(self):
        self.rows, self.pending, self.metrics, self.step, self.finished = [], {}, {}, 0, False
        self.summary = {}

    def define_metric(self, name, step_metric=None):
        self.metrics[name] = step_metric

    def log(self, data, step=None, commit=None):
        assert not self.finished
        self.pending.update(data)
        if commit is not False:
            self.rows.append(self.pending)
            self.summary.update(self.pending)
            self.pending, self.step = {}, self.step + 1

    def finish(self):
        if self.pending:
            self.rows.append(self.pending)
        self.finished = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.finish()


class Client:
    def __init__(self):
        self.metrics, self.tags = [], {}

    def log_metric(self, run_id, key, value, timestamp=None, step=None):
        assert run_id == "r1"
        self.metrics.append((key, value, step))

    def set_tag(self, run_id, key, value):
        self.tags[key] = value


class Mlflow:
    def __init__(self, active=True):
        self.metrics, self.tags, self.active, self.started = [], {}, active, []

    def active_run(self):
        return object() if self.active else None

    def log_metrics(self, metrics, step=None):
        if not self.active:
            self.started.append("by log_metrics")
        self.metrics.append((step, metrics))

    def set_tag(self, key, value):
        self.tags[key] = value


class Trackio:
    def __init__(self):
        self.rows = []

    def log(self, metrics, step=None):
        self.rows.append((step, metrics))


@pytest.mark.parametrize("said", [True, False])
def test_a_function_gets_each_measured_step_with_its_loss(said):
    got = []
    _, watching, losses = train(lambda step, numbers: got.append((step, numbers)), said=said)
    rows = [(step, numbers) for step, numbers in got if "netvitals/gates/density@0.01" in numbers]
    assert [step for step, _ in rows] == [0, 2, 4]
    by_step = {(r.step, r.metric): r.value for r in watching.measurements if r.site == "model" and r.vital == "gates"}
    for step, numbers in rows:
        assert numbers["netvitals/gates/density@0.01"] == by_step[step, "density@0.01"]
        assert numbers.get("netvitals/loss") == (losses[step] if said else None)


def test_wandb_rows_have_our_step_and_leave_the_run_open():
    run = WandbRun()
    train(run)
    assert not run.finished and run.metrics == {"netvitals/step": None, "netvitals/*": "netvitals/step"}
    run.finish()  # the user's affair
    assert [row["netvitals/step"] for row in run.rows if "netvitals/loss" in row] == [0, 2, 4]


def test_wandb_keeps_the_rows_of_the_user():
    run = WandbRun()
    watched = types.SimpleNamespace(__name__="wandb", run=run)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nv.watch(model, optimizer, every=2, log=watched) as watching:
        for i in range(5):
            loss = F.cross_entropy(model(torch.randn(5, 6)), torch.randint(0, 3, (5,)))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watching.step(loss)
            run.log({"mine": i})
    assert [row["mine"] for row in run.rows] == [0, 1, 2, 3, 4] and run.step == 5
    assert [row["netvitals/step"] for row in run.rows if "netvitals/loss" in row] == [0, 2, 4]


def test_mlflow_and_its_client_and_trackio():
    flow, client, trackio = Mlflow(), Client(), Trackio()
    for log in (flow, (client, "r1"), trackio):
        train(log, dead=True)
    assert [step for step, numbers in flow.metrics if "netvitals/loss" in numbers] == [0, 2, 4]
    assert [step for key, _, step in client.metrics if key == "netvitals/loss"] == [0, 2, 4]
    assert [step for step, row in trackio.rows if "netvitals/loss" in row] == [0, 2, 4]
    assert any("dead" in text.lower() for text in flow.tags.values()) and flow.tags == client.tags


def test_mlflow_without_a_run_is_said_and_none_is_begun():
    flow = Mlflow(active=False)
    with pytest.warns(RuntimeWarning, match=r"call mlflow\.start_run"):
        train(flow)
    assert flow.started == [] and flow.metrics == []


def test_findings_come_once():
    got = []
    train(lambda step, numbers: got.append(numbers.get("netvitals/finding", "")), steps=20, every=1, dead=True)
    lines = [line for text in got for line in text.splitlines()]
    assert len([line for line in lines if "never fire" in line or "dead" in line.lower()]) >= 1
    assert len(lines) == len(set(lines))


def test_a_real_summary_writer(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        _, _, losses = train(writer, dead=True)
        writer.add_scalar("still open", 1.0, 0)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    kept = events.Scalars("netvitals/loss")
    assert [e.step for e in kept] == [0, 2, 4]
    assert [e.value for e in kept] == pytest.approx([losses[s] for s in (0, 2, 4)], rel=1e-6)
    assert (
        any("netvitals/finding" in tag for tag in events.Tags()["tensors"]) and "still open" in events.Tags()["scalars"]
    )


def test_a_tracker_that_fails_or_draws_does_not_disturb():
    def draws(step, numbers):
        torch.rand(3), random.random()
        raise OSError("no network")

    bare = train(None)[0]
    with pytest.warns(RuntimeWarning, match="nothing is sent any more"):
        watched = train(draws, steps=5, every=1)[0]
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), watched.parameters()))


@pytest.mark.parametrize("wrong", [3, Client(), "wandb"])
def test_what_is_no_tracker_gets_a_sentence(wrong):
    from torch.optim import optimizer

    before = len(optimizer._global_optimizer_post_hooks)
    with pytest.raises(TypeError, match=r"log= must be|client, run_id"):
        nv.watch(net(), log=wrong)
    assert len(optimizer._global_optimizer_post_hooks) == before


def test_sending_a_finished_run_leaves_an_open_run_open(tmp_path, monkeypatch):
    train(None, run=tmp_path / "run")
    mine, made = WandbRun(), []

    def init(reinit=None, **options):
        assert reinit == "create_new"
        made.append(WandbRun())
        return made[-1]

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(run=mine, init=init))
    assert trackers.send(tmp_path / "run", "wandb") > 0
    assert not mine.finished and made[0].finished and mine.rows == []
    assert [row["netvitals/step"] for row in made[0].rows] == [0, 1, 2, 3, 4]


def test_sending_during_a_run_is_said(tmp_path):
    pytest.importorskip("tensorboard")
    with (
        nv.watch(net(), every=1, run=tmp_path / "run"),
        pytest.warns(RuntimeWarning, match="still being written"),
    ):
        trackers.send(tmp_path / "run", "tensorboard", log_dir=str(tmp_path / "board"))
