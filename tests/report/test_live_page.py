"""The live page lists runs and draws each as it stands."""

import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.report.live import create_app
from netvitals.report.live.run_index import Shelf
from netvitals.runs import open_run, runs_below

testclient = pytest.importorskip("starlette.testclient")


def visit(folder, **options):
    """A browser that has followed the printed address."""
    app = create_app(folder, "secret", judge=False)
    client = testclient.TestClient(app, base_url="http://127.0.0.1:8722", **options)
    assert client.get("/?token=secret").status_code == 200
    return client


def watched(folder):
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    vitals = nv.watch(model, run=folder, every=1)
    for _ in range(2):
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        vitals.step(loss)
    return vitals


def test_runs_are_listed_and_told(tmp_path):
    watched(tmp_path / "a").close()
    client = visit(tmp_path)
    assert runs_below(tmp_path) == ["a"]
    (row,) = client.get("/api/runs").json()["runs"]
    assert (row["name"], row["status"], row["last"]) == ("a", "finished", 1)
    assert len(row["loss"]["means"]) == 2 and row["loss"]["means"][1] == pytest.approx(row["loss"]["last"], rel=1e-4)
    assert client.get("/run/a").status_code == 200
    head = client.get("/api/head", params={"run": "a"}).json()
    assert head["status"] == "finished" and "Gates" in [v["title"] for v in head["vitals"]]
    told = client.get("/api/metric", params={"run": "a", "vital": "gates", "metric": "density@0.1"}).json()
    assert told["sites"] == ["1", "model"] and told["steps"] == [0, 1]


def test_the_list_shows_the_stored_verdict_and_says_what_is_not_judged_yet(tmp_path):
    watched(tmp_path / "closed").close()
    going = watched(tmp_path / "running")
    try:
        going.flush()
        shelf = Shelf([tmp_path])
        closed, running = sorted(shelf.rows(), key=lambda row: row["name"])
        assert closed["finding"] == open_run(tmp_path / "closed").meta["verdict"] and closed["finding"]["what"]
        assert running["finding"] is None
        shelf.judge(), shelf.judge()
        assert shelf.judged == 1, "the verdict of a closed run is not computed again"
        (running,) = (row for row in shelf.rows() if row["name"] == "running")
        assert running["finding"]["what"]
    finally:
        going.close()
    again = nv.watch(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)), run=tmp_path / "closed", resume=True)
    try:
        assert open_run(tmp_path / "closed").meta["verdict"] is None, "it is of the segment before"
    finally:
        again.close()


def test_a_run_that_is_still_written_is_told_as_it_grows(tmp_path):
    vitals = watched(tmp_path / "b")
    try:
        vitals.flush()
        client = visit(tmp_path)
        first = client.get("/api/head", params={"run": "b"}).json()
        assert first["status"] == "running" and first["steps"] == [0, 1]
        vitals.step(3.0)
        vitals.flush()
        later = client.get("/api/head", params={"run": "b"}).json()
        assert later["steps"] == [0, 2] and later["version"] > first["version"]
    finally:
        vitals.close()


def test_strange_names_do_not_leave_the_folder(tmp_path):
    (tmp_path / "runs").mkdir()
    watched(tmp_path / "secret").close()
    client = visit(tmp_path / "runs")
    for name in ("../secret", "<script>", str(tmp_path / "secret"), "..\\secret"):
        answer = client.get("/api/head", params={"run": name})
        assert answer.status_code == 404 and "no run" in answer.json()["error"]
    assert client.get("/run/%2e%2e/secret").status_code == 404
    answer = client.get("/run/<script>")
    assert answer.status_code == 404 and "<script>" not in answer.text


def test_a_missing_folder_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder"):
        create_app(tmp_path / "nowhere")
