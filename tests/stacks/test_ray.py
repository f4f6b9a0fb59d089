"""A sweep of Ray Tune and a training of Ray Train on a local cluster: all runs are in one folder."""

import importlib.util
import os
import sys
from pathlib import Path
from subprocess import DEVNULL

import pytest

import netvitals as nv

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture(scope="module")
def cluster(programs):
    """Skips where a module of Ray's does not import: tune needs more packages than ray itself brings."""
    code = "import ray.tune, ray.train.torch"
    if importlib.util.find_spec("ray") is None or programs.run([sys.executable, "-c", code], stderr=DEVNULL).returncode:
        pytest.skip("needs pip install 'ray[tune,train]'")


def run(programs, example, folder):
    """An example as a user starts it; workers of a local cluster see the modules that this process sees."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "RAY_AIR_NEW_OUTPUT": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "HOME": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(EXAMPLES / example), str(folder / "runs")]
    done = programs.run(command, capture_output=True, text=True, env=environment, timeout=380)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_all_trials_of_a_sweep_are_on_one_page(tmp_path, programs, cluster):
    testclient = pytest.importorskip("starlette.testclient")
    from netvitals.report.live import create_app
    from netvitals.runs import runs_below

    run(programs, "ray_sweep.py", tmp_path)
    names = runs_below(tmp_path / "runs")
    assert len(names) == 4
    for name in names:
        one = nv.open_run(tmp_path / "runs" / name)
        assert one.status == "finished" and sorted(one.frame(vital="loss")["step"]) == list(range(20))
        assert set(one.frame(vital="gates")["step"]) == {0, 5, 10, 15}
    client = testclient.TestClient(create_app(tmp_path / "runs", "secret"), base_url="http://127.0.0.1:8722")
    assert client.get("/?token=secret").status_code == 200
    assert {row["name"] for row in client.get("/api/runs").json()["runs"]} == set(names)


@pytest.mark.slow
def test_two_workers_of_ray_train_write_one_run(tmp_path, programs, cluster):
    run(programs, "ray_train.py", tmp_path)
    one = nv.open_run(tmp_path / "runs" / "trained")
    assert one.status == "finished" and os.listdir(tmp_path / "runs") == ["trained"]
    assert {"gates", "gradients", "ranks"} <= set(one.frame()["vital"])
    assert sorted(one.frame(vital="loss")["step"]) == list(range(20))


@pytest.mark.parametrize("example", ["ray_sweep.py", "ray_train.py"])
def test_an_example_has_about_twenty_lines(example):
    lines = [line for line in (EXAMPLES / example).read_text().splitlines() if line.strip()]
    assert len(lines) <= 27, f"{example} has {len(lines)} lines"
