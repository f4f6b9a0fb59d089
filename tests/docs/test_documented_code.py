"""Every Python block of the README and the docs runs as it stands; every command they show exists."""

import pathlib
import re

import pytest

from netvitals.cli import app

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    (page, i, code)
    for page in PAGES
    for i, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M))
]
COMMANDS = {command.name or command.callback.__name__.replace("_", "-") for command in app.registered_commands}
COMMANDS |= {group.name for group in app.registered_groups}


@pytest.mark.parametrize(("page", "code"), [pytest.param(p, c, id=f"{p.name}-{i}") for p, i, c in BLOCKS])
def test_block_runs(page, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {"__name__": "__main__"})


def test_there_are_blocks_to_run():
    assert any(page.name == "README.md" for page, *_ in BLOCKS)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_shown_exist(page):
    shown = set(re.findall(r"^(?:    |\$ )netvitals ([a-z]\w*)", page.read_text(), re.M))
    shown |= set(re.findall(r"`netvitals ([a-z]\w*)", page.read_text()))
    assert shown <= COMMANDS, f"{page.name} shows {sorted(shown - COMMANDS)}, the command line has {sorted(COMMANDS)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_linked_files_exist(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
