"""The README: two screens, one picture, what was measured beside what others do, and where to go next."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SCREENS = 102  # lines of two screens


def test_it_has_at_most_two_screens_and_one_picture():
    lines = TEXT.splitlines()
    assert len(lines) <= SCREENS, len(lines)
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TEXT)
    assert (ROOT / picture).stat().st_size <= 300_000


def test_it_shows_the_two_commands_and_the_one_line():
    assert "    make demo" in TEXT and "    make test" in TEXT and "netvitals doctor" in TEXT
    assert TEXT.count("# the one line") == 1


def test_the_benchmarks_figures_are_those_of_its_page():
    page = (ROOT / "docs/bugs.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- bugs -->\n(.*?)\n<!-- /bugs -->", TEXT, re.S)
    assert table in page


def test_the_forecasts_figures_are_those_of_their_page():
    page = (ROOT / "docs/forecasts.md").read_text(encoding="utf-8")
    told = TEXT.split("## Forecasts")[1].split("## Where next")[0]
    assert len(told.strip().splitlines()) == 3
    losses, ahead = (
        re.search(rf"{name}.*\| (\d+ of \d+) \(.*; (\d+) of (\d+) \(", page) for name in ("default", "lookahead=")
    )
    assert f"{losses[1]} called 20 steps ahead, {losses[2]} false alarms on {losses[3]}" in told
    assert f"{ahead[1].split()[0]} and {ahead[2]}." in told
    *most, last = re.search(r"intervals that held there \|.*\| ([\d, ]+) %", page)[1].split(", ")
    assert f"held {', '.join(most)} and {last} %" in told


def test_every_place_to_go_next_is_there():
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", TEXT.split("## Where next")[1])
    assert len(targets) >= 10
    assert [t for t in targets if not (ROOT / t).exists()] == []
