"""A run goes on after a crash, from its last step or from a checkpoint; two writers never share a file."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.capture import ArrayMeasurement, Measurement
from netvitals.runs import FileLock, FileLocked, RunWriter


def model():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def run_steps(vitals, count, first=0):
    for step in range(first, first + count):
        vitals._model(torch.ones(2, 4)).sum().backward()
        vitals.step(float(step))


def test_a_resumed_run_goes_on_with_the_next_step(tmp_path):
    with nv.watch(model(), run=tmp_path / "r", every=3, vitals=["gates"]) as vitals:
        run_steps(vitals, 10)
    with nv.watch(model(), run=tmp_path / "r", every=3, vitals=["gates"], resume=True) as vitals:
        assert repr(vitals).startswith("Watch(Sequential, step 10")
        run_steps(vitals, 5, first=10)
    run = nv.open_run(tmp_path / "r")
    assert run.frame(vital="loss").select("step", "value").rows() == [(i, float(i)) for i in range(15)]
    assert run.status == "finished" and run.meta["resumed"][0]["step"] == 10
    assert not (tmp_path / "r-2").exists()


def test_steps_without_a_loss_count_as_well(tmp_path):
    with nv.watch(model(), run=tmp_path / "r", every=50, vitals=["gates"]) as vitals:
        for _ in range(73):
            vitals.step()
    with nv.watch(model(), run=tmp_path / "r", every=50, vitals=["gates"], resume=True) as vitals:
        assert vitals._step == 73


def test_from_a_checkpoint_the_abandoned_branch_is_marked_and_not_lost(tmp_path):
    def arrays(branch, steps):
        return [ArrayMeasurement(s, "v", "s", "a", [branch, s]) for s in steps]

    with RunWriter(tmp_path / "r") as writer:
        writer.write([Measurement(s, "v", "s", "m", 0.0) for s in range(10)], arrays(0, range(10)))
    with RunWriter(tmp_path / "r", existing="resume", at=6) as writer:
        assert writer.next_step == 6
        writer.write([Measurement(s, "v", "s", "m", 1.0) for s in range(6, 9)], arrays(1, range(6, 9)))
    with RunWriter(tmp_path / "r", existing="resume", at=4) as writer:
        writer.write([Measurement(s, "v", "s", "m", 2.0) for s in range(4, 12)], arrays(2, range(4, 12)))
    run = nv.open_run(tmp_path / "r")
    assert run.frame()["value"].to_list() == [0.0] * 4 + [2.0] * 8
    assert run.frame(abandoned=True).select("step", "value").rows() == sorted(
        [(s, 0.0) for s in range(4, 10)] + [(s, 1.0) for s in range(6, 9)], key=lambda row: row[0]
    )
    assert [a.value.tolist() for a in run.arrays()] == [[0 if s < 4 else 2, s] for s in range(12)]
    assert run.arrays(first=True)[0].step == 0 and run.arrays(last=True)[0].step == 11
    assert [(n, len(s)) for _, _, n, s, _ in run.by_series()] == [("m", 12)] and run.steps == list(range(12))


def test_resuming_where_nothing_is_begins_a_run_but_a_step_needs_one(tmp_path):
    with nv.watch(model(), run=tmp_path / "r", resume=True, vitals=["gates"]) as vitals:
        run_steps(vitals, 2)
    assert nv.open_run(tmp_path / "r").steps == [0, 1]
    with pytest.raises(FileNotFoundError, match=r"there is no run at .* that could continue at step 7"):
        nv.watch(model(), run=tmp_path / "none", resume=7, vitals=["gates"])


def test_another_model_is_refused_and_the_run_left_as_it_was(tmp_path):
    nv.watch(model(), run=tmp_path / "r", vitals=["gates"]).close()
    before = nv.open_run(tmp_path / "r").meta
    with pytest.raises(ValueError, match="resume it with the same model"):
        nv.watch(nn.Sequential(nn.Linear(4, 9)), run=tmp_path / "r", vitals=["gates"], resume=True)
    assert nv.open_run(tmp_path / "r").meta == before


@pytest.mark.parametrize("bad", [-1, 1.5, "yes", None])
def test_a_bad_resume_gets_a_sentence(tmp_path, bad):
    with pytest.raises(ValueError, match="resume= must be True, False or the step"):
        nv.watch(model(), run=tmp_path / "r", resume=bad)
    with pytest.raises(ValueError, match="resume= needs run="):
        nv.watch(model(), resume=True)


def test_a_killed_run_is_resumed_in_another_process(tmp_path, training):
    program = training(tmp_path / "r", 7, 60, how="idle")
    program.until_idle()
    time.sleep(1.2)
    refused = training(tmp_path / "r", 7, 5, resume="yes")
    code, errors = refused.end()
    assert code == 1 and f"is written by process {program.process.pid}, which is alive" in errors
    program.end(signal.SIGKILL)
    code, errors = training(tmp_path / "r", 7, 40, resume="yes").end()
    assert code == 0, errors
    run = nv.open_run(tmp_path / "r")
    assert run.frame(vital="loss")["step"].to_list() == list(range(100))
    assert set(run.frame(vital="gates")["step"]) == set(range(0, 100, 7))


def test_two_processes_on_one_path_and_the_second_is_refused(tmp_path, training):
    program = training(tmp_path / "r", 7, 3, how="idle")
    program.until_idle()
    code, errors = training(tmp_path / "r", 7, 3).end()
    assert code == 1 and "close that one first, or choose another path" in errors
    assert not (tmp_path / "r-2").exists()


def test_a_lock_is_not_held_by_a_child_of_a_dead_process(tmp_path):
    file = tmp_path / "run.sqlite"
    lock = FileLock(file)
    with pytest.raises(FileLocked, match="is written by this process"):
        FileLock(file)
    child = os.fork()
    if child == 0:  # as a data loader's worker does, it lives on
        time.sleep(60)
        os._exit(0)
    time.sleep(0.1)
    try:
        os.close(lock._descriptor)  # all that is left of a process that was killed
        lock._descriptor = -1
        FileLock(file).release()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert not list(tmp_path.iterdir())
