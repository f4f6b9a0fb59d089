"""The writer survives any value, says what it replaced, and tells the truth when the disk does not play along."""

from __future__ import annotations

import shutil
import stat
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.capture import ArrayMeasurement, Measurement
from netvitals.runs import RunWriter, open_run


@pytest.mark.parametrize("step", [np.int64(7), np.int32(7), np.uint8(7), True, 7.0, torch.tensor(7)])
def test_a_step_of_any_whole_number_type_is_that_number(tmp_path, step):
    with RunWriter(tmp_path / "r") as writer:
        writer.write([Measurement(step, "v", "s", "m", 1.0)], [ArrayMeasurement(step, "v", "s", "a", np.ones(2))])
    run = open_run(tmp_path / "r")
    assert run.frame()["step"].to_list() == [int(step)] and run.arrays()[0].step == int(step)
    assert "replaced" not in run.meta


@pytest.mark.parametrize(
    ("step", "kept"), [(2**63, 2**63 - 1), (-(2**70), -(2**63)), (float("nan"), -1), ("x", -1), (1.5, 1), (None, -1)]
)
def test_a_step_that_cannot_be_stored_is_replaced_and_noted(tmp_path, step, kept):
    with RunWriter(tmp_path / "r") as writer:
        writer.write([Measurement(step, "v", "s", "m", 1.0), Measurement(3, "v", "s", "m", 2.0)])
        assert writer.flush()
    run = open_run(tmp_path / "r")
    assert sorted(run.frame()["step"]) == sorted([kept, 3])
    assert len(run.meta["replaced"]) == 1 and "step" in run.meta["replaced"][0]


@pytest.mark.parametrize("name", ["layer\ud800", "nul\0byte", "", "ü" * 5000, "'; DROP TABLE batch; --"])
def test_a_module_name_of_any_kind_does_not_stop_the_writer(tmp_path, name):
    with RunWriter(tmp_path / "r", meta={name: name}) as writer:
        writer.write([Measurement(0, "v", name, "m", 1.0)])
        assert writer.flush()
        writer.write([Measurement(1, "v", name, "m", 2.0)])
    run = open_run(tmp_path / "r")
    assert run.frame()["value"].to_list() == [1.0, 2.0] and run.frame()["site"].n_unique() == 1
    assert run.frame()["site"][0].startswith(name[:3].replace("\0", "\\"))


def test_a_value_that_is_no_number_is_kept_as_nan_and_noted(tmp_path):
    values = [1, np.float32(0.5), torch.tensor(2.0), "many", None, 1j, True]
    with RunWriter(tmp_path / "r") as writer:
        writer.write([Measurement(i, "v", "s", "m", v) for i, v in enumerate(values)])
    run = open_run(tmp_path / "r")
    assert str(run.frame()["value"].to_list()) == "[1.0, 0.5, 2.0, nan, nan, nan, 1.0]"
    assert len(run.meta["replaced"]) == 3


def test_a_note_of_any_kind_is_kept(tmp_path):
    class Awkward:
        def __repr__(self):
            raise RuntimeError("no words")

    circle: list = []
    circle.append(circle)
    deep: list = []
    for _ in range(50_000):
        deep = [deep]
    with RunWriter(tmp_path / "r") as writer:
        writer.note("f", deep)
        writer.note("g", "x" * (65 << 20))
        for key, value in {"a": Awkward(), "b": circle, "c": "\ud800", "d": {1: {2, 3}}, "e": 10**400}.items():
            writer.note(key, value)
        assert writer.flush()
    kept = open_run(tmp_path / "r").meta
    assert {"a", "b", "c", "d", "e", "f"} <= set(kept) and kept["g"] == "a str that is too long to keep"


def test_warnings_that_are_errors_do_not_end_the_thread(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer = RunWriter(tmp_path / "r", flush_every=0.02)
        shutil.rmtree(tmp_path / "r")
        writer.write([Measurement(0, "v", "s", "m", 1.0)])
        assert not writer.flush()
        (tmp_path / "r").mkdir()
        assert writer.flush(), "the thread is gone"
        writer.close()
    assert open_run(tmp_path / "r").steps == [0]


def test_a_folder_deleted_during_training_is_said_and_comes_back_whole(tmp_path):
    model = nn.Linear(2, 2)
    vitals = nv.watch(model, run=tmp_path / "r", vitals=["gates"])
    for step in range(5):
        vitals.step(float(step))
    assert vitals.flush()
    shutil.rmtree(tmp_path / "r")
    vitals.step(5.0)
    with pytest.warns(RuntimeWarning, match=r"cannot be written .its folder .* is gone"):
        assert not vitals.flush(), "nothing of it is on disk"
    vitals.step(6.0)
    assert not vitals.flush()
    (tmp_path / "r").mkdir()  # as when a mount comes back
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert vitals.flush()
        vitals.step(7.0)
        vitals.close()
    assert open_run(tmp_path / "r").frame(vital="loss")["value"].to_list() == [float(i) for i in range(8)]


def test_a_folder_that_never_comes_back_is_made_again_at_the_end(tmp_path):
    writer = RunWriter(tmp_path / "r", flush_every=0.05)
    writer.write([Measurement(0, "v", "s", "m", 1.0)])
    writer.flush()
    shutil.rmtree(tmp_path / "r")
    writer.write([Measurement(1, "v", "s", "m", 1.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writer.close()
    assert open_run(tmp_path / "r").steps == [0, 1]


def test_a_full_disk_is_said_at_once_and_what_fits_in_memory_is_written_later(tmp_path):
    writer = RunWriter(tmp_path / "r", flush_every=60)
    limit = writer._ledger.connection.execute("PRAGMA max_page_count").fetchone()[0]
    writer._ledger.connection.execute("PRAGMA max_page_count=1")  # SQLite says then what it says of a full disk
    writer.write([Measurement(i, "v", "s", "m", float(i)) for i in range(5000)])
    with pytest.warns(RuntimeWarning, match=r"cannot be written .database or disk is full"):
        assert not writer.flush()
    writer._ledger.connection.execute(f"PRAGMA max_page_count={limit}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert writer.flush()
    writer.close()
    assert open_run(tmp_path / "r").frame().height == 5000


def test_a_new_run_is_there_whole_or_not_at_all_and_for_its_owner_only(tmp_path, monkeypatch):

    from netvitals.runs import store

    def interrupted(connection):
        connection.execute("CREATE TABLE half (x)")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "lay_out", interrupted)
        with pytest.raises(KeyboardInterrupt):
            RunWriter(tmp_path / "r")
    assert not (tmp_path / "r" / "run.sqlite").exists()
    with RunWriter(tmp_path / "r") as writer:
        assert {stat.S_IMODE(p.stat().st_mode) for p in writer.path.parent.iterdir()} == {0o600}
    assert stat.S_IMODE(writer.path.stat().st_mode) == 0o600


def test_what_was_dropped_is_not_called_flushed(tmp_path):
    writer = RunWriter(tmp_path / "r", capacity=10, flush_every=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writer.write([Measurement(i, "v", "s", "m", 1.0) for i in range(20)])
    assert not writer.flush()
    writer.close()
    assert open_run(tmp_path / "r").meta["dropped"] == 20
