"""The README: two screens of short sentences, one picture, what was measured beside other tools, where to go next."""

import re
from pathlib import Path

from netvitals import vitals

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SCREENS = 102  # lines of two screens


def section(title):
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def test_it_has_at_most_two_screens_and_one_picture():
    lines = TEXT.splitlines()
    assert len(lines) <= SCREENS, len(lines)
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TEXT)
    assert (ROOT / picture).stat().st_size <= 300_000


def test_no_sentence_has_more_than_25_words_and_no_paragraph_more_than_60():
    text = re.sub(r"```.*?```|<!--.*?-->|^ {4}.*?$|^!\[.*?$", "", TEXT, flags=re.S | re.M)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for block in re.split(r"\n\s*\n|\n(?=- )", text):
        for paragraph in re.split(r"[|\n]+", block) if block.startswith("|") else [block]:
            assert len(paragraph.split()) <= 60, paragraph
            for sentence in re.split(r"(?<=[.?!:])\s+", paragraph):
                assert len(re.findall(r"\w[\w'’./`-]*", sentence)) <= 25, sentence


def test_it_shows_the_two_commands_and_the_one_line():
    assert "    make demo" in TEXT and "    make test" in TEXT and "netvitals doctor" in TEXT
    assert TEXT.count("# the one line") == 1


def test_it_has_twelve_symptoms_and_six_metrics_that_exist():
    symptoms, six = section("What it detects").split("Look first at six metrics")
    rows = re.findall(r"^\| (?!symptom|---)", symptoms, re.M)
    metrics = re.findall(r"^\| `(\w+)/([\w@.]+)` \|.*\|.*\|$", six, re.M)
    assert len(rows) == 12 and len(metrics) == 5  # and the loss
    for vital, metric in metrics:
        assert metric.split("@")[0] in {m.split("@")[0] for m in vitals.REGISTRY[vital].metrics}, (vital, metric)


def test_the_benchmarks_figures_are_those_of_its_page():
    page = (ROOT / "docs/bugs.md").read_text(encoding="utf-8")
    tools = dict(re.findall(r"^\| (`?[\w.]+`?(?: [\d.]+)?) \| (.*) \|$", section("How well it works"), re.M))
    (figures,) = re.findall(r"<!-- bugs -->\n(.*?)\n<!-- /bugs -->", page, re.S)
    rows = {name: (int(n), int(of)) for name, n, of in re.findall(r"^\| ([\w ]+) \| (\d+) of (\d+) ", figures, re.M)}
    counts = [rows["cause named"], rows["any alarm"]]
    counts += [(of - quiet, of) for quiet, of in (rows["fixed scripts quiet"], rows["healthy scripts quiet"])]
    assert tools.pop("`nv.watch`") == " | ".join(f"{n} of {of}" for n, of in counts)
    assert len(tools) >= 2
    for name, shown in tools.items():
        (row,) = re.findall(rf"^\| {re.escape(name)} \| (.*) \|$", page, re.M)
        _, named, _, *rest = row.split(" | ")
        assert shown == " | ".join([named, *rest[:3]])
    third = re.search(r"^\| third collection .*?^\| cause named \| (\d+ of \d+) ", page, re.S | re.M)
    assert f"`nv.watch` named the cause of {third[1]} bugs." in " ".join(TEXT.split())


def test_the_forecasts_figures_are_those_of_their_page():
    page = (ROOT / "docs/forecasts.md").read_text(encoding="utf-8")
    losses, ahead = (
        re.search(rf"{name}.*\| (\d+ of \d+) \(.*; (\d+) of (\d+) \(", page) for name in ("default", "lookahead=")
    )
    limits = " ".join(section("Limits").split())
    hits, n = losses[1].split(" of ")
    assert f"Of {n} divergences, the default forecast predicted {hits}, with" in limits
    assert f"with {losses[2]} false alarms on {losses[3]} other runs" in limits
    assert f"Look-aheads predicted {ahead[1]} divergences, with {ahead[2]} false alarms" in limits


def test_every_place_to_go_next_is_there():
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", section("Documentation"))
    assert len(targets) >= 10
    assert [t for t in targets if not (ROOT / t).exists()] == []
