"""Worker processes: one thread each, a killed one replaced, nothing left behind."""

import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from netvitals_lab import Claim, Expected, Results, Study, decide, run
from netvitals_lab.engine.workers import TrialTask, make_engine

FIXTURE = str(Path(__file__).parent / "studies_fixture")
CLAIM = Claim(
    "toy/C1",
    "toy",
    "rows are there",
    Expected(direction="are there"),
    lambda rows: decide(True, float(sum(r["value"] for r in rows))),
)


@pytest.fixture
def toys(monkeypatch):
    monkeypatch.syspath_prepend(FIXTURE)
    import toy_trials

    return toy_trials


@pytest.fixture
def quick_workers(monkeypatch):
    """Workers are forked from a process that has imported torch; the other tests start them anew."""
    kinds = multiprocessing.get_context
    multiprocessing.set_forkserver_preload(["torch", "netvitals_lab.engine.workers.local"])
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: kinds("forkserver"))


def make(toys, folder, act="compute", seeds=4):
    p = toys.Toy(seeds=seeds, act=act, folder=str(folder))
    return Study(
        "toy", "toy", "a toy", dict.fromkeys(("smoke", "small", "paper"), p), toys.trials, toys.trial, toys.summary
    )


def ran(folder):
    return sorted((folder / "log").read_text().split())


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] not in "ZX"
    except OSError:
        return False


def kill_when_told(folder):
    def work():
        while not (folder / "pid").exists():
            time.sleep(0.05)
        os.kill(int((folder / "pid").read_text()), signal.SIGKILL)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_workers_give_the_rows_of_one_process_on_one_thread_each(toys, tmp_path):
    options = {"claims": [CLAIM], "progress": False}
    inline = run(make(toys, ""), "smoke", "inline", results=tmp_path / "a.sqlite", **options)
    local = run(make(toys, ""), "smoke", "local", jobs=2, results=tmp_path / "b.sqlite", **options)
    drop = lambda rows: [{k: v for k, v in r.items() if k != "threads"} for r in rows]
    assert drop(local.rows) == drop(inline.rows)
    assert {r["threads"] for r in local.rows} == {1}


def test_a_worker_killed_in_the_middle_is_replaced_and_its_trial_counted_once(toys, tmp_path, quick_workers):
    killer = kill_when_told(tmp_path)
    result = run(
        make(toys, tmp_path, "wait-once"),
        "smoke",
        "local",
        jobs=2,
        results=tmp_path / "s.sqlite",
        claims=[CLAIM],
        progress=False,
    )
    killer.join()
    assert (result.failed, len(result.rows)) == (0, 4)
    assert ran(tmp_path) == ["0", "1", "1", "2", "3"]
    with Results(tmp_path / "s.sqlite", write=False) as results:
        ((_, config, attempt, error),) = results.failures("toy")
    assert (config["seed"], attempt) == (1, 1)
    assert "killed by signal 9 (SIGKILL)" in error


def test_a_trial_that_kills_its_worker_twice_is_excluded_and_the_others_go_on(toys, tmp_path, quick_workers):
    result = run(
        make(toys, tmp_path, "die"),
        "smoke",
        "local",
        jobs=1,
        results=tmp_path / "s.sqlite",
        claims=[CLAIM],
        progress=False,
    )
    assert (result.failed, len(result.rows)) == (1, 3)
    assert "SIGKILL" in result.verdicts["toy/C1"].excluded[0][1]


def test_a_trial_other_processes_cannot_import_is_refused(toys):
    engine = make_engine("local", jobs=1)
    with pytest.raises(ValueError, match="at the top level of a module"):
        engine.submit(TrialTask("k", lambda config: [], {}))
    engine.close()


def driver(programs, folder, act, seeds, start, jobs=2):
    """A process of its own that runs the toy study; it can be killed without harm to the tests."""
    script = folder / "driver.py"
    script.write_text(
        textwrap.dedent(f"""
        import multiprocessing, sys
        sys.path.insert(0, {FIXTURE!r})
        from netvitals_lab import Study, run
        import toy_trials as toys
        if __name__ == "__main__":
            kinds = multiprocessing.get_context
            multiprocessing.get_context = lambda kind: kinds({start!r})
            p = toys.Toy(seeds={seeds}, act={act!r}, folder={str(folder)!r})
            study = Study("toy", "toy", "a toy", dict.fromkeys(("smoke", "small", "paper"), p), toys.trials, toys.trial,
                          toys.summary)
            run(study, "smoke", "local", jobs={jobs}, results={str(folder / "s.sqlite")!r}, progress=False)
    """)
    )
    return programs.Popen([sys.executable, str(script)], start_new_session=True, stderr=subprocess.PIPE)


def children(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        if int(text.rsplit(") ", 1)[1].split()[1]) == pid:
            found.append(int(stat.parent.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("stop", "start"), [(signal.SIGINT, "fork"), (signal.SIGKILL, "spawn")])
def test_a_stopped_driver_leaves_no_worker_and_a_second_call_goes_on(toys, tmp_path, programs, stop, start):
    process = driver(programs, tmp_path, "slow", 20, start)
    while not (tmp_path / "log").exists() or len(ran(tmp_path)) < 4:
        time.sleep(0.05)
        assert process.poll() is None, process.stderr.read().decode()
    workers = children(process.pid)
    process.send_signal(stop)
    process.communicate(timeout=180)
    assert process.returncode != 0
    deadline = time.monotonic() + 120
    while any(alive(w) for w in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(workers) >= 2 and not any(alive(w) for w in workers)

    with Results(tmp_path / "s.sqlite") as results:
        done = {t.config["seed"] for t in results.trials().values()}
    assert 0 < len(done) < 20
    before = ran(tmp_path)
    (tmp_path / "hurry").touch()
    result = run(
        make(toys, tmp_path, "slow", 20),
        "smoke",
        "inline",
        results=tmp_path / "s.sqlite",
        claims=[CLAIM],
        progress=False,
    )
    assert (result.reused, len(result.rows)) == (len(done), 20)
    again = [s for s in ran(tmp_path) if int(s) in done]
    assert again == [s for s in before if int(s) in done]  # no finished trial ran twice


def script(programs, tmp_path, trial, tail, stillborn=3):
    text = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {FIXTURE!r})
        from netvitals_lab import Study, run
        import toy_trials as toys
        from netvitals_lab.engine.workers import local
        local.STILLBORN = {stillborn}
        def own(config):
            return [{{"value": config["seed"]}}]
        study = Study("toy", "toy", "a toy", dict.fromkeys(("smoke", "small", "paper"), toys.Toy()), toys.trials,
                      {trial}, toys.summary)
        {tail}
            result = run(study, "smoke", "local", jobs=1, results={str(tmp_path / "s.sqlite")!r}, progress=False)
            print(len(result.rows))
    """)
    (tmp_path / "script.py").write_text(text)
    return programs.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, timeout=180)


@pytest.mark.slow
@pytest.mark.parametrize(("trial", "tail"), [("toys.trial", "if True:"), ("own", "if __name__ == '__main__':")])
def test_a_script_needs_a_guard_only_for_trials_of_its_own(programs, tmp_path, trial, tail):
    done = script(programs, tmp_path, trial, tail)
    assert (done.returncode, done.stdout.split()) == (0, ["3"]), done.stderr


@pytest.mark.slow
def test_a_script_without_the_guard_it_needs_gets_a_sentence(programs, tmp_path):
    done = script(programs, tmp_path, "own", "if True:", stillborn=1)  # one dead worker is enough to see it
    assert done.returncode == 1
    assert "must run them under if __name__ == '__main__'" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "locl"}, "did you mean local"),
        ({"name": "slurm"}, "there are local, ray, inline"),
        ({"name": "local", "jobs": 0}, "at least 1, got 0"),
        ({"name": "local", "address": "auto"}, "belongs to the engine ray"),
    ],
)
def test_a_wrong_engine_gets_a_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        make_engine(**options)


def test_a_ctrl_c_in_the_calling_process_keeps_what_was_done(toys, tmp_path):
    def interrupt(state):
        if state.done == 2:
            raise KeyboardInterrupt

    study = dataclasses.replace(make(toys, tmp_path, seeds=5))
    with pytest.raises(KeyboardInterrupt):
        run(study, "smoke", "inline", results=tmp_path / "s.sqlite", claims=[CLAIM], progress=interrupt)
    result = run(study, "smoke", "inline", results=tmp_path / "s.sqlite", claims=[CLAIM], progress=False)
    assert (result.reused, len(result.rows)) == (2, 5)
