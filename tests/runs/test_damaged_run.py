"""A changed bit is told, never believed; what is intact can be saved."""

from __future__ import annotations

import random
import shutil
import sqlite3

import numpy as np
import pytest

from netvitals.capture import ArrayMeasurement, Measurement, Site
from netvitals.cli import main
from netvitals.runs import Evidence, Finding, RunDamaged, RunWriter, export, open_run, recover

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
    with pytest.raises(RunDamaged, match="batch 2 of the measurements is not what was written"):
        RunWriter(tmp_path / "r", existing="resume")


def test_a_flipped_bit_in_the_side_file_of_a_killed_run_is_no_wrong_value(tmp_path):
    """SQLite forgets the commits after it: what is left is what was there before them."""
    writer = RunWriter(tmp_path / "r", flush_every=60)
    for step in range(12):
        writer.write([Measurement(step, "v", "s", "m", float(step))])
        writer.flush()
    (tmp_path / "killed").mkdir()
    for name in ("run.sqlite", "run.sqlite-wal"):
        shutil.copy(tmp_path / "r" / name, tmp_path / "killed" / name)
    writer.close()
    data = (tmp_path / "killed" / "run.sqlite-wal").read_bytes()
    random.seed(1)
    counts = []
    for _ in range(40):
        (tmp_path / "killed" / "run.sqlite-wal").write_bytes(flipped(data, random.randrange(8 * len(data))))
        shm = tmp_path / "killed" / "run.sqlite-shm"
        shm.unlink(missing_ok=True)
        values = open_run(tmp_path / "killed").frame()["value"].to_list()
        assert values == [float(i) for i in range(len(values))]
        counts.append(len(values))
    assert min(counts) < max(counts) <= 12


def test_a_run_of_the_layout_without_checksums_is_still_read_and_exported(tmp_path):
    file = tmp_path / "old.sqlite"
    with sqlite3.connect(file) as connection:
        connection.executescript("""
            CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
            CREATE TABLE series (id INTEGER PRIMARY KEY, vital TEXT, site TEXT, metric TEXT);
            CREATE TABLE reading (step INTEGER NOT NULL, series INTEGER NOT NULL, value REAL);
            CREATE TABLE array (step INTEGER, series INTEGER, dtype TEXT, shape TEXT, data BLOB);
            CREATE TABLE finding (id INTEGER PRIMARY KEY, record TEXT NOT NULL);
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
    with pytest.raises(ValueError, match="can be read, but not continued"):
        RunWriter(file, existing="resume")
    with sqlite3.connect(file) as connection:
        connection.execute("DELETE FROM reading")
    connection.close()
    assert (open_run(file).summary.last_step, open_run(file).summary.measurements) == (-1, 0)
