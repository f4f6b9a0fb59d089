"""A disk that is full, cannot be written or goes away: what the user sees, and what is kept."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import warnings

import pytest

from netvitals.capture import Measurement
from netvitals.cli import main
from netvitals.runs import RunWriter, open_run, recover


@pytest.fixture
def disk(tmp_path):
    """A small file system of its own; where none can be mounted the test is skipped."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    try:
        made = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def read_only(disk):
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def many(first, count=20_000):
    return [Measurement(first + i, "v", "s", "m", float(i)) for i in range(count)]


def test_a_full_disk_is_said_once_and_what_came_meanwhile_is_written_when_there_is_room(disk):
    filler = disk / "filler"
    filler.write_bytes(bytes(1_400_000))
    writer = RunWriter(disk / "r", flush_every=60)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for k in range(4):
            writer.write(many(20_000 * k))
            writer.flush()
        assert not writer.flush()
    told = [str(w.message) for w in said]
    assert len(told) == 1 and "cannot be written" in told[0] and "full" in told[0] and "training goes on" in told[0]
    kept = open_run(disk / "r").summary.measurements  # what was written before can be read while the disk is full
    assert kept % 20_000 == 0 and kept < 80_000
    filler.unlink()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert writer.flush()
    assert any("works again" in str(w.message) for w in said)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # closing folds the side file in, for which there may be no room
        writer.close()
    run = open_run(disk / "r")
    run.verify()
    assert run.summary.measurements == 80_000


def test_a_disk_that_stays_full_keeps_what_was_written_and_says_what_is_lost(disk):
    (disk / "filler").write_bytes(bytes(1_400_000))
    writer = RunWriter(disk / "r", flush_every=60)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for k in range(4):
            writer.write(many(20_000 * k))
            writer.flush()
        writer.close()
    (lost,) = [str(w.message) for w in said if "have been lost" in str(w.message)]
    run = open_run(disk / "r")
    run.verify()
    assert f"{80_000 - run.summary.measurements} measurements could not be written" in lost


def test_a_disk_that_is_full_at_the_start_is_refused_in_words(disk):
    with open(disk / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))
    with pytest.raises(OSError, match=r"full|No space"):
        RunWriter(disk / "r")
    assert not list((disk / "r").glob("*.sqlite")) if (disk / "r").exists() else True


LIMITED = """
import resource, signal, sys, warnings
import torch
from torch import nn
import netvitals as nv

warnings.simplefilter("always")
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
watch = nv.watch(model, run=sys.argv[1], every=1, vitals=["gates"], checks=False, forecasts=False)
watch.step(model(torch.ones(2, 4)).mean())
assert watch.flush()
most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, most))
for step in range(10):
    watch.step(model(torch.ones(2, 4)).mean())
    watch.flush(2.0)
print(watch.flush(2.0), flush=True)
if sys.argv[2] == "room":
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
watch.close()
print("trained", flush=True)
"""


@pytest.mark.parametrize("room", ["room", "none"])
def test_files_that_may_not_grow_do_not_end_training(tmp_path, programs, room):
    """The limit on the size of a file ends a program by a signal, unless it is looked after."""
    done = programs.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "r"), room], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and done.stdout.split() == ["False", "trained"], done.stderr
    assert done.stderr.count("cannot be written") == 1
    run = open_run(tmp_path / "r")
    run.verify()
    steps = run.frame(vital="loss")["step"].to_list()
    assert steps == list(range(len(steps)))
    assert len(steps) == 11 if room == "room" else (0 < len(steps) < 11 and "have been lost" in done.stderr)


def test_runs_on_a_disk_that_cannot_be_written_are_read_or_refused_but_never_cut(disk, tmp_path, capsys):
    with RunWriter(disk / "closed") as writer:
        writer.write(many(0, 10))
    alive = RunWriter(tmp_path / "alive", flush_every=60)
    alive.write(many(0, 10))
    alive.flush()
    (disk / "killed").mkdir()
    for name in ("run.sqlite", "run.sqlite-wal"):
        shutil.copy(tmp_path / "alive" / name, disk / "killed" / name)
    alive.close()
    read_only(disk)
    assert open_run(disk / "closed").frame().height == 10
    with pytest.raises(OSError, match=r"its last measurements are in run\.sqlite-wal.*netvitals recover .*--out"):
        open_run(disk / "killed")
    assert recover(disk / "killed", tmp_path / "saved").measurements == 10
    for path in (disk / "closed", disk / "new"):
        with pytest.raises(OSError, match=r"Read-only|readonly|cannot be"):
            RunWriter(path)
    with pytest.raises(SystemExit):
        main(["report", str(disk / "closed")])
    assert "Read-only file system" in capsys.readouterr().err
    from netvitals.report.live.run_index import Shelf

    rows = {r["name"]: r for r in Shelf([disk]).rows()}
    assert rows["closed"]["measurements"] == 10 and "--out" in rows["killed"]["damage"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_without_permission_is_a_sentence(tmp_path):
    with RunWriter(tmp_path / "r") as writer:
        writer.write(many(0, 10))
    os.chmod(tmp_path / "r", 0o500)
    try:
        assert open_run(tmp_path / "r").frame().height == 10
        with pytest.raises(OSError, match="Permission denied"):
            RunWriter(tmp_path / "r", existing="resume")
    finally:
        os.chmod(tmp_path / "r", 0o700)


HOLDING = """
import sys, time
from netvitals.runs import RunWriter

writer = RunWriter(sys.argv[1], existing="resume")
writer.flush()
print("there", flush=True)
time.sleep(120)
"""


def test_two_writers_of_one_run_and_a_third_that_comes_when_the_first_is_killed(tmp_path, programs):
    first = programs.Popen([sys.executable, "-c", HOLDING, str(tmp_path / "r")], stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout.readline() == "there\n"
        for existing in ("resume", "number", "refuse"):
            with pytest.raises(OSError, match=f"is written by process {first.pid}, which is alive"):
                RunWriter(tmp_path / "r", existing=existing)
    finally:
        first.kill()
        first.wait()
    with RunWriter(tmp_path / "r", existing="resume") as writer:
        assert writer.resumed


def test_a_folder_deleted_while_it_is_read_is_a_sentence(tmp_path):
    with RunWriter(tmp_path / "r") as writer:
        writer.write(many(0, 10))
    run = open_run(tmp_path / "r")
    shutil.rmtree(tmp_path / "r")
    for ask in (lambda: run.meta, run.frame, run.arrays, run.findings, lambda: run.status, run.verify):
        with pytest.raises(FileNotFoundError, match="there is no run at"):
            ask()
