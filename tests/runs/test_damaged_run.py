"""A changed bit is told, never believed; what is intact can be saved."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
import sys

import numpy as np
import pytest

from netvitals.capture import ArrayMeasurement, Measurement, Site
from netvitals.cli import main
from netvitals.runs import Evidence, Finding, RunDamaged, RunWriter, export, open_run, recover, wal
from netvitals.runs.store import OLD_LAYOUT

FLIPS = 200


def write(path, commits=6):
    with RunWriter(
        path, meta={"model": "MLP", "sites": [Site(f"layer{i}", "activation") for i in range(30)]}
    ) as writer:
        for commit in range(commits):
            for step in range(commit * 10, commit * 10 + 10):
                writer.write(
                    [Measurement(step, "gates", f"layer{i}", "density", step + i / 100) for i in range(30)],
                    [ArrayMeasurement(step, "gates", "layer0", "channels", np.arange(40.0) + step)],
                )
            writer.finding(Finding("note", f"layer{commit}", "x", evidence=(Evidence("v", "s", "m", commit, 0.5),)))
            writer.flush()
    return writer.path


def everything(path):
    run = open_run(path)
    return (
        sorted((k, str(v)) for k, v in run.meta.items()),
        run.status,
        run.frame().rows(),
        run.frame(abandoned=True).rows(),
        [(a.step, a.vital, a.site, a.metric, a.value.tolist()) for a in run.arrays()],
        [(a.step, a.value.tolist()) for a in run.arrays(last=True)],
        [f.to_dict() for f in run.findings()],
        run.steps,
        run.series,
        [(a, b, c, s.tolist(), v.tolist()) for a, b, c, s, v in run.by_series()],
        (run.summary.last_step, run.summary.measurements),
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = write(tmp_path_factory.mktemp("whole") / "r")
    return path, path.read_bytes(), everything(path)


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def outcome(path, truth):
    try:
        return "equal" if everything(path) == truth else "silently wrong"
    except ValueError as error:  # RunDamaged, or the sentence for what is no run at all
        return "damage is told" if str(path) in str(error) else f"an odd sentence: {error}"


def test_no_flipped_bit_gives_a_wrong_value_or_a_raw_error(whole, tmp_path):
    _, data, truth = whole
    random.seed(7)
    path = tmp_path / "run.sqlite"
    seen = {"equal": 0, "damage is told": 0}
    for _ in range(FLIPS):
        bit = random.randrange(8 * len(data))
        path.write_bytes(flipped(data, bit))
        result = outcome(path, truth)
        assert result in ("equal", "damage is told"), f"{result}: bit {bit} of {len(data)} bytes"
        seen[result] += 1
    assert seen["damage is told"] > FLIPS // 2, seen


@pytest.mark.slow
def test_every_bit_of_the_first_hundred_bytes(whole, tmp_path):
    _, data, truth = whole
    path = tmp_path / "run.sqlite"
    for bit in range(0, 800, 3):
        path.write_bytes(flipped(data, bit))
        assert outcome(path, truth) != "silently wrong", bit


def test_a_cut_file_is_told(whole, tmp_path):
    _, data, truth = whole
    path = tmp_path / "run.sqlite"
    for share in (0.1, 0.3, 0.5, 0.9, 0.99):
        path.write_bytes(data[: int(len(data) * share)])
        assert outcome(path, truth) == "damage is told"


def test_a_row_that_was_removed_or_put_back_is_told(whole, tmp_path):
    path, _, _ = whole
    for change in (
        "DELETE FROM batch WHERE id = (SELECT max(id) FROM batch)",
        "DELETE FROM array WHERE id = 3",
        "DELETE FROM meta WHERE key = 'model'",
        "DELETE FROM finding WHERE id = 6",
        "DELETE FROM series WHERE id = 30",
        "DELETE FROM summary",
        "UPDATE array SET series = 2 WHERE id = 3",
        "UPDATE batch SET segment = 1 WHERE id = 1",
        "UPDATE series SET vital = CAST(vital AS BLOB) WHERE id = 3",
        "UPDATE meta SET value = CAST(value AS BLOB) WHERE key = 'model'",
        "UPDATE array SET dtype = CAST(dtype AS BLOB) WHERE id = 3",
    ):
        copy = tmp_path / "copy.sqlite"
        shutil.copy(path, copy)
        with sqlite3.connect(copy) as connection:
            connection.execute(change)
        connection.close()
        with pytest.raises(RunDamaged, match=r"copy\.sqlite is damaged: .*Intact: \d+.* netvitals recover"):
            open_run(copy).verify()


def test_recover_writes_what_is_intact_and_nothing_else(whole, tmp_path):
    path, data, truth = whole
    frame, arrays = set(truth[2]), {(a[0], tuple(a[4])) for a in truth[4]}
    random.seed(3)
    rescued = []
    for trial in range(40):
        bad = tmp_path / f"bad{trial}.sqlite"
        bad.write_bytes(flipped(data, random.randrange(8 * len(data)) if trial else 8 * 150))
        try:
            found = recover(bad, tmp_path / f"good{trial}.sqlite")
        except ValueError:
            continue
        run = open_run(found.path)
        run.verify()
        rows = set(run.frame(vital="gates").rows())
        assert rows <= frame and {(a.step, tuple(a.value)) for a in run.arrays(vital="gates")} <= arrays
        assert run.meta["recovered"] == str(found)
        assert bad.read_bytes() != path.read_bytes()
        rescued.append(len(rows) / len(frame))
    assert len(rescued) >= 38 and np.mean(rescued) > 0.9, (
        f"{np.mean(rescued):.3f} of the measurements, {len(rescued)} runs"
    )


@pytest.mark.parametrize("command", ["report", "export", "recover", "view"])
def test_the_command_line_has_a_sentence_for_a_damaged_run(whole, tmp_path, command, capsys):
    _, data, _ = whole
    random.seed(5)
    bits = [8 * 18, 8 * 30, 8 * 110, 8 * 4100, *(random.randrange(8 * len(data)) for _ in range(6))]
    for number, bit in enumerate(bits):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "run.sqlite").write_bytes(flipped(data, bit))
        if command == "view":
            from netvitals.report.live import create_app

            create_app(folder, judge=False)
            continue
        with pytest.raises(SystemExit) as stop:
            main([command, str(folder)])
        assert stop.value.code in (0, 2, None)
        assert "Traceback" not in capsys.readouterr().err


def test_a_damaged_run_is_not_continued(whole, tmp_path):
    _, data, _ = whole
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "run.sqlite").write_bytes(data)
    with sqlite3.connect(tmp_path / "r" / "run.sqlite") as connection:
        connection.execute("UPDATE batch SET segment = 4 WHERE id = 2")
    connection.close()
    with pytest.raises(RunDamaged, match="batch 2 of the measurements does not match its checksum"):
        RunWriter(tmp_path / "r", existing="resume")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run whose process is gone before its side file was folded in: its folder, and bytes by name."""
    place = tmp_path_factory.mktemp("killed")
    writer = RunWriter(place / "alive", flush_every=60)
    for step in range(12):
        writer.write([Measurement(step, "v", "s", "m", float(step))])
        writer.flush()
    names = ("run.sqlite", "run.sqlite-wal", "run.sqlite-shm")
    kept = {name: (place / "alive" / name).read_bytes() for name in names}
    writer.close()
    return kept


def laid_out(folder, kept):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in kept.items():
        (folder / name).write_bytes(data)
    return folder


def test_frames_of_a_side_file_are_counted_as_sqlite_counts_them(killed, tmp_path):
    folder = laid_out(tmp_path / "r", killed)
    written, taken = wal.count(folder / "run.sqlite")
    data = bytearray(killed["run.sqlite-wal"])
    for frame in (0, 3, written - 1):
        changed = bytearray(data)
        changed[32 + frame * (24 + 4096) + 1000] ^= 4
        (folder / "run.sqlite-wal").write_bytes(changed)
        (folder / "run.sqlite-shm").unlink(missing_ok=True)
        ours = wal.count(folder / "run.sqlite")
        with sqlite3.connect(folder / "run.sqlite") as connection:
            connection.execute("SELECT count(*) FROM batch").fetchone()
            theirs = int.from_bytes(
                (folder / "run.sqlite-shm").read_bytes()[16:20], sys.byteorder
            )  # frames in the index
        laid_out(folder, killed)
        connection.close()
        assert ours == (written, frame) and theirs <= frame
    assert taken == written


@pytest.mark.parametrize("chunk", [1, 5, 1024])
def test_a_side_file_is_counted_the_same_however_much_is_read_at_a_time(killed, tmp_path, monkeypatch, chunk):
    folder = laid_out(tmp_path / "r", killed)
    file, data = folder / "run.sqlite", killed["run.sqlite-wal"]
    frames = (len(data) - 32) // (24 + 4096)
    monkeypatch.setattr(wal, "CHUNK", chunk)
    wal._count.cache_clear()
    assert frames > 5 and wal.count(file) == (frames, frames)
    for frame in (0, 4, 5, frames - 1):
        changed = bytearray(data)
        changed[32 + frame * (24 + 4096) + 2000] ^= 1
        (folder / "run.sqlite-wal").write_bytes(changed)
        wal._count.cache_clear()
        assert wal.count(file) == (frames, frame)
    wal._count.cache_clear()


def test_a_flipped_bit_in_the_side_file_of_a_killed_run_is_told(killed, tmp_path):
    """SQLite forgets the commits after it and says nothing."""
    folder = laid_out(tmp_path / "r", killed)
    assert open_run(folder).frame()["value"].to_list() == [float(i) for i in range(12)]
    data = killed["run.sqlite-wal"]
    random.seed(1)
    bits = [8 * 2, 8 * 10 + 3, 8 * 17, 8 * 26, *(random.randrange(8 * len(data)) for _ in range(12))]
    kept = []
    for bit in bits:
        laid_out(folder, {**killed, "run.sqlite-wal": flipped(data, bit)})
        if bit % 2:
            (folder / "run.sqlite-shm").unlink()
        with pytest.raises(RunDamaged, match=r"are intact: the last measurements are lost") as told:
            open_run(folder)
        with pytest.raises(RunDamaged, match="the last measurements are lost"):
            RunWriter(folder, existing="resume")
        if "nothing of it is intact" in str(told.value):  # the beginning of the side file: none of it is taken
            assert "only 0 of" in str(told.value) or "only 1 of" in str(told.value)
            kept.append(0)
            continue
        assert "netvitals recover" in str(told.value)
        found = recover(folder, tmp_path / f"saved{len(kept)}")
        values = open_run(found.path).frame()["value"].to_list()
        assert values == [float(i) for i in range(len(values))] and len(values) <= 12
        assert "the last measurements are lost" in open_run(found.path).meta["recovered"]
        kept.append(len(values))
    assert min(kept) == 0 and max(kept) >= 10


@pytest.mark.parametrize("left", [0, 20, 32, 5000, -4120, -1])
def test_a_side_file_that_is_cut_or_gone_is_told(killed, tmp_path, left):
    """The index that the killed process left behind says how long it was."""
    data = killed["run.sqlite-wal"]
    folder = laid_out(tmp_path / "r", {**killed, "run.sqlite-wal": data[:left] if left else b""})
    if not left:
        (folder / "run.sqlite-wal").unlink()
    for _ in range(2):  # also the second time
        with pytest.raises(RunDamaged, match="the last measurements are lost"):
            open_run(folder)


def test_what_a_kill_leaves_behind_is_not_called_damage(killed, tmp_path):
    """Frames of a commit that was not over, a frame that is cut, and frames of an earlier use of the file."""
    data = killed["run.sqlite-wal"]
    frame = data[-4120:]
    other = frame[:8] + bytes(8) + frame[16:]  # salts of another generation
    for tail in (other * 3, frame[:24], frame[:2000], other + frame[:24]):
        folder = laid_out(tmp_path / "r", {**killed, "run.sqlite-wal": data + tail})
        assert open_run(folder).frame().height == 12
        (folder / "run.sqlite-shm").unlink()
        assert open_run(folder).frame().height == 12


def test_a_run_that_is_written_is_not_looked_at_for_damage(tmp_path):
    writer = RunWriter(tmp_path / "r", flush_every=60)
    for step in range(40):
        writer.write([Measurement(step, "v", "s", "m", 1.0)])
        writer.flush()
        assert open_run(tmp_path / "r").steps[-1] == step
    writer.close()


@pytest.mark.parametrize("left", [0.02, 0.1, 0.3, 0.5, 0.9, 0.99, 0.9999])
def test_a_cut_file_names_the_command_that_recovers_it(whole, tmp_path, left):
    _, data, _ = whole
    path = tmp_path / "run.sqlite"
    path.write_bytes(data[: int(len(data) * left)])
    with pytest.raises(RunDamaged) as told:
        open_run(path).verify()
    found = None
    with contextlib.suppress(ValueError):
        found = recover(path, tmp_path / "saved")
    if found is None:
        assert "nothing of it is intact" in str(told.value)
    else:
        assert f"netvitals recover {path} writes" in str(told.value) and str(found) in str(told.value)
        assert found.measurements > 0 or left < 0.9  # the last page alone has no measurements


def test_the_command_line_names_the_command_for_a_cut_file(whole, tmp_path, capsys):
    _, data, _ = whole
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "run.sqlite").write_bytes(data[:-4096])
    for command in ("report", "check", "export", "top", "forecasts"):
        with pytest.raises(SystemExit) as stop:
            main([command, str(tmp_path / "r")])
        assert stop.value.code == 2 and f"netvitals recover {tmp_path / 'r'}" in capsys.readouterr().err, command


def test_a_run_of_the_layout_without_checksums_is_still_read_and_exported(tmp_path):
    file = tmp_path / "old.sqlite"
    with sqlite3.connect(file) as connection:
        connection.executescript(f"""{OLD_LAYOUT}
            INSERT INTO meta VALUES ('status', '"finished"'), ('model', '"MLP"');
            INSERT INTO series VALUES (1, 'loss', '', 'loss'), (2, 'v', 's', 'a');
            INSERT INTO reading VALUES (0, 1, 0.5), (1, 1, NULL);
            INSERT INTO array VALUES (1, 2, '<f8', '[1]', x'0000000000000040');
            PRAGMA application_id=1314280019; PRAGMA user_version=1;""")
    connection.close()
    run = open_run(file)
    assert run.status == "finished" and run.meta["model"] == "MLP" and run.steps == [0, 1]
    assert str(run.frame()["value"].to_list()) == "[0.5, nan]" and run.arrays()[0].value.tolist() == [2.0]
    assert run.summary.last_step == 1 and export(run, "csv").exists()
    with pytest.raises(ValueError, match="can be read but not continued"):
        RunWriter(file, existing="resume")
    with sqlite3.connect(file) as connection:
        connection.execute("DELETE FROM reading")
    connection.close()
    assert (open_run(file).summary.last_step, open_run(file).summary.measurements) == (-1, 0)


@pytest.mark.parametrize("pages", [1, 2])
def test_of_a_cut_file_only_the_tables_that_were_cut_are_lost(tmp_path, pages):
    """SQLite refuses a file that is shorter than its header says, also where the pages that are gone held nothing."""
    with RunWriter(tmp_path / "r") as writer:
        writer.write([Measurement(step, "loss", "model", "loss", float(step)) for step in range(50)])
    data = writer.path.read_bytes()
    assert len(data) == 7 * 4096  # the last two are the tables of arrays and findings, which are empty
    writer.path.write_bytes(data[: -4096 * pages])
    with pytest.raises(RunDamaged, match=rf"Intact: 50 of 50 measurements.*netvitals recover {writer.path} writes"):
        open_run(tmp_path / "r")
    found = recover(tmp_path / "r", tmp_path / "saved")
    assert open_run(found.path).frame()["value"].to_list() == [float(step) for step in range(50)]


def test_a_header_that_claims_many_pages_costs_nothing(tmp_path):
    with RunWriter(tmp_path / "r") as writer:
        writer.write([Measurement(0, "loss", "model", "loss", 1.0)])
    data = bytearray(writer.path.read_bytes())
    data[28:32] = b"\xff\xff\xff\xff"
    writer.path.write_bytes(data)
    with pytest.raises(RunDamaged):
        open_run(tmp_path / "r").verify()
