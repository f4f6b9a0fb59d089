"""``netvitals singular``: the zoo, the fluctuation and the readout from the command line."""

from __future__ import annotations

import json
import sys
import textwrap

import pytest

from netvitals.cli import main

FACTORY = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    with torch.no_grad():
        net[0].weight[2], net[0].bias[2], net[2].weight[:, 2] = 0, 0, 0
    return net, lambda o, y: nn.functional.cross_entropy(o, y), (torch.randn(60, 4), torch.randint(0, 3, (60,)))

def wordy():
    net, loss, _ = make()
    return net, loss, ["a", "b", "c"]
"""


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "dead_factory.py").write_text(textwrap.dedent(FACTORY))

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["singular", *arguments])
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    yield run
    sys.modules.pop("dead_factory", None)


def test_zoo_prints_exact_values_beside_ours(call):
    code, out, _ = call("zoo", "--json")
    rows = json.loads(out)
    assert code == 0 and len(rows) >= 15 and all(r["agrees"] for r in rows)
    (cube,) = [r for r in rows if r["model"] == "power law N(t^3, 1)"]
    assert cube["order"] == 3 and abs(cube["estimate"] - 3) < 1e-6 and abs(cube["nu"] - 0.278366) < 1e-6


def test_nu_of_an_order(call):
    code, out, _ = call("nu", "2", "--n", "1000")
    assert code == 0 and "0.172973" in out and "λ = 0.25" in out and "n = 1000" in out
    code, out, _ = call("nu", "2", "--h", "1", "--beta", "2", "--json")
    assert code == 0 and json.loads(out)["lambda"] == 0.5
    code, _, err = call("nu", "0")
    assert code == 2 and "whole number" in err


def test_readout_of_a_factory(call):
    code, out, _ = call("readout", "dead_factory:make", "--json")
    found = json.loads(out)
    assert code == 0 and found["lambda"] == 0.25 and found["m"] == 1
    assert [c["name"] for c in found["candidates"] if c["verdict"] == "singular"] == ["0 → 2, unit 2"]
    code, out, _ = call("readout", "dead_factory:make", "--loss", "mse", "--units", "1")
    assert code == 0 and "1 singular" in out and "condition expected Fisher: holds" in out


@pytest.mark.parametrize(("arguments", "words"), [
    (("readout", "dead_factory:nothing"), "no function 'nothing'"), (("readout", "dead_factory"), "PKG.MODULE:FACTORY"),
    (("readout", "dead_factory:make", "--loss", "hinge"), "likelihood"),
    (("readout", "dead_factory:wordy"), "--loss ce")])
def test_wrong_input_gets_a_sentence(call, arguments, words):
    code, _, err = call(*arguments)
    assert code == 2 and words in err, err
