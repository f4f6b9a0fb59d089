"""The page of findings is written from the rules, and has the sentences that findings are made of."""

import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import netvitals as nv
from netvitals.cli import app
from netvitals.findings import REMEDIES, RULES, anchor, reference
from netvitals.findings.exact import TEXTS
from netvitals.findings.markdown import FILLED, OTHER, sentences

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", PAGE, re.M))


def test_the_page_is_written_from_the_rules():
    assert reference() == PAGE, "write it with `netvitals explain --reference > docs/findings.md`"
    assert CliRunner().invoke(app, ["explain", "--reference"]).output == PAGE


def test_every_rule_has_a_section_with_what_it_says():
    assert list(SECTIONS) == [*(rule.name for rule in RULES), "Remedies"]
    assert all(f"](#{anchor(rule.name)})" in PAGE for rule in RULES)
    assert all(f"`{kind}`" in SECTIONS["Remedies"] for kind in REMEDIES)
    for rule in RULES:
        text = SECTIONS[rule.name]
        assert rule.question in text, rule.name
        assert re.search(r"^> .*\w{4}", text, re.M), f"{rule.name} says nothing"
        assert "> **Why:** " in text, f"{rule.name} does not say why"


@pytest.mark.parametrize("name", TEXTS)
def test_an_exact_checks_fixed_sentences_are_on_the_page(name):
    text = TEXTS[name]
    assert " ".join(text.why.split()) in SECTIONS[name]
    assert "> **Fix:** " in SECTIONS[name]
    if isinstance(text.fix, str):
        assert " ".join(text.fix.split()) in SECTIONS[name]


def fits(sentence, shown):
    """Whether a sentence of a finding is one that the page shows, with words in its gaps."""
    patterns = [".*".join(map(re.escape, re.split(f"(?: in )?{FILLED.pattern}", one))) for one in shown.split(OTHER)]
    return any(re.fullmatch(pattern, sentence, re.S) for pattern in patterns)


def test_findings_of_a_run_are_what_the_page_shows(tmp_path):
    torch.manual_seed(0)
    x = torch.rand(64, 3) * 100
    y = (x[:, :1] > 50).float()
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1), torch.nn.Sigmoid())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with nv.watch(model, optimizer, run=tmp_path / "run", every=2) as watch:
        for _ in range(40):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
    found = watch.findings().all
    assert {"double sigmoid", "unnormalised input"} <= {f.rule for f in found}
    said = sentences()
    for f in found:
        assert any(fits(f.what, what) and fits(f.why, why) for what, why, _ in said[f.rule]), (f.what, said[f.rule])


def test_a_sentence_that_no_rule_says_does_not_fit():
    what, _, _ = sentences()["double sigmoid"][0]
    assert fits(FILLED.sub("sigmoid", what), what)
    assert not fits(what.replace("sigmoid", "softmax"), what)
