"""The course of a run: trained under watch, asked for its findings as it goes, and once more at the end."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import netvitals as nv
from netvitals.findings import Findings
from netvitals_lab.clinic.session import Session, through_half

ASKED_EVERY = 8  # measured steps between two questions for findings while the run goes on
SLOW_SIGNS = 25  # training steps between two looks of the signs that look seldom: runs of the clinic are short


@dataclass(frozen=True)
class Course:
    """What happened: losses, what was found at which step, and how it ended on held-out data."""

    losses: tuple[float, ...]
    asked: tuple[tuple[int, Findings], ...]  # (step, findings), the last one after the run
    outcome: float
    watch: Any = None

    @property
    def findings(self) -> Findings:
        """Those of the end."""
        return self.asked[-1][1]


Treat = Callable[[Session, torch.optim.Optimizer, int], torch.optim.Optimizer]


def course(
    session: Session,
    seed: int = 0,
    *,
    watched: bool = True,
    live: bool = True,
    treat: tuple[int, Treat] | None = None,
    companion: Any = None,
    enough: Callable[[Findings], bool] | None = None,
) -> Course:
    """Train a session from its first step to its last."""
    torch.manual_seed(1000 + seed)
    optimizer = session.make_optimizer()
    hooks = through_half(session.model) if session.half is not None else []
    watch = _watch(session, optimizer) if watched else None
    other = companion(session.model, optimizer) if companion is not None else None
    losses: list[float] = []
    asked: list[tuple[int, Findings]] = []
    sure = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(session.steps):
            if treat is not None and treat[0] == step:
                optimizer = treat[1](session, optimizer, step)
            losses.append(_advance(session, optimizer, step))
            if watch is not None:
                watch.step(losses[-1])
                if live and sure < 2 and step and step % (session.every * ASKED_EVERY) == 0:
                    asked.append((step, watch.findings()))
                    sure = sure + 1 if enough is not None and enough(asked[-1][1]) else 0
            if other is not None:
                other.step(step, losses[-1])
        if watch is not None:
            asked.append((session.steps, watch.findings()))
            watch.close()
        for hook in hooks:
            hook.remove()
    return Course(tuple(losses), tuple(asked), session.outcome(), watch)


def _watch(session: Session, optimizer: torch.optim.Optimizer) -> Any:
    from netvitals.vitals import Drift, Rank

    signs: list[Any] = ["default", Rank(min_steps=SLOW_SIGNS), Drift(min_steps=SLOW_SIGNS)]
    probe = (*session.held, session.loss_of) if session.validate else None
    return nv.watch(session.model, optimizer, every=session.every, vitals=signs, probe=probe)


def _advance(session: Session, optimizer: torch.optim.Optimizer, step: int) -> float:
    """One step of the loop, with whatever is wrong in it."""
    for change in session.model_edits.get(step, ()):
        with torch.no_grad():
            change(session.model)
    session.model.train(session.mode(step) == "train")
    for group in optimizer.param_groups:
        group["lr"] = session.rate(step) * group.get("factor", 1.0)
    if session.zero_grad:
        optimizer.zero_grad()
    total = 0.0
    factor = 1.0 if session.half is None else session.half
    for part in range(session.accumulate):
        x, y = session.batch(step * session.accumulate + part)
        loss = session.loss_of(session.model(x), y)
        total += float(loss.detach()) / session.accumulate
        scale = factor / (session.accumulate if session.scale_accumulation else 1)
        if loss.requires_grad:
            (loss * scale).backward()
    if session.half is not None:
        for p in session.model.parameters():
            if p.grad is not None:
                p.grad.div_(factor)
    if session.clip is not None:
        torch.nn.utils.clip_grad_norm_(session.model.parameters(), session.clip)
    optimizer.step()
    return total if math.isfinite(total) else float("nan")
