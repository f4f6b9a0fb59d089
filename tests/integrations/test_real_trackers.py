"""The trackers themselves, offline, where they are installed: they keep what was measured, and a run stays open."""

import glob
import json
import os
import struct
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals.integrations.trackers import send

STEPS, EVERY = 6, 2
NAME = "netvitals/gradients/grad_norm"


SIXTH = {  # how a user logs on every sixth step: the step that is given, and where the rows then are
    "no step": (lambda i: {}, [0, 1, 2, 3]),
    "a count of their own": (lambda i: {"step": i // 6}, [0, 1, 2, 3]),
    "the step of the training": (lambda i: {"step": i}, [5, 11, 17, 23]),
}


def train(log, each=lambda step, loss: None, run=None, steps=STEPS):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with torch.no_grad():
        net[0].bias.fill_(-100.0)  # every unit is dead, and somebody has to say so
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    vitals = nv.vitals.choose(["gates", "gradients", "sparsity"])
    vitals[1].every = 1
    with nv.watch(net, optimizer, every=EVERY, log=log, vitals=vitals, run=run) as watching:
        for step in range(steps):
            loss = F.cross_entropy(net(torch.randn(16, 4)), torch.randint(0, 2, (16,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watching.step(loss)
            each(step, loss.item())
    assert any("dead" in f.what or "no gradient" in f.what or "the same" in f.what for f in watching.findings())
    return {
        r.step: r.value
        for r in watching.measurements
        if (r.vital, r.site, r.metric) == ("gradients", "model", "grad_norm")
    }


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---------------------------------------------------------------- wandb


@pytest.fixture
def wandb(here, monkeypatch):
    module = pytest.importorskip("wandb")
    if not hasattr(module, "init"):
        pytest.skip("wandb is not installed; a folder of its name is")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(here))
    monkeypatch.setenv("WANDB_SILENT", "true")
    return module


def records(file):
    """The records of wandb's file: LevelDB's log format, blocks of 32 KiB after a head of seven bytes."""
    with open(file, "rb") as stream:
        data = stream.read()
    at, whole = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        if at + 7 + length > len(data):
            return  # not written to its end
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


def rows_of(folder):
    """The rows that wandb keeps of an offline run, as (step, {key: value}).

    wandb's own process writes the file, and may go on after ``finish``: the last record says that it has ended.
    """
    from wandb.proto import wandb_internal_pb2

    (file,) = glob.glob(f"{folder}/*.wandb")
    rows, ended = [], False
    while not ended:
        rows.clear()
        for data in records(file):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            ended |= record.WhichOneof("record_type") == "exit"
            if record.WhichOneof("record_type") == "history":
                items = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
                rows.append((items.get("_step", record.history.step.num), items))
        time.sleep(0.05)
    return rows


def test_wandb_rows_join_the_users_own(wandb):
    run = wandb.init(project="netvitals")
    norms = train(run, each=lambda step, loss: run.log({"mine": loss}))
    assert wandb.run is run, "the user's run was ended"
    folder = os.path.dirname(run.dir)
    run.finish()
    rows = rows_of(folder)
    ours = {int(row["netvitals/step"]): row[NAME] for _, row in rows if NAME in row}
    assert ours == pytest.approx(norms)
    assert sum("mine" in row for _, row in rows) == STEPS
    assert [step for step, row in rows if "mine" in row] == list(range(STEPS)), "the user's steps were moved"
    assert any("netvitals/finding" in row for _, row in rows)


@pytest.mark.parametrize("how", SIXTH)
def test_wandb_leaves_the_steps_of_one_who_logs_every_sixth_step(wandb, how):
    given, expected = SIXTH[how]
    run = wandb.init(project="netvitals")
    norms = train(run, each=lambda i, loss: run.log({"mine": i}, **given(i)) if i % 6 == 5 else None, steps=24)
    run.log({"after": 1.0}, **({"step": expected[-1] + 1} if given(0) else {}))
    folder = os.path.dirname(run.dir)
    run.finish()
    rows = rows_of(folder)
    assert [(step, row["mine"]) for step, row in rows if "mine" in row] == list(zip(expected, [5, 11, 17, 23]))
    assert [step for step, row in rows if "after" in row] == [expected[-1] + 1]
    ours = {int(row["netvitals/step"]): row[NAME] for _, row in rows if NAME in row}
    assert len(ours) >= 3 and ours == pytest.approx({step: norms[step] for step in ours})
    told = "\n".join(row["netvitals/finding"] for _, row in rows if "netvitals/finding" in row)
    assert told


def test_wandb_itself_may_be_given_and_rows_are_not_lost_where_the_user_logs_nothing(wandb):
    run = wandb.init(project="netvitals")
    norms = train(wandb)
    folder = os.path.dirname(run.dir)
    run.finish()
    assert {int(row["netvitals/step"]): row[NAME] for _, row in rows_of(folder) if NAME in row} == pytest.approx(norms)


def test_sending_to_wandb_leaves_an_open_run_open(wandb, here):
    train(None, run=here / "run")
    mine = wandb.init(project="netvitals")
    folder = os.path.dirname(os.path.dirname(mine.dir))
    before = set(glob.glob(f"{folder}/offline-run-*"))
    assert send(here / "run", "wandb", project="netvitals") > 0
    assert wandb.run is mine
    mine.log({"after": 1.0})
    mine.finish()
    (new,) = set(glob.glob(f"{folder}/offline-run-*")) - before
    assert len([row for _, row in rows_of(new) if "gradients/grad_norm" in row]) == STEPS // EVERY


# ---------------------------------------------------------------- MLflow


@pytest.fixture
def mlflow(here, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # its databases need the full mlflow, its folders do not
    module = pytest.importorskip("mlflow")
    if not hasattr(module, "start_run"):
        pytest.skip("mlflow is not installed; a folder of its name is")
    module.set_tracking_uri(f"file:{here}/mlruns")
    yield module
    while module.active_run() is not None:
        module.end_run()


def history(mlflow, run_id, name):
    return {m.step: m.value for m in mlflow.MlflowClient().get_metric_history(run_id, name)}


def test_mlflow_keeps_steps_and_findings_and_the_run_stays_open(mlflow):
    with mlflow.start_run() as run:
        norms = train(mlflow)
        assert mlflow.active_run().info.run_id == run.info.run_id
    assert history(mlflow, run.info.run_id, NAME) == pytest.approx(norms)
    tags = mlflow.MlflowClient().get_run(run.info.run_id).data.tags
    assert any(name.startswith("netvitals.finding.") for name in tags)


def test_an_mlflow_client(mlflow):
    client = mlflow.MlflowClient()
    run = client.create_run(client.create_experiment("theirs"))
    norms = train((client, run.info.run_id))
    assert history(mlflow, run.info.run_id, NAME) == pytest.approx(norms)
    assert client.get_run(run.info.run_id).info.status == "RUNNING"


def test_sending_to_mlflow_is_a_child_of_an_open_run(mlflow, here):
    train(None, run=here / "run")
    with mlflow.start_run() as mine:
        assert send(here / "run", "mlflow") > 0
        assert mlflow.active_run().info.run_id == mine.info.run_id
    runs = mlflow.search_runs(output_format="list")
    (child,) = [r for r in runs if r.data.tags.get("mlflow.parentRunId") == mine.info.run_id]
    assert len(history(mlflow, child.info.run_id, "gradients/grad_norm")) == STEPS // EVERY


# ---------------------------------------------------------------- trackio


@pytest.fixture
def trackio(here, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(here / "trackio"))
    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
    module = pytest.importorskip("trackio")
    if not hasattr(module, "init"):
        pytest.skip("trackio is not installed; a folder of its name is")
    return module


@pytest.mark.parametrize("itself", [True, False])
def test_trackio_keeps_our_rows_with_their_step(trackio, itself):
    run = trackio.init(project=f"netvitals{itself}", name="one", embed=False)
    norms = train(trackio if itself else run)
    trackio.finish()
    from trackio.sqlite_storage import SQLiteStorage

    rows = SQLiteStorage.get_logs(f"netvitals{itself}", "one")
    assert {row["step"]: row[NAME] for row in rows if NAME in row} == pytest.approx(norms)


@pytest.mark.parametrize("how", SIXTH)
@pytest.mark.parametrize("itself", [True, False])
def test_trackio_leaves_the_steps_of_one_who_logs_every_sixth_step(trackio, itself, how):
    given, expected = SIXTH[how]
    run = trackio.init(project="sixth", name="one", embed=False)
    norms = train(
        trackio if itself else run,
        each=lambda i, loss: run.log({"mine": i}, **given(i)) if i % 6 == 5 else None,
        steps=24,
    )
    trackio.finish()
    from trackio.sqlite_storage import SQLiteStorage

    rows = SQLiteStorage.get_logs("sixth", "one")
    assert [(row["step"], row["mine"]) for row in rows if "mine" in row] == list(zip(expected, [5, 11, 17, 23]))
    assert {row["step"]: row[NAME] for row in rows if NAME in row} == pytest.approx(norms)


# ---------------------------------------------------------------- TensorBoard


def test_tensorboard_reads_back_what_was_measured(here):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(here / "tb")) as writer:
        norms = train(writer)
    events = EventAccumulator(str(here / "tb"))
    events.Reload()
    assert {e.step: e.value for e in events.Scalars(NAME)} == pytest.approx(norms, rel=1e-6)
    assert any("finding" in tag for tag in events.Tags()["tensors"])
