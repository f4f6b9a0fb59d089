"""Every stack that a model is trained on, and what holds there: writes docs/matrix.md.

python bench/stacks/table.py
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import loops
import torch
import torch._dynamo.utils
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import netvitals as nv

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "matrix.md"
RANKS = {  # what tests/stacks/test_sharded.py trains in several processes
    "DistributedDataParallel, 2 ranks": ("ddp", 2),
    "FSDP2, 2 ranks": ("fsdp2", 2),
    "FSDP2, 4 ranks": ("fsdp2", 4),
    "FSDP2, 2 × 2 ranks (HSDP)": ("hsdp", 4),
    "FSDP1, 2 ranks": ("fsdp1", 2),
    "FSDP1 with flat parameters, 2 ranks": ("fsdp1 flat", 2),
    "tensor parallel, 2 ranks": ("tp", 2),
    "FSDP2 and tensor parallel, 2 × 2 ranks": ("both", 4),
}
HEAD = (
    "stack",
    "training unchanged",
    "steps",
    "measurements",
    "‖g‖ as by hand",
    "‖Δw‖/‖w‖ as by hand",
    "hooks left",
    "runs",
    "graphs compiled because of us",
    "skipped",
)
PACKAGES = ("torch", "lightning", "transformers", "accelerate")
TEXT = """# What holds on every stack

The table shows which tests pass with each stack (launcher, trainer or wrapper). Each row is a small model
on a CPU, measured on every step.

- *Training unchanged*: the parameters are bit-identical with and without the watch.
- *As by hand*: the gradient norm and the update/weight ratio agree to 1e-6 with values computed by hand from
  PyTorch hooks. With several ranks, the values computed by hand come from one process with the whole batch.
- *Hooks left*: the hooks that remain on modules and parameters after the watch has closed.
- *Graphs compiled because of us*: the number of `torch.compile` graphs with the watch, minus the number without
  it.
- *Skipped*: the places that are listed in `skipped`, which also gives the reasons.

`python bench/stacks/table.py` makes this page from real runs. A test checks that the results on this page are up
to date.

The results are for {versions}.
"""


@dataclass
class ByHand:
    """Gradient norm and update ratio of each step, from torch's hooks around the steps of optimizers."""

    optimizers: int = 1  # that make one step
    rows: list[tuple[float, float]] = field(default_factory=list)
    _parts: list[tuple[float, float, float]] = field(default_factory=list)
    _before: list[torch.Tensor] = field(default_factory=list)

    @contextlib.contextmanager
    def listening(self) -> Iterator[ByHand]:
        before, after = torch.compiler.disable(self._pre), torch.compiler.disable(self._post)
        handles = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def _pre(self, optimizer: Any, *_: Any) -> None:
        if "_optimizer_step_post_hooks" in vars(optimizer):  # else a wrapper, whose inner one is heard too
            self._before = [p.detach().clone() for p in _parameters(optimizer)]

    def _post(self, optimizer: Any, *_: Any) -> None:
        if not self._before:
            return
        now = _parameters(optimizer)
        grads, before = [p.grad for p in now if p.grad is not None], self._before
        moved = [p.detach() - b for p, b in zip(now, before)]
        self._parts.append((_square(grads), _square(moved), _square(before)))
        self._before = []
        if len(self._parts) == self.optimizers:
            g, step, weight = (sum(column) for column in zip(*self._parts))
            self.rows.append((math.sqrt(g), math.sqrt(step / weight)))
            self._parts = []


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _square(tensors: list[Any]) -> float:
    return sum(float(t.detach().double().square().sum()) for t in tensors)


def row_of(name: str, loop: Callable[[Any, Path | None], Any]) -> tuple[str, ...]:
    """What holds for a loop in one process.

    Args:
        name: of the stack.
        loop: trains a network, watched where it gets a folder.

    Returns:
        The cells of its row.
    """
    ends, graphs, by_hand = [], [], ByHand(2 if name == "two optimizers" else 1)
    with tempfile.TemporaryDirectory() as folder, _quiet():
        for run in (None, Path(folder) / "run"):
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
            torch.manual_seed(0)
            net = loops.Net()
            with by_hand.listening() if run is None else contextlib.nullcontext():
                loop(net, run)
            ends.append([p.detach().clone() for p in net.parameters()])
            graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
        same = all(torch.equal(a, b) for a, b in zip(*ends, strict=True))
        left = [h for m in net.modules() for h in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())]
        left = [h for h in left if type(h).__module__.startswith("netvitals")]
        left += [p for p in net.parameters() if p._backward_hooks]
        opened = nv.open_run(run)
        frame, skipped = opened.frame(), _listed(opened.meta["skipped"])
        runs = sum(1 for p in Path(folder).iterdir() if p.name.startswith("run"))
    cells = _cells(frame, by_hand.rows)
    return (name, _yes(same), *cells, str(len(left)), str(runs), str(graphs[1] - graphs[0]), skipped)


def row_of_ranks(name: str, kind: str, world: int, truth: list[tuple[float, float]]) -> tuple[str, ...]:
    """What holds where several processes train one model; a process that finds its training changed, or a hook left,
    fails."""
    script = ROOT / "tests" / "stacks" / "test_sharded.py"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(script), folder, kind, str(world)]
        running = [subprocess.Popen([*command, str(r)], stderr=subprocess.PIPE, text=True) for r in range(world)]
        errors = [process.communicate(timeout=300)[1] for process in running]
        if any(process.returncode for process in running):
            return (name, "no: " + errors[0][-80:], *["·"] * 8)
        opened = nv.open_run(Path(folder) / "run")
        frame, skipped = opened.frame(), _listed(opened.meta["skipped"])
        runs = sum(1 for p in Path(folder).iterdir() if p.name.startswith("run"))
    return (name, "yes", *_cells(frame, truth), "0", str(runs), "·", skipped)


def truth_of_ranks() -> list[tuple[float, float]]:
    """By hand, in one process, on the batches of all ranks together."""
    sys.path.insert(0, str(ROOT / "tests" / "stacks"))
    import test_sharded

    with ByHand().listening() as by_hand:
        test_sharded.train(test_sharded.model(), slice(None), lambda model, optimizer: None)
    return by_hand.rows


def _cells(frame: Any, truth: list[tuple[float, float]]) -> tuple[str, ...]:
    """Steps, measurements, and whether gradient norm and update ratio are those computed by hand."""
    cells = []
    for i, metric in enumerate(("grad_norm", "update_ratio")):
        rows = frame.filter((frame["vital"] == "gradients") & (frame["site"] == "model") & (frame["metric"] == metric))
        found = dict(zip(rows["step"], rows["value"]))
        close = all(math.isclose(value, truth[step][i], rel_tol=1e-6, abs_tol=1e-12) for step, value in found.items())
        cells.append(_yes(bool(found) and close))
    return str(len(truth)), str(len(frame)), *cells


def _listed(skipped: dict[str, str]) -> str:
    return ", ".join(sorted(skipped)) or "nothing"


def _versions() -> str:
    known = [f"{name} {metadata.version(name)}" for name in PACKAGES]
    return f"Python {platform.python_version()}, {', '.join(known)}"


def _yes(holds: bool) -> str:
    return "yes" if holds else "**no**"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    for name in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings(), open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        warnings.simplefilter("ignore")
        yield


def page(rows: list[tuple[str, ...]]) -> str:
    """The whole page."""
    table = [HEAD, ("---",) * len(HEAD), *rows]
    return (
        TEXT.format(versions=_versions()) + "\n" + "\n".join("| " + " | ".join(cells) + " |" for cells in table) + "\n"
    )


def main() -> None:
    rows = [row_of(name, loop) for name, loop in loops.LOOPS.items()]
    truth = truth_of_ranks()
    rows += [row_of_ranks(name, kind, world, truth) for name, (kind, world) in RANKS.items()]
    PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
