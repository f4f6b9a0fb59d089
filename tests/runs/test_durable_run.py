"""Everything noted is on disk after a second, however the program ends and however rarely it is measured."""

from __future__ import annotations

import signal
import time

import pytest

import netvitals as nv


def losses(path):
    frame = nv.open_run(path).frame(vital="loss")
    assert frame["step"].n_unique() == frame.height, "a loss is there twice"
    return frame.height


@pytest.mark.parametrize(("every", "steps"), [(50, 500), (1000, 900)])
def test_a_program_that_ends_without_close_has_stored_every_loss(tmp_path, training, every, steps):
    code, _ = training(tmp_path / "r", every, steps).end()
    assert code == 0
    assert losses(tmp_path / "r") == steps
    assert nv.open_run(tmp_path / "r").status == "never closed"
    gates = nv.open_run(tmp_path / "r").frame(vital="gates")["step"].unique().to_list()
    assert sorted(gates) == list(range(0, steps, every))


@pytest.mark.parametrize(("every", "steps"), [(50, 149), (1000, 990), (1, 20)])
def test_kill_nine_after_a_moment_of_idleness_loses_nothing(tmp_path, training, every, steps):
    program = training(tmp_path / "r", every, steps, how="idle")
    program.until_idle()
    time.sleep(1.5)
    program.end(signal.SIGKILL)
    assert losses(tmp_path / "r") == steps
    gates = set(nv.open_run(tmp_path / "r").frame(vital="gates")["step"])
    assert gates == set(range(0, steps, every)), "a lone measured step waited for the next one"


@pytest.mark.parametrize(("every", "pause"), [(1, 0.0), (50, 0.001), (1000, 0.02), (2, 0.7)])
def test_kill_nine_in_the_middle_loses_at_most_a_second(tmp_path, training, every, pause):
    program = training(tmp_path / "r", every, 10**6, pause)
    program.line()
    begin = time.time()
    while time.time() < begin + 2.5:
        program.line()
    killed = time.time()
    program.end(signal.SIGKILL)
    stored = set(nv.open_run(tmp_path / "r").frame(vital="loss")["step"])
    owed = [step for step, moment in program.steps if moment < killed - 1.25]  # a quarter for a busy machine
    assert owed and set(owed) <= stored, f"lost {len(set(owed) - stored)} of {len(owed)} steps older than a second"


@pytest.mark.parametrize("how", ["with", "idle"])
def test_a_sigterm_closes_the_watch_and_ends_the_program_as_before(tmp_path, training, how):
    program = training(tmp_path / "r", 50, 311, how=how)
    program.until_idle()
    code, errors = program.end(signal.SIGTERM)
    assert code == -signal.SIGTERM and "Traceback" not in errors
    assert losses(tmp_path / "r") == 311
    assert nv.open_run(tmp_path / "r").status == "stopped by SIGTERM"
    assert [p.name for p in (tmp_path / "r").iterdir()] == ["run.sqlite"]


def test_an_exception_outside_a_with_block_closes_the_watch(tmp_path, training):
    code, errors = training(tmp_path / "r", 50, 120, how="raise").end()
    assert code == 1 and "KeyError: 'mine'" in errors
    assert losses(tmp_path / "r") == 120
    assert nv.open_run(tmp_path / "r").status == "failed"


def test_a_handler_of_the_users_own_is_left_alone(tmp_path, training):
    program = """
        import os, signal, sys, time, torch
        from torch import nn
        import netvitals as nv
        mine = lambda *_: print("mine", flush=True)
        if sys.argv[5] == "before":
            signal.signal(signal.SIGTERM, mine)
        vitals = nv.watch(nn.Linear(2, 2), run=sys.argv[1], vitals=["gates"])
        previous = signal.getsignal(signal.SIGTERM)
        if sys.argv[5] == "before":
            assert previous is mine
        else:  # a trainer that calls whatever handler was there, and trains on
            signal.signal(signal.SIGTERM, lambda *_: (previous(*_), mine()))
        vitals.step(1.0)
        os.kill(os.getpid(), signal.SIGTERM)
        vitals.step(2.0)
        vitals.close()
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    """
    for when in ("before", "after"):
        one = training(tmp_path / when, 1, 0, how=when, program=program)
        out, errors = one.process.communicate(timeout=60)
        assert (one.process.returncode, out) == (0, "mine\n"), errors
        assert losses(tmp_path / when) == 2 and nv.open_run(tmp_path / when).status == "finished"


def test_without_a_run_no_handler_is_set_and_after_one_none_is_left(tmp_path):
    from torch import nn

    before = signal.getsignal(signal.SIGTERM)
    with nv.watch(nn.Linear(2, 2), vitals=["gates"]):
        assert signal.getsignal(signal.SIGTERM) is before
    nv.watch(nn.Linear(2, 2), vitals=["gates"], run=tmp_path / "r").close()
    assert signal.getsignal(signal.SIGTERM) is before
