"""The list of runs over folders from other people, and over folders and places that fail while they are shown."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from pathlib import Path

import pytest

from netvitals.capture import Measurement
from netvitals.report.live import create_app
from netvitals.report.live.run_index import OpenRun, Shelf
from netvitals.runs import RunWriter, open_run, runs_below

testclient = pytest.importorskip("starlette.testclient")


def write(path, count=3):
    with RunWriter(path, meta={"model": "MLP"}) as writer:
        writer.write([Measurement(i, "loss", "model", "loss", 1.0 / (1 + i)) for i in range(count)])
    return writer.path


def client(folder):
    one = testclient.TestClient(create_app(folder, "secret", judge=False), base_url="http://127.0.0.1:8722")
    one.cookies.set("netvitals-8722", "secret")
    return one


def bomb(path):
    write(path)
    connection = sqlite3.connect(path / "run.sqlite")
    connection.executescript(
        "DROP TABLE summary; CREATE VIEW summary AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
        "SELECT x AS id, x AS crc, x AS record FROM c;"
    )
    connection.close()


def test_one_hostile_run_does_not_keep_the_others_from_the_list(tmp_path):
    bomb(tmp_path / "bomb")
    write(tmp_path / "good")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "run.sqlite")
    write(tmp_path / "side")
    os.mkfifo(tmp_path / "side" / "run.sqlite-wal")
    (tmp_path / "folder" / "run.sqlite").mkdir(parents=True)
    one = client(tmp_path)
    rows = {r["name"]: r for r in one.get("/api/runs").json()["runs"]}
    assert set(rows) == {"bomb", "good", "pipe", "side"}
    assert "damage" not in rows["good"] and rows["good"]["last"] == 2
    assert "which netvitals does not write" in rows["bomb"]["damage"]
    assert "not a regular file" in rows["side"]["damage"]
    for name in ("bomb", "pipe", "side"):
        answer = one.get("/api/head", params={"run": name})
        assert answer.status_code == 422 and "cannot be shown" in answer.json()["error"]


def test_a_run_that_cannot_be_read_is_not_read_again_until_it_changes(tmp_path, monkeypatch):
    from netvitals.report.live import run_index

    bomb(tmp_path / "bomb")
    shelf = Shelf([tmp_path])
    (first,) = shelf.rows()
    opened = []
    monkeypatch.setattr(run_index, "open_run", lambda path: opened.append(path) or open_run(path))
    assert shelf.rows() == [first] and not opened
    (tmp_path / "bomb" / "run.sqlite").unlink()
    write(tmp_path / "bomb")
    (again,) = shelf.rows()
    assert "damage" not in again and len(opened) == 1


def test_a_run_below_fifteen_hundred_folders_is_listed_and_shown(tmp_path):
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # where folders are removed sooner
    deep = Path(tempfile.mkdtemp(dir=memory))
    here = os.getcwd()
    try:
        os.chdir(deep)
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
        os.mkdir("r")
        os.chdir("r")
        source = write(tmp_path / "one")
        shutil.copy(source, "run.sqlite")
        os.chdir(here)
        write(deep / "near")
        found = runs_below(deep)
        assert set(found) == {"near", "d/" * 1500 + "r"}
        one = client(deep)
        rows = {r["name"]: r for r in one.get("/api/runs").json()["runs"]}
        assert set(rows) == set(found) and rows["near"]["last"] == 2
        answer = one.get("/api/head", params={"run": "d/" * 1500 + "r"})
        assert answer.status_code == 422 and "too long for SQLite: move the run" in answer.json()["error"]
        assert "which is too long for SQLite" in rows["d/" * 1500 + "r"]["damage"]
    finally:  # shutil.rmtree is recursive
        os.chdir(deep)
        depth = 0
        while os.path.isdir("d"):
            os.chdir("d")
            depth += 1
        shutil.rmtree("r", ignore_errors=True)
        for _ in range(depth):
            os.chdir("..")
            os.rmdir("d")
        os.chdir(here)
        shutil.rmtree(deep)


def test_folders_beyond_the_longest_path_are_left_out(tmp_path):
    here = os.getcwd()
    write(tmp_path / "near")
    try:
        os.chdir(tmp_path)
        for _ in range(25):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
        open("run.sqlite", "w").close()
        os.chdir(here)
        assert runs_below(tmp_path) == ["near"]
    finally:
        os.chdir(tmp_path)
        for _ in range(25):
            os.chdir("d" * 200)
        os.unlink("run.sqlite")
        for _ in range(25):
            os.chdir("..")
            os.rmdir("d" * 200)
        os.chdir(here)


def test_links_in_circles_and_long_chains_of_links_are_no_runs(tmp_path):
    write(tmp_path / "near")
    os.symlink(".", tmp_path / "loop")
    (tmp_path / "self").mkdir()
    os.symlink("run.sqlite", tmp_path / "self" / "run.sqlite")
    (tmp_path / "chain").mkdir()
    for i in range(1500):
        os.symlink(f"l{i + 1}", tmp_path / "chain" / f"l{i}")
    os.symlink("l0", tmp_path / "chain" / "run.sqlite")
    assert runs_below(tmp_path) == ["near"]
    assert [r["name"] for r in client(tmp_path).get("/api/runs").json()["runs"]] == ["near"]


@pytest.mark.parametrize("code", [c for c in range(1, 128) if chr(c) != "/"])
def test_a_name_with_any_ascii_character_is_listed_and_shown(tmp_path, code):
    name = f"a{chr(code)}b"
    source = write(tmp_path / "one")
    (tmp_path / "runs" / name).mkdir(parents=True)
    os.link(source, tmp_path / "runs" / name / "run.sqlite")
    one = client(tmp_path / "runs")
    (row,) = one.get("/api/runs").json()["runs"]
    assert row["name"] == name and "damage" not in row
    params = {"run": name, "vital": "loss", "metric": "loss"}
    assert one.get("/api/head", params=params).json()["title"] == name
    assert one.get("/api/metric", params=params).status_code == 200
    both = one.get("/api/compare", params={"run": [name, name]})
    assert both.status_code == 200 and both.json()["runs"] == [name, name]


@pytest.mark.parametrize(
    ("place", "needs"),
    [
        ("/api/metric?run=a", "vital="),
        ("/api/metric?run=a&vital=loss", "metric="),
        ("/api/metric", "vital="),
        ("/api/site?run=a", "site="),
        ("/api/compare", "run="),
        ("/api/difference", "vital="),
        ("/api/difference?vital=loss&metric=loss", "exactly two runs"),
        ("/api/difference?run=a&vital=loss&metric=loss", "exactly two runs"),
        ("/api/difference?run=a&run=a&run=a&vital=loss&metric=loss", "exactly two runs"),
        ("/api/difference?run=a&run=a", "vital="),
        ("/api/metric?run=a&vital=loss&metric=loss&start=x&stop=2", "start and stop must be step numbers"),
    ],
)
def test_a_request_without_what_it_needs_is_told_what(tmp_path, place, needs):
    write(tmp_path / "a")
    answer = client(tmp_path).get(place)
    assert answer.status_code == 400 and needs in answer.json()["error"] and " " in answer.json()["error"]


@pytest.mark.parametrize(
    "place",
    ["/api/head?run=none", "/api/metric?run=none&vital=a&metric=b", "/api/metric?run=a&vital=a&metric=b"]
    + ["/api/compare?run=none", "/api/difference?run=a&run=none&vital=a&metric=b", "/api/site?run=a&site=none"]
    + ["/api/difference?run=a&run=a&vital=a&metric=b", "/api/head?run=%00", "/api/head?run=" + "d/" * 3000]
    + ["/api/head?run=%ff", "/api/compare?run=a&run=%00"],
)
def test_what_is_not_there_is_a_sentence(tmp_path, place):
    write(tmp_path / "a")
    answer = client(tmp_path).get(place)
    assert answer.status_code == 404 and " " in answer.json()["error"]


@pytest.mark.parametrize("window", ["start=-5&stop=-9", f"start={10**30}&stop={10**31}", f"start={-(10**30)}&stop=0"])
def test_a_window_of_any_steps_is_no_error_of_the_server(tmp_path, window):
    write(tmp_path / "a", 2000)
    answer = client(tmp_path).get(f"/api/metric?run=a&vital=loss&metric=loss&{window}")
    assert answer.status_code == 200 or (answer.status_code < 500 and " " in answer.json()["error"])


def test_a_folder_that_is_removed_while_it_is_shown_is_a_row_with_the_reason(tmp_path):
    write(tmp_path / "first" / "a")
    write(tmp_path / "second" / "b")
    one = client([tmp_path / "first", tmp_path / "second"])
    assert {r["name"] for r in one.get("/api/runs").json()["runs"]} == {"a", "second/b"}
    shutil.rmtree(tmp_path / "first")
    rows = {r["name"]: r for r in one.get("/api/runs").json()["runs"]}
    assert "there is no folder" in rows[str(tmp_path / "first")]["damage"] and rows["second/b"]["last"] == 2
    assert one.get("/api/head?run=a").status_code == 404 and one.get("/run/a").status_code == 404
    assert one.get("/").status_code == 200
    write(tmp_path / "first" / "a")
    assert {r["name"] for r in one.get("/api/runs").json()["runs"]} == {"a", "second/b"}


def test_a_run_that_is_removed_while_it_is_shown_is_gone_in_words(tmp_path):
    write(tmp_path / "a")
    run = OpenRun(tmp_path / "a")
    run.refresh()
    one = client(tmp_path)
    assert one.get("/api/head?run=a").status_code == 200
    shutil.rmtree(tmp_path / "a")
    answer = one.get("/api/head?run=a")
    assert answer.status_code == 404 and answer.json()["error"] == "There is no run named a in this folder."
    assert run.numbers.status == "finished"  # what was read stays


def test_fifty_viewers_at_once_see_the_run_and_cost_its_writer_nothing(tmp_path):
    writer = RunWriter(tmp_path / "r", flush_every=0.01)
    writer.write([Measurement(0, "loss", "model", "loss", 1.0)])
    writer.flush()
    shelf_reads, stop, wrong = [], threading.Event(), []
    one = client(tmp_path)

    def ask():
        while not stop.is_set():
            for place in ("/api/runs", "/api/head?run=r"):
                answer = one.get(place)
                if answer.status_code != 200 or "damage" in answer.text:
                    wrong.append(answer.text)
            shelf_reads.append(1)

    threads = [threading.Thread(target=ask) for _ in range(50)]
    for thread in threads:
        thread.start()
    for step in range(1, 60):
        writer.write([Measurement(step, "loss", "model", "loss", 1.0)])
        time.sleep(0.005)
    assert writer.flush()
    stop.set()
    for thread in threads:
        thread.join()
    writer.close()
    assert not wrong, wrong[0]
    assert len(shelf_reads) >= 50 and open_run(tmp_path / "r").steps == list(range(60))


def test_the_folders_are_walked_once_for_all_who_ask_at_the_same_time(tmp_path, monkeypatch):
    from netvitals.report.live import run_index

    write(tmp_path / "a")
    shelf = Shelf([tmp_path])
    walks = []
    monkeypatch.setattr(run_index, "runs_below", lambda root: walks.append(root) or runs_below(root))
    monkeypatch.setattr(run_index, "FRESH_S", 60.0)
    states = []
    threads = [threading.Thread(target=lambda: states.append(shelf.state())) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(walks) == 1 and all(state == states[0] for state in states) and len(states) == 50


class Failing:
    """A file system that works until it is told not to."""

    def __init__(self, there, error):
        self.there, self.error, self.works, self.files = there, error, True, None

    def __getattr__(self, name):
        def call(*args, **options):
            if name == "get_file" and self.files is not None:
                self.files -= 1
                if self.files < 0:
                    raise self.error
            if not self.works:
                raise self.error
            return getattr(self.there, name)(*args, **options)

        return call


@pytest.mark.parametrize(
    "error", [OSError("no route"), PermissionError("Access Denied"), RuntimeError("botocore"), TimeoutError()]
)
def test_a_place_that_fails_is_a_row_with_the_reason_and_the_last_copies_stay(tmp_path, error):
    import fsspec

    write(tmp_path / "local" / "near")
    source = write(tmp_path / "far")
    there = fsspec.filesystem("memory")
    there.makedirs("/bucket43/far", exist_ok=True)
    there.put_file(str(source), "/bucket43/far/run.sqlite")
    shelf = Shelf([tmp_path / "local", "memory://bucket43"])
    (mirror,) = shelf._mirrors.values()
    mirror._there = Failing(there, error)
    mirror._every = 0.0
    assert {r["name"] for r in shelf.rows()} == {"near", "bucket43/far"}
    mirror._there.works = False
    rows = {r["name"]: r for r in shelf.rows()}
    assert set(rows) == {"near", "bucket43/far", "memory://bucket43"}
    assert type(error).__name__ in rows["memory://bucket43"]["damage"]
    assert rows["near"]["last"] == rows["bucket43/far"]["last"] == 2 and "memory://bucket43" in shelf.state()
    assert shelf.run("bucket43/far").numbers.summary.last_step == 2
    mirror._there.works = True
    assert {r["name"] for r in shelf.rows()} == {"near", "bucket43/far"}
    there.rm("/bucket43", recursive=True)


def test_a_copy_that_breaks_off_leaves_the_run_and_its_side_file_as_they_were(tmp_path):
    import fsspec

    there = fsspec.filesystem("memory")
    there.makedirs("/bucket44/r", exist_ok=True)
    writer = RunWriter(tmp_path / "r", flush_every=60)

    def put():
        for name in ("run.sqlite", "run.sqlite-wal"):
            there.put_file(str(tmp_path / "r" / name), f"/bucket44/r/{name}")

    writer.write([Measurement(0, "loss", "model", "loss", 1.0)])
    writer.flush()
    put()
    shelf = Shelf(["memory://bucket44"])
    (mirror,) = shelf._mirrors.values()
    mirror._every = 0.0
    assert [r["last"] for r in shelf.rows()] == [0]
    before = {p.name: p.read_bytes() for p in (mirror.folder / "r").iterdir()}
    for step in range(1, 5):
        writer.write([Measurement(step, "loss", "model", "loss", 1.0)])
        writer.flush()
    writer._ledger.connection.execute("PRAGMA wal_checkpoint(FULL)")
    put()
    mirror._there = Failing(there, OSError("gone"))
    mirror._there.files = 1
    rows = {r["name"]: r for r in shelf.rows()}
    kept = {p.name: p.read_bytes() for p in (mirror.folder / "r").iterdir() if p.name in before}
    assert kept == before and rows["r"]["last"] == 0 and "gone" in rows["memory://bucket44"]["damage"]
    mirror._there.files = None
    assert shelf.rows()[0]["last"] == 4
    writer.close()
    with contextlib.suppress(FileNotFoundError):
        there.rm("/bucket44", recursive=True)


@pytest.mark.parametrize("error", [PermissionError("denied"), RuntimeError("botocore"), TimeoutError("late")])
def test_a_place_that_fails_at_the_start_is_a_sentence(monkeypatch, error):
    import fsspec

    there = fsspec.filesystem("memory")
    monkeypatch.setattr(type(there), "exists", lambda *_, **__: (_ for _ in ()).throw(error))
    with pytest.raises(OSError, match=rf"memory://b.* cannot be read: {type(error).__name__}"):
        Shelf(["memory://b"])
