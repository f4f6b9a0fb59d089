"""The index of a paper: every table and figure is in it, what it names exists, and the page is up to date."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from netvitals.cli import app
from netvitals_lab import all_claims, find_study, index

DOCS = Path(__file__).parents[3] / "docs"
PAPERS = ("dag-hessian", "dead-directions", "gate-density", "saddle-escape", "weight-drift")
# the numbers of the tables and figures as the papers print them; weight drift's are not public
TABLES = {
    "dag-hessian": [*range(1, 10), *(f"N.{i}" for i in range(1, 9))],
    "dead-directions": range(1, 14),
    "gate-density": range(1, 10),
    "saddle-escape": [],
}
FIGURES = {
    "dag-hessian": [*range(1, 8), "N.1", "N.2"],
    "dead-directions": (1, 2, 3, 4, 5, 9, 12),  # those that its text speaks of
    "gate-density": range(1, 38),
    "saddle-escape": range(1, 6),
}


def test_all_five_papers_have_an_index():
    assert index.indexed() == sorted(PAPERS)
    with pytest.raises(LookupError, match="there is no index of 'activations'"):
        index.index_of("activations")


@pytest.mark.parametrize("paper", TABLES)
def test_every_table_and_figure_of_the_paper_is_in_its_index(paper):
    numbers = [e.number for e in index.index_of(paper).entries]
    wanted = [f"Table {n}" for n in TABLES[paper]] + [f"Figure {n}" for n in FIGURES[paper]]
    assert [n for n in wanted if numbers.count(n) != 1] == []
    assert len(set(numbers)) == len(numbers)


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_studies_and_claims_that_are_named_exist(paper):
    found = index.index_of(paper)
    claims = {c.id: c for c in all_claims()}
    for e in found.entries:
        for name in e.claims:
            claim = claims.get(f"{paper}/{name}")
            assert claim is not None, (e.number, name)
            assert claim.study == e.study, (e.number, name, claim.study)
        if e.study:
            assert find_study(e.study).paper == paper and found.costs[e.study].hours > 0
            assert e.claims or e.fate == "configuration only", e.number
        if e.fate in ("whole", "configuration only"):
            assert e.trials("paper"), e.number


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_a_figure_that_is_whole_is_drawn(paper):
    claims = {c.id: c for c in all_claims()}
    for e in index.index_of(paper).entries:
        if e.number.startswith("Figure") and e.fate == "whole":
            assert any(claims[f"{paper}/{c}"].plot for c in e.claims), e.number


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_the_page_is_up_to_date(paper):
    """After a change: netvitals studies --index docs/papers"""
    page = (DOCS / "papers" / f"{paper}.md").read_text(encoding="utf-8")
    assert page == index.render_index(index.index_of(paper), DOCS / "verdicts" / "images")
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 7 for line in page.splitlines() if line.startswith("|"))


@pytest.mark.slow
def test_the_command_writes_the_pages(tmp_path):
    result = CliRunner().invoke(app, ["studies", "--index", str(tmp_path / "papers")])
    assert result.exit_code == 0, result.output
    assert sorted(p.name for p in (tmp_path / "papers").glob("*.md")) == sorted(f"{p}.md" for p in PAPERS)


def test_an_entry_says_what_is_missing():
    with pytest.raises(ValueError, match="say what is missing"):
        index.IndexEntry("Table 1", "something", "small only", "a-study")
    with pytest.raises(ValueError, match="names its study"):
        index.IndexEntry("Table 1", "something", "whole")
    with pytest.raises(ValueError, match="the fate is one of"):
        index.IndexEntry("Table 1", "something", "partly", "a-study")
