"""The landing page and the pages by symptom: short sentences, links to every finding, metrics that exist."""

import re
from pathlib import Path

import pytest

from netvitals import vitals
from netvitals.findings import RULES, anchor

DOCS = Path(__file__).parents[2] / "docs"
SYMPTOMS = sorted((DOCS / "symptoms").glob("*.md"))
PAGES = [DOCS / "index.md", *SYMPTOMS]
named = pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(DOCS).as_posix())


def paragraphs(text):
    """What a reader reads as running text or as a cell; links by their words."""
    text = re.sub(r"\A---\n.*?\n---\n|^```.*?^```|^!\[.*?$|</?div[^>]*>", "", text, flags=re.S | re.M)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip().splitlines()
        yield from (c for line in lines for c in line.split("|")) if block.startswith("|") else (" ".join(lines),)


def sentences(paragraph):
    return re.split(r"(?<=[.?!:])\s+", paragraph)


@named
def test_no_sentence_has_more_than_25_words_and_no_paragraph_more_than_60(path):
    for paragraph in paragraphs(path.read_text(encoding="utf-8")):
        assert len(paragraph.split()) <= 60, paragraph
        for sentence in sentences(paragraph):
            assert len(re.findall(r"\w[\w'’./`-]*", sentence)) <= 25, sentence


def test_a_long_sentence_is_noticed():
    (paragraph,) = paragraphs("word " * 26 + "[end](target.md).")
    assert [len(s.split()) for s in sentences(paragraph)] == [27]


def test_every_finding_with_a_threshold_is_reached_from_a_symptom():
    linked = set(re.findall(r"\]\(\.\./findings\.md#([^)]+)\)", "".join(p.read_text("utf-8") for p in SYMPTOMS)))
    assert {anchor(rule.name) for rule in RULES if rule.threshold} <= linked
    assert linked <= {anchor(rule.name) for rule in RULES}


@named
def test_metrics_of_the_tables_exist(path):
    for vital, metric in re.findall(r"`([a-z]+)/([a-z_]+)[@`]", path.read_text(encoding="utf-8")):
        if vital != "loss":
            assert metric in {m.split("@")[0] for m in vitals.REGISTRY[vital].metrics}, (path.name, vital, metric)


def test_the_landing_page_leads_to_every_symptom():
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    assert all(f"](symptoms/{p.name})" in text for p in SYMPTOMS if p.name != "index.md")
