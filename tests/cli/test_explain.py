"""``netvitals explain``: a rule, a finding of a run, what there is, and sentences for what there is not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.cli import main


@pytest.fixture
def call(capsys):
    """Run a command; gives (exit code, stdout, stderr)."""

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main(list(arguments))
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


@pytest.fixture
def run(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = torch.randn(32, 8), torch.randint(3, (32,))
    with nv.watch(model, optimizer, every=1, run=tmp_path / "r") as watching:
        for _ in range(12):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()  # zero_grad was forgotten
            optimizer.step()
            watching.step(loss)
    return tmp_path / "r"


def test_a_rule_is_explained_with_its_null_its_threshold_and_its_source(call):
    code, out, _ = call("explain", "dead units")
    assert code == 0
    for word in ("healthy:", "reported if:", "source:", "not a problem if:"):
        assert word in out, word


def test_a_finding_of_a_run_is_explained_with_its_measurements(call, run):
    code, out, _ = call("explain", "1", str(run))
    assert code == 0 and "gradients carried over" in out and "finding: critical" in out
    code, out, _ = call("explain", "gradients carried over", str(run))
    assert code == 0 and "finding: critical" in out
    code, out, _ = call("explain", "underflow", str(run))
    assert code == 0 and "has no finding of 'underflow'" in out


def test_of_a_run_alone_the_findings_are_numbered(call, run):
    code, out, _ = call("explain", str(run))
    first = out.splitlines()[0]
    assert code == 0 and first.startswith("  1  critical  gradients carried over: Gradients are never cleared")
    assert out.splitlines()[-1] == f"netvitals explain NUMBER {run} says why."


def test_without_a_name_all_rules_are_listed_and_wrong_names_get_a_sentence(call, run):
    code, out, _ = call("explain")
    assert code == 0 and "learning rate too high" in out and len(out.splitlines()) > 50
    assert call("explain", "learning rate to high")[0] == 2
    assert "finding number 3 of which run" in call("explain", "3")[2]
    assert "there is no finding number 99" in call("explain", "99", str(run))[2]
