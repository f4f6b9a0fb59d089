"""What ``netvitals doctor`` tries out: whether a watched training is the bare one, and a run comes back as it went."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEPS, EVERY = 20, 2
AGAIN = (
    "NETVITALS_DEBUG=1 netvitals doctor shows the traceback; if files are missing, install again with "
    "pip install --force-reinstall --no-deps netvitals"
)


@dataclass(frozen=True)
class SelfCheck:
    """One thing that was tried: how it went, and what to do if it is broken."""

    name: str
    ok: bool
    seconds: float
    sentence: str  # what was seen; where it is broken, what to do


class Broken(Exception):
    """A check that failed, with what was seen and what to do."""


@dataclass
class Bench:
    """What one check leaves for the next."""

    folder: Path
    bare: dict[str, Any] | None = None
    run: Any = None


def self_check(tell: Callable[[str], None] = lambda name: None) -> list[SelfCheck]:
    """Try every part that a first run needs; a part whose forerunner is broken is not tried."""
    done: list[SelfCheck] = []
    # a thread may still close a file of the run when the folder goes
    with tempfile.TemporaryDirectory(prefix="netvitals-doctor-", ignore_cleanup_errors=True) as folder:
        bench = Bench(folder=Path(folder))
        for name, check in CHECKS.items():
            tell(name)
            start = time.perf_counter()
            try:
                sentence, ok = check(bench), True
            except Broken as seen:
                sentence, ok = str(seen), False
            except Exception as error:
                if os.environ.get("NETVITALS_DEBUG"):
                    raise
                sentence, ok = f"{type(error).__name__}: {error}; {AGAIN}", False
            done.append(SelfCheck(name, ok, round(time.perf_counter() - start, 2), sentence))
            if not ok:
                break
    return done


@contextmanager
def _own_generator() -> Iterator[None]:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def _trained(run: Path | None) -> dict[str, Any]:
    """All parameters, and the state of the generator, after a few steps; watched if there is a run to write."""
    import torch
    from torch import nn

    import netvitals as nv

    with _own_generator():
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        x = torch.randn(64, 8)
        y = x[:, :3].argmax(1)
        watch = None if run is None else nv.watch(model, optimizer=optimizer, run=run, every=EVERY)
        for _ in range(STEPS):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if watch is not None:
                watch.step(loss)
        if watch is not None:
            watch.close()
        return {**{n: p.detach().clone() for n, p in model.named_parameters()}, "generator": torch.get_rng_state()}


def _trains(bench: Bench) -> str:
    bench.bare = _trained(None)
    return f"{STEPS} steps on the processor"


def _same_bits(bench: Bench) -> str:
    import torch

    assert bench.bare is not None
    watched = _trained(bench.folder / "run")
    differs = [name for name, value in bench.bare.items() if not torch.equal(value, watched[name])]
    if differs:
        raise Broken(
            f"watching changed {', '.join(differs)}: please report it with the output of netvitals doctor --json, "
            "and train without a watch until it is fixed"
        )
    return f"{len(watched) - 1} parameters and the generator are the same bit for bit"


def _reads(bench: Bench) -> str:
    from netvitals import open_run

    bench.run = open_run(bench.folder / "run")
    frame = bench.run.frame()
    steps = bench.run.frame(vital="gates")["step"].n_unique()
    if steps != STEPS // EVERY:
        raise Broken(
            f"{steps} of {STEPS // EVERY} measured steps came back from {bench.folder}: is its disk full, or a network "
            "drive without locks? Set TMPDIR to a local folder and try again"
        )
    return f"{len(frame)} measurements of {frame['vital'].n_unique()} vital signs came back"


def _diagnoses(bench: Bench) -> str:
    found = bench.run.findings()
    asked = [c for c in found.checked if c.series]
    if not asked:
        raise Broken("no check had any measurement: please report this with the output of netvitals doctor --json")
    return f"{len(asked)} rules were asked"


def _reports(bench: Bench) -> str:
    from netvitals import report

    page = report.write(bench.run, bench.folder / "report.html")
    text = page.read_text(encoding="utf-8")
    if "<script" not in text or "Gates" not in text:
        raise Broken(f"the report has no script or no vital sign in it; {AGAIN}")
    return f"a page of {len(text) // 1000} kB"


CHECKS: dict[str, Callable[[Bench], str]] = {
    "a small network trains": _trains,
    "a watched training is the bare one": _same_bits,
    "a run is read back": _reads,
    "findings are made": _diagnoses,
    "a report is written": _reports,
}
