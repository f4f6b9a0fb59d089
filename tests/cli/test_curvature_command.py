"""``netvitals curvature``: the sentences on stdout, the page on request, JSON and nothing else with --json."""

import json
import textwrap

import pytest

from netvitals.cli import main

FACTORY = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    return net, nn.CrossEntropyLoss(), (torch.randn(32, 4), torch.randint(2, (32,)))

def batches():
    net, loss, (x, y) = make()
    return net, loss, [(x[:16], y[:16]), (x[16:], y[16:])]

def unfit():
    net, loss, (x, y) = make()
    return net, loss, (x[:, :2], y)
"""


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    """Run the command in a folder that has the factory; gives (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "curved_nets.py").write_text(textwrap.dedent(FACTORY), encoding="utf-8")

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["curvature", *arguments])
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


def test_it_answers_in_sentences_and_writes_the_page(call, tmp_path):
    code, out, _ = call("curved_nets:make", "--probes", "6", "--lr", "0.1", "--html", "page.html")
    assert code == 0
    for words in ("Layers that share curvature most", "Gauss–Newton misses", "of SGD at learning rate 0.1", "cost:"):
        assert words in out, words
    assert "Curvature of Sequential" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_json_is_json_and_the_same_for_many_batches(call):
    answers = []
    for factory in ("make", "batches"):
        code, out, _ = call(f"curved_nets:{factory}", "--probes", "6", "--json")
        assert code == 0
        answers.append(json.loads(out))
    one, many = ([row["coupling"] for row in a["pairs"]] for a in answers)
    assert many == pytest.approx(one, rel=1e-3)


def test_what_does_not_fit_gets_a_sentence(call):
    code, _, err = call("curved_nets:unfit")
    assert code == 2 and "do not work together" in err and "Traceback" not in err
    assert call("curved_nets:make", "--mode", "sideways")[0] == 2
    assert call("curved_nets:make", "--probes", "1")[0] == 2
