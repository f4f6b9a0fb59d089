"""The README: two screens, one picture, what was measured beside what others do, and where to go next."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SCREENS = 100  # lines of two screens


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
    for figure, here in (("1.7 % (15 of 23 plateaus)", "15 of 23 plateaus"), ("88 %", "hold 88 %"), ("(52 %)", "52 %")):
        assert figure in page and here in told
    assert "3 of 39 (8 %)" in page and "8 % false alarms (3 of 39)" in told
    assert "| 25 of 29 (86 %) | met |" in page and "86 % of the runs that are lost (25 of 29)" in told
    assert "| 0 of 34 (0 %) | met |" in page and "no false alarm on the 34 others" in told
    assert "| 15 of 29 (52 %) |" in page and "| 6 of 34 (18 %) |" in page and "15 and 6 on the same runs" in told
    assert "| +0.43, +0.53, +0.69, +0.80, +0.51 | met |" in page and "43, 53, 69, 80 and 51 %" in told
    assert "| +0.60, +0.39, +0.52, +0.55, +0.34 | met |" in page and "60, 39, 52, 55 and 34" in told
    assert "+0.06, +0.11, +0.02, +0.04 (" in page and "6, 11, 2 and 4 %" in told


def test_every_place_to_go_next_is_there():
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", TEXT.split("## Where next")[1])
    assert len(targets) >= 10
    assert [t for t in targets if not (ROOT / t).exists()] == []
