"""docs/studies.md tells the truth: its commands parse, its code runs."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from netvitals.cli import app
from netvitals_lab import run

TEXT = (Path(__file__).parents[3] / "docs" / "studies.md").read_text(encoding="utf-8")
COMMANDS = [line for line in TEXT.splitlines() if line.startswith("netvitals ")]
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.S)


def test_there_are_commands_to_check():
    assert len(COMMANDS) == 10


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_parses(line):
    program, name, *arguments = shlex.split(line)
    assert program == "netvitals"
    typer.main.get_command(app).commands[name].make_context(name, arguments)


@pytest.mark.slow
def test_the_python_call_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[0], "studies.md", "exec"), {})
    assert capsys.readouterr().out.startswith("erratum: -0.5625; zero mean is not enough")


def test_the_example_study_runs_and_holds(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "coins_of_the_docs.py").write_text(BLOCKS[1])
    import coins_of_the_docs as coins

    outcome = run(
        coins.STUDIES[0], "smoke", "inline", results=tmp_path / "s.sqlite", claims=list(coins.claim), progress=False
    )
    verdict = outcome.verdicts["toy/C1"]
    assert (verdict.status, verdict.seeds) == ("holds", 8)
    assert verdict.uncertainty > 0
