"""The results file: crash safe, versioned, never overwritten, readable while written."""

import sqlite3
import sys
import textwrap

import pytest

from netvitals_lab import Results, TrialRecord, Verdict
from netvitals_lab.engine import store

VERDICT = Verdict("erratum", 1.5, 0.1, "right", excluded=(("seed=1", "no"),))


def record(seed, **more):
    return TrialRecord(f"k{seed}", "toy", {"seed": seed}, "c", **{"rows": [{"v": float(seed)}], **more})


def test_what_is_written_is_read_back(tmp_path):
    with Results(tmp_path / "s.sqlite") as results:
        results.record(record(0))
        results.record(record(1, rows=[], error="Traceback\nValueError: no"))
        results.save_verdicts({"toy/C1": VERDICT}, "smoke", "c")
    with Results(tmp_path / "s.sqlite", write=False) as results:
        trials = results.trials(study="toy")
        assert trials["k0"].rows == [{"v": 0.0}] and trials["k0"].done
        assert not trials["k1"].done
        (stored,) = results.verdicts()
        assert stored.verdict == VERDICT
    assert [p.name for p in tmp_path.iterdir()] == ["s.sqlite"]


def test_the_same_trial_again_is_not_counted_twice(tmp_path):
    with Results(tmp_path / "s.sqlite") as results:
        results.record(record(0))
        results.record(record(0, rows=[{"v": 9.0}]))
        assert results.trials()["k0"].rows == [{"v": 9.0}]
        assert len(results.trials()) == 1


def test_numbers_that_are_not_finite_survive(tmp_path):
    with Results(tmp_path / "s.sqlite") as results:
        results.record(record(0, rows=[{"a": float("inf"), "b": float("nan"), "c": None, "d": [1, 2.5]}]))
        (row,) = results.trials()["k0"].rows
    assert row["a"] == float("inf") and row["b"] != row["b"] and row["c"] is None and row["d"] == [1, 2.5]


def test_a_reader_sees_trials_while_the_driver_writes(tmp_path):
    with Results(tmp_path / "s.sqlite") as writer:
        writer.record(record(0))
        with Results(tmp_path / "s.sqlite", write=False) as reader:
            assert len(reader.trials()) == 1
            writer.record(record(1))
            assert len(reader.trials()) == 2


def test_a_killed_driver_loses_no_finished_trial(tmp_path, programs):
    code = textwrap.dedent(f"""
        import os, signal
        from netvitals_lab import Results, TrialRecord
        results = Results({str(tmp_path / "s.sqlite")!r})
        for seed in range(20):
            results.record(TrialRecord(f"k{{seed}}", "toy", {{"seed": seed}}, "c", rows=[{{"v": seed}}]))
        results._db.execute("BEGIN IMMEDIATE")
        results._db.execute("DELETE FROM trial")
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    assert programs.run([sys.executable, "-c", code]).returncode == -9
    with Results(tmp_path / "s.sqlite") as results:
        assert len(results.trials()) == 20


def test_a_full_disk_stops_with_the_trials_so_far_intact(tmp_path, programs):
    """The process may write 256 kB to a file, then every write fails for real."""
    code = textwrap.dedent(f"""
        import resource, signal
        from netvitals_lab import Results, TrialRecord
        results = Results({str(tmp_path / "s.sqlite")!r})
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (262144, 262144))
        for seed in range(1000):
            try:
                results.record(TrialRecord(f"k{{seed}}", "toy", {{"seed": seed}}, "c", rows=[{{"v": "x" * 8000}}]))
            except OSError as error:
                print(seed, error)
                break
    """)
    sentence = programs.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    stored = int(sentence.split()[0])
    assert 5 < stored < 1000
    assert "cannot be written" in sentence and "the trials stored so far are intact" in sentence
    with Results(tmp_path / "s.sqlite") as results:
        assert len(results.trials()) == stored


def test_a_place_that_cannot_be_written_is_said_in_a_sentence(tmp_path):
    with pytest.raises(OSError, match=r"cannot be made .* choose another place with --results"):
        Results("/proc/netvitals/studies.sqlite")
    with pytest.raises(IsADirectoryError, match="name the results file in it"):
        Results(tmp_path)


def test_a_file_turned_read_only_is_said_in_a_sentence(tmp_path, monkeypatch):
    path = tmp_path / "s.sqlite"
    Results(path).close()
    real = sqlite3.connect
    monkeypatch.setattr(
        store.sqlite3, "connect", lambda file, **k: real(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    )
    with pytest.raises(OSError, match="cannot be written"), Results(path) as results:
        results.record(record(0))


def test_missing_results_are_said_in_a_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match="netvitals reproduce makes them"):
        Results(tmp_path / "none.sqlite", write=False)


def make_old(path, number):
    Results(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version={number}")
    db.commit()
    db.close()


def test_an_unknown_older_layout_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "s.sqlite"
    make_old(path, 0)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"layout 0, which this netvitals .* can no longer bring up to date"):
        Results(path)
    assert path.read_bytes() == before


def test_a_newer_layout_is_refused(tmp_path):
    make_old(tmp_path / "s.sqlite", 99)
    with pytest.raises(ValueError, match=r"layout 99 .* upgrade netvitals"):
        Results(tmp_path / "s.sqlite", write=False)


def test_a_known_older_layout_is_migrated_in_one_piece(tmp_path, monkeypatch):
    path = tmp_path / "s.sqlite"
    with Results(path) as results:
        results.record(record(0))
    monkeypatch.setattr(store, "LAYOUT_NUMBER", store.LAYOUT_NUMBER + 1)
    monkeypatch.setattr(store, "MIGRATIONS", {store.LAYOUT_NUMBER - 1: "ALTER TABLE trial ADD COLUMN host TEXT; oops;"})
    with pytest.raises(ValueError, match=r"could not be brought .* it is unchanged"):
        Results(path)
    monkeypatch.setattr(store, "MIGRATIONS", {store.LAYOUT_NUMBER - 1: "ALTER TABLE trial ADD COLUMN host TEXT;"})
    with pytest.raises(ValueError, match="older layout"):
        Results(path, write=False)
    with Results(path) as results:
        assert len(results.trials()) == 1
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone()[0] == store.LAYOUT_NUMBER
    db.close()


@pytest.mark.parametrize("content", [b"just some text, long enough to be measured " * 40, b""])
def test_another_kind_of_file_is_never_overwritten(tmp_path, content):
    path = tmp_path / "notes.sqlite"
    path.write_bytes(content)
    if content:
        with pytest.raises(ValueError, match="is not a netvitals results file"):
            Results(path)
        assert path.read_bytes() == content
    else:
        Results(path).close()


def test_a_foreign_database_is_refused(tmp_path):
    db = sqlite3.connect(tmp_path / "other.sqlite")
    db.execute("CREATE TABLE mine (x)")
    db.commit()
    db.close()
    with pytest.raises(ValueError, match="lacks the mark"):
        Results(tmp_path / "other.sqlite")


def test_a_driver_killed_as_it_made_the_file_leaves_one_that_can_be_used(tmp_path):
    path = tmp_path / "s.sqlite"
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=WAL")  # the first write to a new file; the layout comes next
    db.close()
    assert path.stat().st_size > 0
    with pytest.raises(FileNotFoundError, match=r"there are no results in .* yet"):
        Results(path, write=False)
    with Results(path) as results:
        results.record(record(0))
        assert len(results.trials()) == 1


def test_two_drivers_may_make_the_file_at_once(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    def drive(seed):
        with Results(tmp_path / "s.sqlite") as results:
            results.record(record(seed))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(drive, range(8)))
    with Results(tmp_path / "s.sqlite", write=False) as results:
        assert len(results.trials()) == 8
