"""One driver a store, killed workers cost no trial, and a damaged store is told."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass

import pytest

from netvitals.runs import FileLocked
from netvitals_lab import Study, run
from netvitals_lab.engine import runner
from netvitals_lab.engine.checksums import ResultsDamaged
from netvitals_lab.engine.runner import driving
from netvitals_lab.engine.store import Results, TrialRecord
from netvitals_lab.engine.workers.task import Outcome


@dataclass(frozen=True)
class Toy:
    seeds: int = 40


def trials(settings):
    return [{"seed": i} for i in range(settings.seeds)]


def trial(config):
    return [{"seed": config["seed"], "square": config["seed"] ** 2}]


def study(seeds=40):
    scales = dict.fromkeys(("smoke", "small", "paper"), Toy(seeds))
    return Study("toy", "toy", "a toy", scales, trials, trial, lambda rows: {})


class Killed:
    """An engine whose workers are killed under chosen attempts."""

    name, slots = "killed", 4

    def __init__(self, kills):
        self.kills, self.tasks, self.runs = kills, deque(), []

    @property
    def running(self):
        return len(self.tasks)

    @property
    def free(self):
        return self.slots - self.running

    def submit(self, task):
        self.tasks.append(task)

    def poll(self, timeout):
        task = self.tasks.popleft()
        self.runs.append(task.key)
        if self.kills(task.config["seed"], self.runs.count(task.key)):
            return [Outcome(task.key, [], "the worker was killed by signal 9 (SIGKILL)", 0.1, lost=True)]
        return [Outcome(task.key, trial(task.config), "", 0.1)]


@pytest.mark.parametrize("hits", [[3, 3, 3, 3, 3, 3], [1, 1, 5, 5, 9, 9], [0, 1, 2, 3, 4, 5]])
def test_six_killed_workers_cost_no_trial(tmp_path, hits):
    engine = Killed(lambda seed, attempt: attempt <= hits.count(seed))
    result = run(study(), "smoke", engine, results=tmp_path / "s.sqlite", progress=False)
    assert (result.failed, len(result.rows)) == (0, 40) and len(engine.runs) == 46
    with Results(tmp_path / "s.sqlite", write=False) as store:
        assert len(store.failures("toy")) == 6  # every loss is on record
        assert {t.attempts for t in store.trials().values()} == {1}


def test_a_trial_that_takes_every_worker_with_it_is_given_up(tmp_path):
    engine = Killed(lambda seed, attempt: seed == 7)
    result = run(study(), "smoke", engine, results=tmp_path / "s.sqlite", progress=False)
    assert (result.failed, len(result.rows)) == (1, 39)
    assert len(engine.runs) == 39 + runner.LOSSES


DRIVER = """
import sys, time
from netvitals_lab.engine.runner import driving
from netvitals_lab.engine.store import Results
with Results(sys.argv[1]) as store, driving(store):
    print("driving", flush=True)
    time.sleep(60)
"""


def test_a_second_driver_is_refused_until_the_first_is_gone(tmp_path, programs):
    path = tmp_path / "s.sqlite"
    first = programs.Popen([sys.executable, "-c", DRIVER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None and first.stdout.readline() == "driving\n"
        ran = []
        with pytest.raises(FileLocked, match=f"process {first.pid}.*Two drivers would run every trial twice"):
            run(study(2), "smoke", Killed(lambda *_: ran.append(1)), results=path, progress=False)
        assert not ran
        with Results(path, write=False) as store:  # reading is free
            assert store.trials() == {}
    finally:
        first.kill()
        first.wait()
    result = run(study(2), "smoke", Killed(lambda *_: False), results=path, progress=False)
    assert (result.failed, len(result.rows)) == (0, 2)


def test_two_drivers_in_threads_run_no_trial_twice(tmp_path):
    begun = threading.Event()
    refused, engines = [], []

    def drive():
        engine = Killed(lambda *_: begun.set() or time.sleep(0.01))
        engines.append(engine)
        try:
            run(study(20), "smoke", engine, results=tmp_path / "s.sqlite", progress=False)
        except FileLocked as error:
            refused.append(str(error))

    first = threading.Thread(target=drive)
    first.start()
    assert begun.wait(30)
    drive()
    first.join()
    assert len(refused) == 1 and len(engines[0].runs) == 20 and not engines[1].runs
    with Results(tmp_path / "s.sqlite") as store, driving(store), driving(store):
        assert store.lock is not None
    assert store.lock is None and [p.name for p in tmp_path.iterdir()] == ["s.sqlite"]


def test_no_flipped_bit_of_a_store_gives_a_wrong_row_or_a_raw_error(tmp_path):
    path = tmp_path / "s.sqlite"
    with Results(path) as store:
        for i in range(60):
            rows = [{"loss": i + k / 7, "name": f"row {k}"} for k in range(10)]
            store.record(TrialRecord(f"{i:064x}", "toy", {"seed": i}, "code", rows=rows))
    data = path.read_bytes()
    with Results(path, write=False) as store:
        truth = store.trials()
    random.seed(2)
    seen = {"equal": 0, "lost": 0, "told": 0}
    for _ in range(250):
        bit = random.randrange(8 * len(data))
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(changed))
        try:
            with Results(path, write=False) as store:
                found = store.trials()
        except (ValueError, OSError):
            seen["told"] += 1
            continue
        wrong = [k for k, t in found.items() if k in truth and t.rows != truth[k].rows]
        assert not wrong, f"bit {bit}"
        seen["equal" if found.keys() == truth.keys() else "lost"] += 1  # a lost trial is run again
    assert seen["told"] > 60, seen


def test_a_store_that_an_older_netvitals_wrote_to_is_read(tmp_path):
    path = tmp_path / "s.sqlite"
    with Results(path) as store:
        store.record(TrialRecord("k", "toy", {"seed": 1}, "code", rows=[{"a": 1}]))
    with sqlite3.connect(path) as db:
        db.execute("UPDATE trial SET rows = '[{\"a\": 2}]', finished = finished + 1")
    with Results(path, write=False) as store:
        assert store.trials()["k"].rows == [{"a": 2}]
    with sqlite3.connect(path) as db:
        db.execute("UPDATE trial SET finished = finished - 1")
    db.close()
    with (
        Results(path, write=False) as store,
        pytest.raises(ResultsDamaged, match="the trial k is not what was written"),
    ):
        store.trials()
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE seal")
    with Results(path, write=False) as store:
        assert store.trials()["k"].rows == [{"a": 2}]
