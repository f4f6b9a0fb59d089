"""The commands do what they say, and wrong input gets one sentence and exit code 2."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pytest

import netvitals as nv
from netvitals.capture import Measurement
from netvitals.cli import main
from netvitals.runs import RunWriter


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    """Run a command in an empty folder; gives (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(list(arguments))
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


@pytest.fixture
def run(tmp_path):
    with RunWriter(tmp_path / "runs" / "first", meta={"model": "MLP"}) as writer:
        for step in range(30):
            writer.write(
                [
                    Measurement(step, "loss", "model", "loss", 2.0 / (1 + step)),
                    Measurement(step, "sparsity", "fc1.act", "hard", 0.95),
                ]
            )
    return tmp_path / "runs" / "first"


FACTORY = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), nn.CrossEntropyLoss(), (
        torch.randn(32, 4), torch.randint(2, (32,)))

def two():
    return 1, 2

def broken():
    raise RuntimeError("no weights here")

def unfit():
    model, loss_fn, (x, y) = make()
    return model, loss_fn, (x[:, :3], y)

def labels():
    model, loss_fn, (x, y) = make()
    return model, loss_fn, (x, y + 40)

def recurrent():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.reader, self.head = nn.LSTM(4, 8, batch_first=True), nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        def forward(self, x):
            return self.head(self.reader(x)[0][:, -1])
    return Reader(), nn.CrossEntropyLoss(), (torch.randn(32, 5, 4), torch.randint(2, (32,)))

number = 3
"""


@pytest.fixture
def factory(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "mine" / "nets.py").write_text(textwrap.dedent(FACTORY))
    (tmp_path / "mine" / "bad.py").write_text("def (")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "mine.nets"
    for name in [n for n in sys.modules if n.split(".")[0] == "mine"]:
        del sys.modules[name]


def test_demo_names_a_bug_that_the_loss_hides_and_the_fix_repairs_it(call, tmp_path):
    (tmp_path / "d").mkdir()
    code, out, _ = call("demo", "--out", "d")
    assert code == 0
    pages = [tmp_path / line.strip() for line in out.splitlines() if line.strip().endswith(".html")]
    assert [p.name for p in pages] == ["report.html", "report-fixed.html"] and all(p.is_file() for p in pages)
    assert len(re.findall(r"(\d+) checks: ", out)) == 2
    (loss, worse, named), (_, better, never) = re.findall(r"(?:reported|fix) +([\d.]+) +(\d+)% +(\S+)", out)
    assert float(loss) < 0.1 and int(worse) < 60 and int(better) > 95, "the loss hides that nothing was learned"
    assert int(named) <= 50 and never == "–"
    runs = [nv.open_run(tmp_path / "d-2" / name) for name in ("as-reported", "with-the-fix")]
    assert all(run.status == "finished" for run in runs)
    assert runs[0].findings()[0].rule == "constant labels" and not runs[1].findings().alarming
    assert runs[0].meta["verdict"]["severity"] == "critical" and runs[1].meta["verdict"]["severity"] == ""
    assert not list((tmp_path / "d").iterdir()), "a folder that is there is left alone"


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["1", "2", "3", "4"])
def test_the_buggy_network_of_the_demo_is_the_worse_one_with_every_seed(call, tmp_path, seed):
    out = call("demo", "--out", "d", "--seed", seed)[1]
    (loss, worse, named), (_, better, never) = re.findall(r"(?:reported|fix) +([\d.]+) +(\d+)% +(\S+)", out)
    assert float(loss) < 0.1 and int(worse) < 60 and int(better) > 95 and int(named) <= 50 and never == "–"


def test_report_writes_the_page_and_prints_the_findings(call, run, tmp_path):
    code, out, _ = call("report", str(run))
    assert code == 0
    assert "note" in out and "Activations are too sparse in fc1.act" in out.replace("\n", " ")
    assert (run / "report.html").is_file()
    code, out, _ = call("report", str(run / "run.sqlite"), "--out", "elsewhere/page.html")
    assert code == 0 and (tmp_path / "elsewhere" / "page.html").is_file()


@pytest.mark.parametrize("to", ["parquet", "csv", "json"])
def test_export(call, run, tmp_path, to):
    code, out, _ = call("export", str(run), "--to", to, "--out", f"x.{to}")
    assert code == 0 and out.strip() == f"x.{to}"
    path = tmp_path / f"x.{to}"
    rows = {
        "parquet": lambda: pl.read_parquet(path).height,
        "csv": lambda: pl.read_csv(path).height,
        "json": lambda: len(json.loads(path.read_text())["measurements"]["value"]),
    }[to]()
    assert rows == 60


def test_checkup_of_a_factory_in_the_working_folder(call, factory, tmp_path):
    code, out, _ = call("checkup", f"{factory}:make", "--html", "page.html")
    assert code == 0 and "Sequential" in out
    assert (tmp_path / "page.html").is_file()


def test_checkup_as_json_is_json_and_nothing_else(call, factory):
    code, out, _ = call("checkup", f"{factory}:make", "--json", "--html", "page.html")
    assert code == 0
    found = json.loads(out)
    assert found["model"] == "Sequential" and len(found["measurements"]) > 50
    assert all(set(r) == {"vital", "site", "metric", "value"} for r in found["measurements"])
    assert isinstance(found["findings"], list)


def test_checkup_says_what_it_could_not_see(call, factory):
    code, out, _ = call("checkup", f"{factory}:recurrent", "--no-curvature")
    assert code == 0
    assert " ".join(out.split()).count("Not measured: reader: its gates run inside one fused recurrent kernel") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("report", "nowhere"), r"there is no run at nowhere/run\.sqlite"),
        (("export", "runs/first", "--to", "xml"), "can be exported to parquet, csv, json, got 'xml'"),
        (("export", "nowhere.sqlite"), r"there is no run at nowhere\.sqlite"),
        (("checkup", "mine.nets"), "expected PKG.MODULE:FACTORY"),
        (("checkup", "not_there:make"), "there is no module 'not_there'"),
        (("checkup", "mine.nets:absent"), "mine.nets has no function 'absent'; it has make, two, broken"),
        (("checkup", "mine.nets:number"), "has no function 'number'"),
        (("checkup", "mine.nets:two"), "must return 3 values.* it returned 2 values"),
        (("checkup", "mine.nets:broken"), "raised RuntimeError: no weights here"),
        (
            ("checkup", "mine.nets:unfit"),
            "batch that mine.nets:unfit returns do not work together: mat1 and mat2 shapes",
        ),
        (
            ("checkup", "mine.nets:labels"),
            "batch that mine.nets:labels returns do not work together: Target 4. is out of bounds",
        ),
        (("checkup", "mine.bad:make"), "importing mine.bad failed: SyntaxError"),
        (("reprot", "x"), "there is no command 'reprot'; did you mean report"),
    ],
)
def test_wrong_input_gets_one_sentence_and_exit_code_two(call, run, factory, arguments, sentence):
    code, out, err = call(*arguments)
    assert code == 2
    assert out == ""
    assert re.search(sentence, err), err
    assert "Traceback" not in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("arguments", [("export",), ("demo", "--seed", "x"), ("report", "--nonsense")])
def test_wrong_options_get_exit_code_two(call, arguments):
    code, _, err = call(*arguments)
    assert code == 2 and "Traceback" not in err


def test_a_file_that_is_no_run_is_said_to_be_none(call, tmp_path):
    (tmp_path / "notes.sqlite").write_text("hello " * 100)
    code, _, err = call("report", "notes.sqlite")
    assert code == 2 and "is not a netvitals run" in err


def test_the_command_line_answers_without_loading_what_it_does_not_need():
    heavy = ("polars", "plotly", "sklearn", "scipy.stats", "rich.progress", "netvitals_lab.engine", "netvitals.report")
    script = f"import sys; import netvitals.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_help_gives_no_type_of_a_flag(call):
    out = call("curvature", "--help")[1]
    assert "--json" in out and "<int>" in out and "bool" not in out


def test_version(call):
    assert call("--version")[:2] == (0, f"netvitals {nv.__version__}\n")


def test_every_command_has_a_help_line(call):
    code, out, _ = call("--help")
    assert code == 0
    for name in ("demo", "checkup", "report", "export", "activation"):
        assert name in out


def test_no_console_makes_pictures_of_names():
    """``softplus:100:`` holds an emoji of rich."""
    folder = Path(nv.__file__).parent
    made = [call for path in folder.rglob("*.py") for call in re.findall(r"Console\([^)]*\)", path.read_text())]
    assert made and all("emoji=False" in call for call in made)


def test_the_package_is_a_command(programs):
    wording = programs.run([sys.executable, "-m", "netvitals", "--version"], capture_output=True, text=True, check=True)
    assert nv.__version__ in wording.stdout


def test_no_function_of_the_command_line_has_the_name_of_its_module():
    folder = Path(nv.__file__).parent / "cli"
    named = {
        (path.stem, node.name)
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert len(named) > 40 and [module for module, function in named if module == function] == []
