"""Runs cases: each in a process forked from one that has imported torch and netvitals."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from netvitals_lab.bugs.case import Case

LIMIT_S = 300  # a script that takes longer is ended
PARTS: dict[str, dict[str, Any]] = {  # of a watch, for the ablation
    "both": {},
    "checks": {"vitals": ["optimizer"], "forecasts": False},
    "vital signs": {"checks": False},
}


@dataclass(frozen=True)
class Outcome:
    """What one script printed of itself and what the watch said of it."""

    case: str
    variant: str  # bug, fixed or healthy
    seed: int
    score: float
    learned: bool
    findings: tuple[dict[str, Any], ...]  # severity, rule, what, since; the first stands first
    headline: str
    checks: dict[str, str]  # status by check
    steps: int
    seconds: float
    progress: str = ""
    error: str = ""


def run_cases(
    cases: Iterable[Case],
    seeds: Sequence[int] = (0,),
    variants: Sequence[str] = ("bug", "fixed", "healthy"),
    jobs: int = 2,
    part: str = "both",
) -> Iterator[Outcome]:
    """Run every variant with every seed, ``jobs`` at a time; ``part`` is one of :data:`PARTS`."""
    import torch
    import torch._dynamo

    import netvitals.findings
    import netvitals.forecasts
    import netvitals.watching  # noqa: F401  what scripts need is loaded once, before the first fork

    torch.set_num_threads(1)
    work = [
        (case, variant, seed)
        for case in cases
        for variant in (("bug", "fixed") if case.kind == "bug" else ("healthy",))
        if variant in variants
        for seed in seeds
    ]
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda one: run_script(one[0], one[1], one[2], part), work)


def run_script(case: Case, variant: str, seed: int, part: str = "both") -> Outcome:
    """One script in a process of its own."""
    facts = in_fork(lambda: asdict(_outcome(case, variant, seed, PARTS[part])))
    if facts.keys() == {"error"}:
        return Outcome(case.name, variant, seed, float("nan"), False, (), "", {}, 0, 0.0, "", facts["error"])
    return Outcome(**{**facts, "findings": tuple(facts["findings"])})


def in_fork(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``work`` returns in a process of its own, as plain data; ``error`` alone where it raised."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(ours)
        signal.alarm(LIMIT_S)
        try:
            text = json.dumps(work(), default=str)
        except BaseException:
            text = json.dumps({"error": traceback.format_exc(limit=-4)})
        with os.fdopen(theirs, "w") as pipe:
            pipe.write(text)
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else {"error": "the process ended"}


def _outcome(case: Case, variant: str, seed: int, options: dict[str, Any]) -> Outcome:
    import functools

    import netvitals

    if options:
        netvitals.watch = functools.partial(netvitals.watch, **options)
    begun = time.perf_counter()
    with quiet():
        names = executed(case, variant, seed)
        seconds = time.perf_counter() - begun
        findings = names["watch"].findings()
    return Outcome(
        case=case.name,
        variant=variant,
        seed=seed,
        score=float(names["score"]),
        learned=bool(names["learned"]),
        findings=tuple(
            {
                "severity": f.severity,
                "rule": f.rule,
                "what": f.what,
                "since": f.since,
                "below": [c.rule for c in f.below()],
            }
            for f in findings
        ),
        headline=str(findings).splitlines()[0],
        checks={c.name: c.status for c in getattr(findings, "checks", ())},
        steps=int(getattr(names["watch"], "_step", 0)),
        seconds=seconds,
        progress=str(findings.progress),
    )


def executed(case: Case, variant: str, seed: int) -> dict[str, Any]:
    """Run a script from a seed; its names afterwards."""
    import random

    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(case.variant(fixed=variant == "fixed"), case.name, "exec"), names)
    return names


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Print and warn nothing."""
    with (
        warnings.catch_warnings(action="ignore"),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        yield
