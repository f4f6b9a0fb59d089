"""The gallery: every script runs to its reports on made-up data, and every page has its script, command and picture."""

import re
import runpy
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest

from netvitals.findings import RULES

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"
SCRIPTS = sorted(p for p in GALLERY.glob("*.py") if p.stem != "exhibit")
PAGES = sorted(p for p in GALLERY.glob("*.md") if p.stem != "index")
MOST_BYTES = {".png": 300_000, ".svg": 60_000}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_a_script_makes_runs_and_reports_without_packages_or_data(script, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("NETVITALS_DATA", raising=False)
    monkeypatch.syspath_prepend(str(GALLERY))
    monkeypatch.setattr("sys.argv", [str(script), "--smoke", "--out", str(tmp_path)])
    runpy.run_path(str(script), run_name="__main__")
    text = capsys.readouterr().out
    runs = sorted(p.parent for p in tmp_path.glob("*/run.sqlite"))
    assert runs and {r.name.split("-")[0] for r in runs} == {script.stem}
    for run in runs:
        assert run.with_suffix(".html").is_file() and f"The report: {run.with_suffix('.html')}" in text


def test_every_script_has_its_page_and_every_page_its_script():
    assert [p.stem for p in PAGES] == [p.stem for p in SCRIPTS] and len(PAGES) == 11
    index = (GALLERY / "index.md").read_text(encoding="utf-8")
    assert all(f"]({page.name})" in index for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_page_has_command_picture_and_findings(page):
    text = page.read_text(encoding="utf-8")
    assert f"python docs/gallery/{page.stem}.py" in text
    pictures = [page.parent / target for target in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)]
    assert pictures and all(p.stat().st_size <= MOST_BYTES[p.suffix] for p in pictures), pictures
    for picture in pictures:
        head = picture.read_bytes()[:24]
        if picture.suffix == ".svg":
            assert ElementTree.parse(picture).getroot().tag == "{http://www.w3.org/2000/svg}svg"
            assert picture.name.startswith(f"{page.stem}-")
            continue
        width, height = struct.unpack(">II", head[16:24])
        assert head[:8] == b"\x89PNG\r\n\x1a\n" and width >= 1000 and height >= 700
    sections = re.findall(r"^## (.+)$", text, re.M)
    assert sections == ["Run it", "What was found"], sections
    explained = re.findall(r"`netvitals explain \"([^\"]+)\"`", text)
    assert set(explained) <= {rule.name for rule in RULES}
    found = text.split("## What was found")[1]
    assert len(re.findall(r"^\d\. ", found, re.M)) == 3, (
        "three findings, or three measurements that say that all is well"
    )


def test_no_picture_is_left_over():
    shown = {t for p in PAGES for t in re.findall(r"\]\(images/([^)]+)\)", p.read_text(encoding="utf-8"))}
    assert {p.name for p in (GALLERY / "images").iterdir()} == shown
