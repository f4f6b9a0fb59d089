"""A process killed with SIGKILL in the middle of writing loses at most the last flush and leaves a readable file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from netvitals.runs import open_run

TRAINING = """
import sys
from netvitals.capture import Measurement
from netvitals.runs import RunWriter

writer = RunWriter(sys.argv[1], meta={"model": "doomed"}, flush_every=0.01)
step = 0
while True:
    writer.write([Measurement(step, "v", f"site{i}", "m", float(step)) for i in range(50)])
    if step % 20 == 0:
        writer.flush()
        print(step, flush=True)      # everything up to here is promised
    step += 1
"""


@pytest.mark.parametrize("promises", [3, 25])
def test_kill_nine_loses_at_most_the_last_flush(tmp_path, programs, promises):
    process = programs.Popen([sys.executable, "-c", TRAINING, str(tmp_path / "r")], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        promised = -1
        for _ in range(promises):
            promised = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().split()
        promised = max([promised, *map(int, rest)])
    finally:
        process.kill()
        process.wait()
    run = open_run(tmp_path / "r")
    frame = run.frame()
    assert set(range(promised + 1)) <= set(run.steps), f"promised {promised} steps, found {len(run.steps)}"
    # a step is there whole or not at all
    assert frame.height == 50 * len(run.steps)
    assert run.meta["model"] == "doomed"
    assert run.meta["status"] == "running"  # nobody could say goodbye


SILENT = """
import sys, time
from netvitals.runs import RunWriter

writer = RunWriter(sys.argv[1])
writer.flush()
print("there", flush=True)
time.sleep(120)
"""


def test_the_status_follows_the_process_at_once_and_no_clock(tmp_path, programs, monkeypatch):
    process = programs.Popen([sys.executable, "-c", SILENT, str(tmp_path / "r")], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline()
        now = time.time
        for jump in (0.0, 1e9, -1e9, 120.0):
            monkeypatch.setattr(time, "time", lambda jump=jump: now() + jump)
            assert open_run(tmp_path / "r").status == "running", jump
        process.send_signal(signal.SIGSTOP)  # stopped is not dead
        assert open_run(tmp_path / "r").status == "running"
        process.kill()
        process.wait()
        for jump in (0.0, 1e9, -1e9):
            monkeypatch.setattr(time, "time", lambda jump=jump: now() + jump)
            assert open_run(tmp_path / "r").status == "interrupted", jump
    finally:
        process.kill()
        process.wait()


def test_a_run_of_another_machine_is_judged_by_its_last_sign_of_life(tmp_path, monkeypatch):
    from netvitals.runs import RunWriter, database

    monkeypatch.setattr(database, "this_machine", lambda: "another")
    writer = RunWriter(tmp_path / "r")
    writer.flush()
    (tmp_path / "copy").mkdir()
    for name in ("run.sqlite", "run.sqlite-wal"):
        shutil.copy(tmp_path / "r" / name, tmp_path / "copy" / name)
    writer.close()
    now = time.time
    for jump, status in ((0.0, "running"), (3600.0, "interrupted"), (-3600.0, "interrupted")):
        monkeypatch.setattr(time, "time", lambda jump=jump: now() + jump)
        assert open_run(tmp_path / "copy").status == status
    assert open_run(tmp_path / "r").status == "finished"


def test_many_who_ask_for_the_holder_do_not_keep_a_writer_away(tmp_path):
    from netvitals.runs import FileLock

    file, stop = tmp_path / "run.sqlite", threading.Event()
    FileLock(file)._forked()  # a lock file whose holder is gone

    def ask():
        while not stop.is_set():
            FileLock.holder(file)
            time.sleep(0.0005)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            FileLock(file)._forked()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
