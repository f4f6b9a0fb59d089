"""The run store keeps what it was given, refuses what it cannot read, and never stands in the way of training."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import threading
import time
import warnings
from typing import ClassVar

import numpy as np
import polars as pl
import pytest

from netvitals.capture import ArrayMeasurement, Measurement, Site
from netvitals.runs import Evidence, Finding, RunWriter, export, open_run


def _measurements(step: int) -> list[Measurement]:
    return [
        Measurement(step, "gates", f"layer{i}", metric, step + 0.1 * i)
        for i in range(3)
        for metric in ("density", "mean")
    ] + [Measurement(step, "loss", "", "loss", 1.0 / (step + 1))]


@pytest.fixture
def run(tmp_path):
    with RunWriter(tmp_path / "first", meta={"model": "MLP", "seed": 3, "sites": [Site("layer0", "activation")]}) as w:
        for step in range(0, 50, 10):
            w.write(
                _measurements(step),
                [ArrayMeasurement(step, "gates", "layer0", "channels", np.full((2, 3), step, "f4"))],
            )
    return open_run(tmp_path / "first")


def test_who_judges_a_run_is_an_argument_and_no_matter_of_imports(tmp_path):
    import netvitals.findings  # noqa: F401

    with RunWriter(tmp_path / "r") as writer:
        writer.write([])
    assert open_run(tmp_path / "r").findings() == []  # nobody was named
    text = [Finding("info", "", "judged")]
    asked = []
    run = open_run(tmp_path / "r", judge=lambda run: asked.append(run) or text)
    assert run.findings() == text and asked == [run]


def test_numbers_come_back_as_they_were_written(run):
    frame = run.frame()
    assert frame.columns == ["step", "vital", "site", "metric", "value"]
    expected = [(r.step, r.vital, r.site, r.metric, r.value) for step in range(0, 50, 10) for r in _measurements(step)]
    assert frame.rows() == expected
    assert run.steps == [0, 10, 20, 30, 40]
    assert run.status == "finished"
    assert len(run.series) == 7


def test_a_frame_can_be_asked_by_name_by_names_and_by_pattern(run):
    assert set(run.frame(vital="loss")["site"]) == {""}
    assert set(run.frame(site=["layer0", "layer2"])["site"]) == {"layer0", "layer2"}
    assert run.frame(site="layer*", metric="density").height == 15
    with pytest.raises(LookupError, match=r"no vital .nothing."):
        run.frame(vital="nothing")
    assert run.frame(vital="nothing*").schema["value"] == pl.Float64


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "u1", "?", "c16"])
def test_arrays_keep_their_dtype_and_shape(tmp_path, dtype):
    given = (np.arange(12).reshape(3, 4) % 2).astype(dtype)
    with RunWriter(tmp_path / "r") as writer:
        writer.write(
            [],
            [
                ArrayMeasurement(1, "v", "s", "m", given),
                ArrayMeasurement(2, "v", "s", "m", given[:, ::2]),
                ArrayMeasurement(3, "v", "s", "m", np.array(1, dtype)),
            ],
        )
    back = open_run(tmp_path / "r").arrays(vital="v", metric="m")
    assert [a.step for a in back] == [1, 2, 3]
    assert all(a.value.dtype == given.dtype for a in back)
    np.testing.assert_array_equal(back[0].value, given)
    np.testing.assert_array_equal(back[1].value, given[:, ::2])
    assert back[2].value.shape == ()


def test_numbers_that_are_not_finite_survive(tmp_path):
    values = [float("nan"), float("inf"), -float("inf"), 1e-300]
    with RunWriter(tmp_path / "r") as writer:
        writer.write([Measurement(i, "v", "s", "m", x) for i, x in enumerate(values)])
    back = open_run(tmp_path / "r").frame()["value"].to_list()
    assert math.isnan(back[0])
    assert back[1:] == values[1:]
    document = json.loads(export(open_run(tmp_path / "r"), "json").read_text())
    assert document["measurements"]["value"] == ["nan", "inf", "-inf", 1e-300]


def test_metadata_takes_anything_and_names_the_versions(run):
    meta = run.meta
    assert meta["model"] == "MLP" and meta["seed"] == 3
    assert meta["sites"][0]["name"] == "layer0"
    assert {"netvitals", "torch", "numpy", "python", "started", "ended"} <= set(meta)
    assert "host" not in meta and "platform" not in meta


def test_findings_are_stored_and_replaced(tmp_path):
    first = Finding("note", "a", "one", evidence=(Evidence("gates", "a", "density", 3, 0.5, before=0.7),))
    with RunWriter(tmp_path / "r") as writer:
        writer.finding(first, Finding("info", "", "two"))
        writer.flush()
        assert open_run(tmp_path / "r").findings() == [first, Finding("info", "", "two")]
        writer.replace_findings([Finding("critical", "b", "three", sites=("b", "c"))])
    assert open_run(tmp_path / "r").findings() == [Finding("critical", "b", "three", sites=("b", "c"))]
    with pytest.raises(ValueError, match="severity= must be one of"):
        Finding("bad", "", "x")  # type: ignore[arg-type]


def test_overwrite_replaces_a_run_and_nothing_else(tmp_path):
    with RunWriter(tmp_path / "r") as writer:
        writer.write(_measurements(0))
    with RunWriter(tmp_path / "r", existing="overwrite") as writer:
        writer.write(_measurements(7))
        with pytest.raises(OSError, match="is written by this process"):
            RunWriter(tmp_path / "r", existing="overwrite")
    assert open_run(tmp_path / "r").steps == [7]
    (tmp_path / "mine.sqlite").write_text("not a run")
    with pytest.raises(ValueError, match="is no"):
        RunWriter(tmp_path / "mine.sqlite", existing="overwrite")
    assert (tmp_path / "mine.sqlite").read_text() == "not a run"


def test_an_existing_run_is_never_overwritten_unasked(tmp_path):
    RunWriter(tmp_path / "r").close()
    before = (tmp_path / "r" / "run.sqlite").read_bytes()
    with pytest.warns(UserWarning, match=r"already contains a run; this run is written to .*r-2"):
        second = RunWriter(tmp_path / "r")
    second.close()
    assert second.path == tmp_path / "r-2" / "run.sqlite"
    assert (tmp_path / "r" / "run.sqlite").read_bytes() == before
    with pytest.raises(FileExistsError, match="already contains a run"):
        RunWriter(tmp_path / "r", existing="refuse")
    RunWriter(tmp_path / "x.sqlite").close()
    with pytest.warns(UserWarning, match=r"x-2\.sqlite"):
        RunWriter(tmp_path / "x.sqlite").close()


def test_a_file_in_the_way_of_a_run_gets_a_sentence(tmp_path):
    (tmp_path / "notes").write_text("mine")
    for path in (tmp_path / "notes", tmp_path / "notes" / "below"):
        with pytest.raises(FileExistsError, match="a run needs a folder"):
            RunWriter(path)
    assert (tmp_path / "notes").read_text() == "mine"


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RunWriter("~/runs/first").close()
    assert open_run("~/runs/first").path == tmp_path / "home" / "runs" / "first" / "run.sqlite"
    assert not (tmp_path / "~").exists()


def test_a_closed_run_is_one_file(run):
    assert [p.name for p in run.path.parent.iterdir()] == ["run.sqlite"]


def test_a_reader_sees_a_run_grow(tmp_path):
    with RunWriter(tmp_path / "r", flush_every=60) as writer:
        run = open_run(tmp_path / "r")
        assert run.status == "running" and run.frame().height == 0
        for step in range(5):
            writer.write(_measurements(step))
            assert writer.flush()
            assert run.steps == list(range(step + 1))


def test_measurements_reach_the_disk_without_being_asked(tmp_path):
    with RunWriter(tmp_path / "r", flush_every=0.05) as writer:
        writer.write(_measurements(1))
        deadline = time.monotonic() + 120
        while not open_run(tmp_path / "r").steps and time.monotonic() < deadline:
            time.sleep(0.02)
        assert open_run(tmp_path / "r").steps == [1]


def test_what_is_not_a_run_gets_a_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no run at"):
        open_run(tmp_path / "nowhere")
    (tmp_path / "text.sqlite").write_text("not a database at all, but long enough to have a header " * 20)
    with pytest.raises(ValueError, match="is not a netvitals run"):
        open_run(tmp_path / "text.sqlite")
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (x)")
    with pytest.raises(ValueError, match="is not a netvitals run"):
        open_run(tmp_path / "other.db")
    RunWriter(tmp_path / "there").close()
    with pytest.raises(FileNotFoundError, match=r"runs near it: .*there"):
        open_run(tmp_path / "their")


def test_a_file_of_another_layout_is_refused_with_advice(run):
    with sqlite3.connect(run.path) as connection:
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(ValueError, match="has file format 99, but this version of netvitals reads format 2; upgrade"):
        open_run(run.path)


def test_a_failing_disk_is_said_once_and_nothing_is_lost_when_it_recovers(tmp_path, monkeypatch):
    writer = RunWriter(tmp_path / "r", flush_every=0.02)
    real = writer._ledger.connection

    class Full:
        in_transaction = False
        callers: ClassVar[set[int]] = set()

        def execute(self, *_):
            self.callers.add(threading.get_ident())
            raise sqlite3.OperationalError("database or disk is full")

    with warnings.catch_warnings(record=True) as sentence:
        warnings.simplefilter("always")
        writer._ledger.connection = Full()  # type: ignore[assignment]
        for step in range(5):
            writer.write(_measurements(step))
            writer.flush(timeout=120)
        assert not writer.flush(timeout=120)
        assert Full.callers == {writer._thread.ident}  # training never waits for the disk
        assert len([w for w in sentence if "disk is full" in str(w.message)]) == 1
    writer._ledger.connection = real
    writer.close()
    assert open_run(tmp_path / "r").steps == [0, 1, 2, 3, 4]
    assert open_run(tmp_path / "r").frame().height == 35


def test_a_full_buffer_drops_counts_and_says_so_instead_of_blocking(tmp_path):
    writer = RunWriter(tmp_path / "r", capacity=100, flush_every=60)
    with warnings.catch_warnings(record=True) as sentence, writer._wake:  # the thread is held up
        warnings.simplefilter("always")
        for step in range(50):
            writer.write(_measurements(step))
    assert ["dropped and counted" in str(w.message) for w in sentence] == [True]
    writer.close()
    run = open_run(tmp_path / "r")
    assert run.frame().height + run.meta["dropped"] == 350
    assert run.frame().height <= 100


def test_a_closed_writer_says_so_and_an_exception_is_noted(tmp_path):
    with contextlib.suppress(RuntimeError), RunWriter(tmp_path / "r") as writer:
        writer.write(_measurements(0))
        raise RuntimeError("boom")
    assert open_run(tmp_path / "r").status == "stopped by RuntimeError"
    assert open_run(tmp_path / "r").steps == [0]
    with pytest.raises(ValueError, match="is closed"):
        writer.write(_measurements(1))
    writer.close()


def test_writers_leave_no_thread_behind(tmp_path):
    before = threading.active_count()
    for i in range(3):
        RunWriter(tmp_path / f"r{i}").close()
    assert threading.active_count() == before


class Seen:
    """A connection that notes which thread speaks to it."""

    def __init__(self, connection):
        self.connection, self.callers = connection, []

    def __getattr__(self, name):
        self.callers.append(threading.get_ident())
        return getattr(self.connection, name)


def test_handing_over_leaves_the_database_to_the_other_thread(tmp_path):
    batches = [_measurements(step) * 40 for step in range(200)]  # 280 measurements each
    with RunWriter(tmp_path / "r") as writer:
        writer._ledger.connection = seen = Seen(writer._ledger.connection)  # type: ignore[assignment]
        for batch in batches:
            writer.write(batch)
        assert writer.flush(timeout=120)
        assert set(seen.callers) == {writer._thread.ident}
    assert open_run(tmp_path / "r").frame().height == 200 * 280
    assert writer.path.stat().st_size < 30 * 200 * 280, "more than 30 bytes a measurement"


@pytest.mark.parametrize("to", ["parquet", "csv", "json"])
def test_an_export_holds_every_number(run, tmp_path, to):
    path = export(run, to, tmp_path / "out" / f"x.{to}")
    if to == "json":
        document = json.loads(path.read_text())
        frame = pl.DataFrame(document["measurements"])
        assert document["meta"]["model"] == "MLP" and len(document["arrays"]) == 5
    else:
        frame = pl.read_parquet(path) if to == "parquet" else pl.read_csv(path).fill_null("")
    assert frame.rows() == run.frame().rows()


def test_an_unknown_export_format_is_refused(run):
    with pytest.raises(ValueError, match="parquet, csv, json, got 'xml'"):
        export(run, "xml")
