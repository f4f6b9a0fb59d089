"""A run from somebody else: reading its file ends soon, runs nothing, and gives a sentence or data."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading

import numpy as np
import pytest

from netvitals.capture import ArrayMeasurement, Measurement
from netvitals.cli import main
from netvitals.runs import Follower, RunWriter, open_run, recover
from netvitals.runs.checksum import Summary, pack, seal
from netvitals.runs.database import RunDatabase

COUNTING = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
TABLES = {
    "summary": "id, crc, record",
    "meta": "key, crc, value",
    "series": "id, crc, vital, site, metric",
    "batch": "id, crc, segment, data",
    "array": "id, head, crc, segment, step, series, dtype, shape, data",
    "finding": "id, crc, record",
    "forecast": "id, crc, segment, record",
}


@pytest.fixture
def run(tmp_path):
    with RunWriter(tmp_path / "r", meta={"model": "MLP"}) as writer:
        writer.write(
            [Measurement(step, "loss", "model", "loss", 1.0) for step in range(50)],
            [ArrayMeasurement(0, "gates", "layer", "channels", np.ones(5))],
        )
    return writer.path


def change(path, script):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA writable_schema=ON")
    connection.executescript(script)
    connection.commit()
    connection.close()


def everything(path):
    run = open_run(path)
    run.verify()
    return run.meta, run.summary, run.frame(), run.arrays(), run.findings(), run.forecasts(), run.steps, run.status


def in_time(work, seconds=20.0):
    """What ``work`` raises or returns; a failure where it does not end."""
    out = []

    def body():
        try:
            out.append(work())
        except BaseException as error:
            out.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(seconds)
    assert out, "it does not end"
    return out[0]


def refused(path, follower=True):
    """The sentence with which every way to read the run refuses it; a follower does not read all of it."""
    sentences = []
    ways = [lambda: everything(path), lambda: RunWriter(path, existing="resume"), lambda: Follower(path).news()]
    for work in ways if follower else ways[:2]:
        error = in_time(work)
        assert isinstance(error, ValueError | OSError), error
        assert str(path) in str(error) and "Traceback" not in str(error)
        sentences.append(str(error))
    saved = in_time(lambda: recover(path, path.parent.parent / "saved"))
    shutil.rmtree(path.parent.parent / "saved", ignore_errors=True)
    assert isinstance(saved, ValueError | OSError) or saved.path
    return sentences[0]


@pytest.mark.parametrize("table", list(TABLES))
def test_a_view_that_never_ends_in_place_of_a_table_is_refused(run, table):
    columns = ", ".join(f"x AS {name}" for name in TABLES[table].split(", "))
    change(run, f"DROP TABLE IF EXISTS {table}; CREATE VIEW {table} AS {COUNTING} SELECT {columns} FROM c;")
    assert f"the view '{table}', which netvitals does not write" in refused(run)


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TRIGGER t AFTER INSERT ON batch BEGIN DELETE FROM series; END;",
        "CREATE TRIGGER t AFTER INSERT ON summary BEGIN SELECT randomblob(1000000000); END;",
        "CREATE TABLE more (x);",
        "CREATE INDEX i ON batch (length(data));",
        "CREATE VIEW v AS SELECT 1;",
        "CREATE TEMP TABLE t (x); CREATE TABLE sqlite (x);",
        "ALTER TABLE batch ADD COLUMN more BLOB GENERATED ALWAYS AS (zeroblob(900000000)) VIRTUAL;",
        "DROP TABLE batch; CREATE TABLE batch (id INTEGER PRIMARY KEY, crc INTEGER, segment INTEGER,"
        " data BLOB GENERATED ALWAYS AS (zeroblob(900000000)) VIRTUAL);",
        "DROP TABLE series; CREATE TABLE series (id, crc INTEGER, vital TEXT, site TEXT, metric TEXT);",
        "DROP TABLE finding; CREATE TABLE finding (id INTEGER PRIMARY KEY, crc INTEGER, record TEXT CHECK (1));",
        "DROP TABLE batch; CREATE VIRTUAL TABLE batch USING fts5(id, crc, segment, data);",
        "DELETE FROM sqlite_master WHERE name = 'array';",
        "UPDATE sqlite_master SET name = 'batch2' WHERE name = 'batch';",
        "UPDATE sqlite_master SET type = 'table', sql = 'CREATE VIEW batch AS SELECT 1' WHERE name = 'batch';",
        "UPDATE sqlite_master SET rootpage = 1 WHERE name = 'batch';",
        "UPDATE sqlite_master SET rootpage = 999999999 WHERE name = 'batch';",
        "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'meta')"
        " WHERE name = 'series';",
        "UPDATE sqlite_master SET sql = sql || printf('%.*c', 900000, ' ') WHERE name = 'batch';",
    ],
)
def test_what_netvitals_does_not_write_is_refused(run, script):
    try:
        change(run, script)
    except sqlite3.OperationalError as error:
        pytest.skip(f"this SQLite cannot make it: {error}")
    refused(run)


def test_a_schema_of_many_thousand_tables_is_refused(run):
    change(run, "BEGIN;" + "".join(f"CREATE TABLE t{i} (x);" for i in range(3_000)) + "COMMIT;")
    assert "which netvitals does not write" in refused(run)


def node(children, kind=5):
    """An interior page of a table whose children are given as (page, key); the last page has no key."""
    *left, (last, _) = children
    page = bytearray(4096)
    cells = [child.to_bytes(4, "big") + bytes([key]) for child, key in left]
    at = 4096
    for i, cell in enumerate(cells):
        at -= len(cell)
        page[at : at + len(cell)] = cell
        page[12 + 2 * i : 14 + 2 * i] = at.to_bytes(2, "big")
    page[:12] = (
        bytes([kind, 0, 0]) + len(cells).to_bytes(2, "big") + at.to_bytes(2, "big") + b"\0" + last.to_bytes(4, "big")
    )
    return bytes(page)


@pytest.mark.parametrize("table", ["summary", "series", "batch", "array", "finding"])
def test_pages_that_refer_to_each_other_many_times_do_not_multiply_the_rows(run, table):
    """Twelve levels of 400 children that are all the same page: 400¹² rows in 50 kB."""
    connection = sqlite3.connect(run)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    if table == "finding":
        record = json.dumps({"severity": "note", "site": "", "what": "x"})
        connection.execute("INSERT INTO finding VALUES (1, ?, ?)", (seal(1, record), record))
        connection.commit()
    connection.close()
    data = bytearray(run.read_bytes())
    leaf = bytes(data[(root - 1) * 4096 : root * 4096])
    pages = len(data) // 4096
    levels = [node([(pages + 2 + level, 1)] * 400) for level in range(12)]
    data += b"".join(levels) + leaf
    data[(root - 1) * 4096 : root * 4096] = node([(pages + 1, 1)] * 400)
    data[28:32] = (len(data) // 4096).to_bytes(4, "big")
    run.write_bytes(data)
    refused(run, follower=table != "finding")


def test_a_chain_of_pages_that_many_rows_share_does_not_multiply_the_bytes(run):
    """A row's large blob lies on pages of its own; rows of a hostile file may all point to the same ones."""
    connection = sqlite3.connect(run)
    connection.execute("PRAGMA secure_delete=ON")
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'batch'").fetchone()
    connection.execute("DELETE FROM batch")
    blob = pack(np.zeros(200_000, np.int64), np.ones(200_000, np.int64), np.zeros(200_000))
    connection.execute("INSERT INTO batch VALUES (1, ?, 0, ?)", (seal(1, 0, blob), blob))
    connection.commit()
    connection.close()
    data = bytearray(run.read_bytes())
    at = (root - 1) * 4096
    assert data[at] == 13
    cell_at = int.from_bytes(data[at + 8 : at + 10], "big")
    cell = bytes(data[at + cell_at : at + 4096])
    head = cell.index(b"\x01", 3)  # payload length (4 bytes of 7 bits), then the row's number
    many, place, pointers = min(60, (cell_at - 200) // len(cell) + 1), 4096, []
    for number in range(1, many + 1):
        one = bytearray(cell)
        one[head] = number
        place -= len(one)
        data[at + place : at + place + len(one)] = one
        pointers.append(place)
    data[at + 3 : at + 5] = len(pointers).to_bytes(2, "big")
    data[at + 5 : at + 7] = place.to_bytes(2, "big")
    for i, pointer in enumerate(pointers):
        data[at + 8 + 2 * i : at + 10 + 2 * i] = pointer.to_bytes(2, "big")
    run.write_bytes(data)
    refused(run)


def resealed(path, **changes):
    """Write another summary, with the right seal."""
    connection = sqlite3.connect(path)
    (record,) = connection.execute("SELECT record FROM summary").fetchone()
    summary = json.loads(record) | changes
    text = json.dumps(summary)
    connection.execute("UPDATE summary SET crc = ?, record = ?", (seal(0, text), text))
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "changes",
    [{"batches": "x"}, {"batches": None}, {"batches": 1.5}, {"series": -1}, {"measurements": 10**30}, {"arrays": True}]
    + [{"shown": []}, {"shown": None}, {"last_step": "9"}, {"metas": [1]}, {"meta_sum": {}}],
)
def test_a_summary_of_odd_values_is_refused(run, changes):
    resealed(run, **changes)
    refused(run)


@pytest.mark.parametrize("heartbeat", ["soon", None, [], {}, 1e308, float("nan"), float("inf"), -1e308])
@pytest.mark.parametrize("machine", ["another", 7, []])
def test_a_heartbeat_of_any_kind_is_no_error(run, heartbeat, machine):
    resealed(run, shown={"status": "running", "heartbeat": heartbeat, "machine": machine})
    assert open_run(run).status == "interrupted"


def test_json_that_is_nested_too_deep_is_refused(run):
    connection = sqlite3.connect(run)
    deep = "[" * 200_000 + "]" * 200_000
    connection.execute("INSERT INTO finding VALUES (1, ?, ?)", (seal(1, deep), deep))
    connection.commit()
    connection.close()
    resealed(run, findings=1, findings_sum=seal(1, deep))
    refused(run, follower=False)
    resealed(run, findings=0, findings_sum=0)
    connection = sqlite3.connect(run)
    text = '{"shown": ' + deep + "}"
    connection.execute("UPDATE summary SET crc = ?, record = ?", (seal(0, text), text))
    connection.commit()
    connection.close()
    refused(run)


def test_measurements_of_a_series_that_has_no_name_are_refused(tmp_path):
    """The page keeps a table with a row for every series: a number of 2³¹ would be 700 GB."""
    ledger = RunDatabase(tmp_path / "r", "refuse")
    for number in (2**31 - 1, 0, -5):
        blob = pack(np.zeros(3, np.int64), np.full(3, number), np.zeros(3))
        ledger.connection.execute("DELETE FROM batch")
        ledger.connection.execute("INSERT INTO batch VALUES (1, ?, 0, ?)", (seal(1, 0, blob), blob))
        row = Summary(batches=1, measurements=3, commits=1).row()
        ledger.connection.execute("INSERT OR REPLACE INTO summary VALUES (?, ?, ?)", row)
        for work in (lambda: open_run(ledger.path).frame(), lambda: Follower(ledger.path).news()):
            with pytest.raises(ValueError, match="the measurements belongs to a series without a name"):
                work()
    ledger.close()


@pytest.mark.parametrize("dtype", ["O", "|O8", "V999999999", "<U99999999", "x", "", "<f8,O", "datetime64"])
def test_an_array_of_any_dtype_is_data_or_refused(run, dtype):
    connection = sqlite3.connect(run)
    row = (1, 0, 0, 2, dtype, "[5]")
    connection.execute("UPDATE array SET head = ?, dtype = ?", (seal(*row), dtype))
    connection.commit()
    connection.close()
    error = in_time(lambda: open_run(run).arrays())
    assert isinstance(error, ValueError), error


@pytest.mark.parametrize("shape", ["[1000000000000]", "[-1, -1]", "[[5]]", '"x"', "null", "[1e3]", "{}"])
def test_an_array_of_any_shape_is_data_or_refused(run, shape):
    connection = sqlite3.connect(run)
    row = (1, 0, 0, 2, "<f8", shape)
    connection.execute("UPDATE array SET head = ?, shape = ?", (seal(*row), shape))
    connection.commit()
    connection.close()
    error = in_time(lambda: open_run(run).arrays())
    assert isinstance(error, ValueError), error


def test_huge_blobs_are_refused(run):
    connection = sqlite3.connect(run)
    connection.execute("UPDATE series SET site = CAST(zeroblob(20000000) AS TEXT)")
    connection.commit()
    connection.close()
    refused(run)


def test_a_huge_file_with_nothing_in_it_is_refused_at_once(run):
    os.truncate(run, 1 << 40)  # a terabyte of holes
    error = in_time(lambda: everything(run))
    assert isinstance(error, ValueError) or error[2].height == 50


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_side_files_that_are_no_files_are_refused(run, ending, kind, tmp_path):
    side = run.with_name(run.name + ending)
    secret = tmp_path / "secret"
    secret.write_text("secret " * 1000)
    {"pipe": os.mkfifo, "link": lambda p: os.symlink(secret, p), "folder": os.mkdir}[kind](side)
    assert "is not a regular file" in refused(run)
    assert secret.read_text() == "secret " * 1000


@pytest.mark.parametrize("name", ["-wal", "-journal", "-shm"])
def test_side_files_of_any_content_are_no_error(run, name):
    rng = np.random.default_rng(0)
    for size in (1, 31, 32, 100, 4152, 40_000):
        run.with_name(run.name + name).write_bytes(rng.bytes(size))
        error = in_time(lambda: everything(run))
        assert isinstance(error, ValueError | OSError | tuple), error


def test_the_command_line_ends_on_a_bomb(run, capsys):
    change(run, f"DROP TABLE meta; CREATE VIEW meta AS {COUNTING} SELECT x AS key, x AS crc, x AS value FROM c;")
    for command in ("report", "check", "export", "top", "forecasts", "recover"):
        stop = in_time(lambda command=command: main([command, str(run)]))
        assert isinstance(stop, SystemExit) and stop.code in (0, 2, None)
    assert "Traceback" not in capsys.readouterr().err


def test_a_pipe_in_place_of_a_run_is_no_run(tmp_path):
    (tmp_path / "r").mkdir()
    os.mkfifo(tmp_path / "r" / "run.sqlite")
    error = in_time(lambda: open_run(tmp_path / "r"))
    assert isinstance(error, FileNotFoundError)


def test_nothing_that_is_attached_or_loaded_comes_from_the_file(run):
    change(
        run,
        "DROP TABLE meta; CREATE VIEW meta AS SELECT load_extension('x') AS key, 1 AS crc, writefile('y', 1) AS value;",
    )
    refused(run)
    assert not (run.parent / "y").exists()
