"""The same trials on a real Ray, with a worker killed in the middle. Skipped where Ray is not installed."""

import importlib.util
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from netvitals_lab import Claim, Expected, Resources, Results, Study, decide, run
from netvitals_lab.engine.workers import make_engine

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
CLAIM = Claim(
    "toy/C1",
    "toy",
    "rows are there",
    Expected(direction="are there"),
    lambda rows: decide(len(rows) == 4, float(sum(r["value"] for r in rows))),
)


@pytest.fixture(scope="module")
def toys():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent / "studies_fixture"))
        import toy_trials

        yield toy_trials


def make(toys, folder, act="compute"):
    p = toys.Toy(seeds=4, act=act, folder=str(folder))
    return Study(
        "toy", "toy", "a toy", dict.fromkeys(("smoke", "small", "paper"), p), toys.trials, toys.trial, toys.summary
    )


@pytest.fixture(scope="module")
def engine(toys):
    """Two CPUs, no dashboard, and gone after the last test."""
    engine = make_engine("ray", jobs=2)
    yield engine
    engine.close()
    import ray

    assert not ray.is_initialized()


@pytest.mark.slow
def test_ray_runs_the_trials_survives_a_killed_worker_and_counts_nothing_twice(toys, tmp_path, engine):
    plain = run(make(toys, ""), "smoke", "inline", results=tmp_path / "inline.sqlite", claims=[CLAIM], progress=False)
    same = run(make(toys, ""), "smoke", engine, results=tmp_path / "ray.sqlite", claims=[CLAIM], progress=False)
    drop = lambda rows: [{k: v for k, v in r.items() if k != "threads"} for r in rows]
    assert drop(same.rows) == drop(plain.rows)
    assert {r["threads"] for r in same.rows} == {1}
    assert same.verdicts["toy/C1"].measured == plain.verdicts["toy/C1"].measured

    victim = []

    def kill():
        while not (tmp_path / "pid").exists():
            time.sleep(0.05)
        victim.append(int((tmp_path / "pid").read_text()))
        os.kill(victim[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    result = run(
        make(toys, tmp_path, "wait-once"),
        "smoke",
        engine,
        results=tmp_path / "ray.sqlite",
        claims=[CLAIM],
        progress=False,
    )
    killer.join(5)
    assert victim and victim[0] != os.getpid()
    assert (result.failed, len(result.rows), result.verdicts["toy/C1"].status) == (0, 4, "holds")
    assert sorted((tmp_path / "log").read_text().split()) == ["0", "1", "1", "2", "3"]
    with Results(tmp_path / "ray.sqlite", write=False) as results:
        ((_, config, attempt, error),) = results.failures("toy")
        assert len([t for t in results.trials().values() if t.config["act"] == "wait-once"]) == 4
    assert (config["seed"], attempt) == (1, 1)
    assert "the Ray worker was lost" in error


def test_an_address_without_a_cluster_gets_a_sentence(monkeypatch):
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # also where the engine of the other tests runs
    with pytest.raises(ConnectionError, match=r"no Ray cluster could be reached at 127.0.0.1:1 "):
        make_engine("ray", address="127.0.0.1:1")


@pytest.mark.slow
def test_the_medium_scale_runs_with_the_cpus_and_memory_it_declares(toys, engine, tmp_path):
    p = toys.Toy(seeds=4, act="compute", folder=str(tmp_path))
    study = Study(
        "toy",
        "toy",
        "a toy",
        dict.fromkeys(("smoke", "small", "medium", "paper"), p),
        toys.trials,
        toys.trial,
        toys.summary,
        resources=Resources(cpus=2, memory_gb=0.1, core_hours=0.01),
    )
    seen = run(study, "medium", engine, results=tmp_path / "s.sqlite", claims=[CLAIM], progress=False)
    assert (seen.trials, seen.failed, seen.verdicts["toy/C1"].status) == (4, 0, "holds")
    assert seen.verdicts["toy/C1"].scale == "medium"
