"""On every stack training is left alone, gradients and updates are those of the optimizer, and one run is written."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

BENCH = Path(__file__).parents[2] / "bench" / "stacks"


@pytest.fixture(scope="module")
def table():
    sys.path.insert(0, str(BENCH))
    try:
        yield importlib.import_module("table")
    finally:
        sys.path.remove(str(BENCH))
        for name in ("table", "loops"):
            sys.modules.pop(name, None)


def written(table, name):
    """The row of a stack in the committed page."""
    lines = [line for line in table.PAGE.read_text().splitlines() if line.startswith(f"| {name} |")]
    assert len(lines) == 1, f"{name} is not in docs/matrix.md: run python bench/stacks/table.py"
    return tuple(cell.strip() for cell in lines[0].strip("|").split("|"))


LOOPS = [
    "a plain loop", "without vitals.step", "gradient accumulation", "two optimizers", "LBFGS and its closure",
    "GradScaler", "autocast, bfloat16", "checkpointing", "encoder and decoder", "torch.compile(model, fullgraph=True)",
    "model.compile(fullgraph=True)", "a compiled function around the model", "a compiled loss",
    "a compiled optimizer step", "functional_call", "a part in TorchScript", "Lightning, accumulating", "Fabric",
    "accelerate, accumulating", "Hugging Face Trainer, accumulating",
]  # fmt: skip
NEEDS = {"Lightning": "lightning", "Fabric": "lightning", "accelerate": "accelerate", "Hugging": "transformers"}


def holds(row):
    _, same, steps, measurements, gradient, update, hooks, runs, graphs, _ = row
    assert (same, gradient, update, hooks, runs) == ("yes", "yes", "yes", "0", "1"), row
    assert int(measurements) >= 4 * int(steps) and graphs in ("0", "·"), row


@pytest.mark.parametrize("name", LOOPS)
def test_one_process(name, table, bfloat16_matmul):
    pytest.importorskip(NEEDS.get(name.split(",")[0].split()[0], "torch"))
    row = table.row_of(name, table.loops.LOOPS[name])
    holds(row)
    assert row == written(table, name), "docs/matrix.md is not today's: run python bench/stacks/table.py"


def test_every_loop_is_in_the_list(table):
    assert list(table.loops.LOOPS) == LOOPS


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
def test_several_ranks(table, programs, monkeypatch):
    monkeypatch.setattr(table, "subprocess", SimpleNamespace(Popen=programs.Popen, PIPE=subprocess.PIPE))
    truth = table.truth_of_ranks()
    for name, (kind, world) in table.RANKS.items():
        holds(written(table, name))
        if kind == "fsdp2" and world == 2:  # the others are trained in test_sharded.py
            assert table.row_of_ranks(name, kind, world, truth) == written(table, name)


def test_a_row_that_does_not_hold_says_so(table):
    def careless(net, run):
        """A loop whose watched training is another one."""
        vitals = table.loops.simple(net, run)
        if run is not None:
            torch.nn.init.zeros_(net.last.bias)
        return vitals

    assert table.row_of("careless", careless)[1] == "**no**"
