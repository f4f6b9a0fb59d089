"""A process killed with SIGKILL in the middle of writing loses at most the last flush and leaves a readable file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

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


def test_a_silent_writer_is_called_interrupted(tmp_path, monkeypatch):
    from netvitals.runs import RunWriter, reader

    with RunWriter(tmp_path / "r"):
        assert open_run(tmp_path / "r").status == "running"
        monkeypatch.setattr(reader, "SILENT_S", -1.0)
        assert open_run(tmp_path / "r").status == "interrupted"
