"""The live page lists runs and draws each as it stands."""

import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.report.live import create_app, runs_below

testclient = pytest.importorskip("starlette.testclient")


def visit(folder, **options):
    """A browser that has followed the printed address."""
    app = create_app(folder, "secret")
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


def test_runs_are_listed_and_drawn(tmp_path):
    watched(tmp_path / "a").close()
    client = visit(tmp_path)
    assert runs_below(tmp_path) == ["a"]
    assert "/run/a" in client.get("/").text
    page = client.get("/run/a")
    assert page.status_code == 200 and "Gates" in page.text
    assert 'http-equiv="refresh"' not in page.text  # finished: nothing to wait for


def test_a_run_that_is_still_written_refreshes(tmp_path):
    vitals = watched(tmp_path / "b")
    try:
        vitals.findings()  # flushes
        page = visit(tmp_path).get("/run/b").text
        assert 'http-equiv="refresh"' in page
    finally:
        vitals.close()


def test_strange_names_do_not_leave_the_folder(tmp_path):
    (tmp_path / "runs").mkdir()
    watched(tmp_path / "secret").close()
    client = visit(tmp_path / "runs")
    assert client.get("/run/../secret").status_code == 404
    assert client.get("/run/%2e%2e/secret").status_code == 404
    answer = client.get("/run/<script>")
    assert answer.status_code == 404 and "<script>" not in answer.text


def test_a_missing_folder_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder"):
        create_app(tmp_path / "nowhere")
