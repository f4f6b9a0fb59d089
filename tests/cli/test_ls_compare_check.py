"""`ls`, `compare` and `check --against`: on runs that were written by hand."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from netvitals.capture import Measurement
from netvitals.cli import app
from netvitals.runs import RunWriter


def ask(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def written(folder, seed=0, jump=0.0, verdict=None, lr=0.1):
    rng = np.random.default_rng(seed)
    meta = {"model": "MLP", "lr": lr} | ({} if verdict is None else {"verdict": verdict})
    with RunWriter(folder, meta=meta) as writer:
        for step in range(0, 400, 10):
            density = 0.5 + 0.01 * rng.standard_normal() + (jump if step >= 200 else 0.0)
            writer.write([Measurement(step, "gates", "fc", "density@0.01", float(density))])
            writer.write([Measurement(step, "loss", "model", "loss", float(1 / (1 + step) + 0.001 * rng.random()))])
    return folder


def test_runs_are_listed_with_their_verdict(tmp_path):
    written(tmp_path / "clean", verdict={"severity": "", "what": "Nothing alarming."})
    written(tmp_path / "sick", verdict={"severity": "critical", "what": "Half of the units are dead."})
    written(tmp_path / "unjudged")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.sqlite").write_bytes(b"no database" * 100)
    rows = {row["run"]: row for row in json.loads(ask("ls", tmp_path, "--json").stdout)}
    told = {name: row["most severe finding"] for name, row in rows.items()}
    assert told["clean"] == "Nothing alarming." and told["sick"] == "CRITICAL Half of the units are dead."
    assert told["unjudged"] == "findings not computed yet" and rows["broken"]["status"] == "damaged"
    assert rows["clean"]["steps"] == 391 and 0 < rows["clean"]["loss"] < 0.01
    shown = ask("ls", tmp_path).stdout
    assert "391" in shown and "sick" in shown
    assert "no runs below" in ask("ls", (tmp_path / "empty").mkdir() or tmp_path / "empty").stdout


@pytest.mark.parametrize(
    ("words", "completion", "answer"),
    [(["ls", "."], "", "one"), (["--help"], "", "Get started"), ([], "netvitals re", "report")],
)
def test_lists_help_and_shell_completion_load_no_torch(tmp_path, words, completion, answer):
    written(tmp_path / "one")
    code = "import sys; from netvitals.cli import main; main(sys.argv[1:])\n"
    check = "import sys, atexit; atexit.register(lambda: print('torch' in sys.modules)); "
    shell = {"_NETVITALS_COMPLETE": "complete_bash", "COMP_WORDS": completion, "COMP_CWORD": "1"} if completion else {}
    done = subprocess.run(
        [sys.executable, "-c", check + code, *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **shell},
    )
    assert answer in done.stdout and done.stdout.splitlines()[-1] == "False", done.stderr


def test_two_runs_are_compared_by_settings_and_by_what_parted_first(tmp_path):
    one, other = written(tmp_path / "a"), written(tmp_path / "b", seed=1, jump=0.3, lr=0.3)
    found = json.loads(ask("compare", one, other, "--json").stdout)
    assert {row["name"] for row in found["settings"]} == {"lr"}
    (parted,) = found["metrics"]
    assert (parted["metric"], parted["step"]) == ("density@0.01", 200)
    assert "density@0.01" in ask("compare", one, other).stdout
    assert "no metric differs" in ask("compare", one, written(tmp_path / "c", seed=2)).stdout
    assert isinstance(ask("compare", one, one).exception, ValueError)


@pytest.mark.parametrize(("jump", "code"), [(0.0, 0), (0.03, 0), (0.3, 1), (-0.3, 1), (float("nan"), 1)])
def test_a_run_is_held_against_good_ones(tmp_path, jump, code):
    good, more = written(tmp_path / "good"), written(tmp_path / "more", seed=5)
    run = written(tmp_path / "run", seed=3, jump=jump)
    done = ask("check", run, "--against", good, "--against", more, "--json")
    assert done.exit_code == code
    left = json.loads(done.stdout)["left"]
    assert [(row["metric"], row["step"]) for row in left] == [("density@0.01", 200)] * code
    words = ask("check", run, "--against", good).stdout
    assert ("left the band at step 200" if code else "stayed in the band") in words
