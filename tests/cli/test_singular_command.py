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
    code, out, _ = call("readout", "dead_factory:make", "--chains", "0", "--json")
    found = json.loads(out)
    assert code == 0 and found["limit"] == 19.5 and found["n"] == 10_000
    assert found["lambda"] is None and found["sampled"] is None and "no chains" in found["why"]
    assert [c["name"] for c in found["candidates"] if c["verdict"] == "singular"] == ["0 → 2, unit 2"]
    code, out, _ = call("readout", "dead_factory:make", "--loss", "mse", "--units", "1", "--chains", "1", "--n", "500")
    assert code == 0 and "(for n = 500 samples)" in out and "by sampling: λ = " in out
    assert "1 singular" in out and "condition expected Fisher: holds" in out


def test_readout_writes_a_page_with_pictures(call, tmp_path):
    code, out, err = call("readout", "dead_factory:make", "--units", "1", "--chains", "0", "--html", "page.html")
    text = (tmp_path / "page.html").read_text()
    assert code == 0 and "page.html" in err and "1 singular" in out
    assert text.count('<svg class="plot"') == 2 and "transversal" in text and "order 2" in text


def test_coefficient_over_checkpoints(call, tmp_path):
    sys.path.insert(0, str(tmp_path))
    import dead_factory
    import torch

    net, loss, (x, y) = dead_factory.make()
    opt = torch.optim.Adam(net.parameters(), 0.05)
    for step in range(201):
        if step in (20, 200):
            torch.save(net.state_dict(), tmp_path / f"step{step}.pt")
        opt.zero_grad()
        loss(net(x), y).backward()
        opt.step()
    orders = ("coefficient", "dead_factory:make", "step200.pt", "step20.pt", "--chains", "2", "--draws", "40")
    code, out, _ = call(*orders, "--json", "--html", "llc.html")
    found = json.loads(out)
    assert code == 0 and [r["step"] for r in found] == [20, 200] and found[1]["loss"] < found[0]["loss"]
    assert all(r["stderr"] > 0 and r["diverged"] == 0 for r in found)
    # the health of the chains goes with the number, in JSON, on the page and in words
    assert all(r["r_hat"] > 0.9 and r["effective_draws"] > 1 and (r["ok"] or r["note"]) for r in found)
    assert all({"well", "below", "gain", "worst"} <= set(r) for r in found)
    page = (tmp_path / "llc.html").read_text()
    assert "learning coefficient" in page and "inside the well" in page and "effective draws" in page
    code, out, _ = call("coefficient", "dead_factory:make", "step200.pt", "--draws", "10", "--chains", "2", "--by-part")
    assert code == 0 and "0, step 200: λ" in out and "2, step 200: λ" in out and "effective draws" in out
    code, out, _ = call("coefficient", "dead_factory:make", "--draws", "4", "--part", "head=2.*", "--json")
    assert code == 0 and [(r["part"], r["parameters"]) for r in json.loads(out)] == [("head", 21)]
    code, _, err = call("coefficient", "dead_factory:make", "--part", "=2.*")
    assert code == 2 and "NAME=PATTERN" in err
    torch.save({"0.weight": torch.zeros(2)}, tmp_path / "other.pt")
    code, _, err = call("coefficient", "dead_factory:make", "other.pt")
    assert code == 2 and "does not fit" in err
    code, _, err = call("coefficient", "dead_factory:make", "dead_factory.py")
    assert code == 2 and "cannot be read as a state dict" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("coefficient", "dead_factory:make", "none.pt"), "no checkpoint file none.pt"),
        (("readout", "dead_factory:nothing"), "no function 'nothing'"),
        (("readout", "dead_factory"), "PKG.MODULE:FACTORY"),
        (("readout", "dead_factory:make", "--loss", "hinge"), "no loss 'hinge'"),
        (("readout", "dead_factory:make", "--loss", "l1"), "likelihood"),
        (("readout", "dead_factory:wordy"), "--loss ce"),
    ],
)
def test_wrong_input_gets_a_sentence(call, arguments, words):
    code, _, err = call(*arguments)
    assert code == 2 and words in err, err
