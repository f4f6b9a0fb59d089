"""One run of the clinic, judged: did the instrument notice, name the cause and the place, how late, and did its
advice help?"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch

from netvitals.findings import Finding, Findings
from netvitals.runs import Remedy
from netvitals_lab.clinic.controls import Control
from netvitals_lab.clinic.courses import Course, course
from netvitals_lab.clinic.disease import Disease
from netvitals_lab.clinic.session import Session
from netvitals_lab.clinic.treatments import treat

GRAVE = ("critical", "warning")
CLOSED = 0.5  # share of the gap to the healthy twin that a cure closes
HARMLESS = 0.05  # a gap below this share of the healthy loss leaves nothing to cure
WORSE = 1.1


@dataclass(frozen=True)
class Trial:
    """What one run showed. Delays are in measured steps; None where nothing was noticed."""

    set: str  # "disease" or "control"
    name: str
    family: str
    grade: str
    seed: int
    size: int
    alarm: bool  # a warning or worse at the end
    ever: bool  # a warning or worse at any question while the run went on
    caught: bool = False  # a rule that the disease expects gave it
    first: str = ""  # the rule of the first finding
    cause: bool = False
    place: bool = False
    delay: float | None = None
    rules: tuple[str, ...] = ()
    outcome: float = math.inf
    noticed: int | None = None  # the step at which it was first said
    remedy: tuple[str, float | None, tuple[str, ...]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def examine(disease: Disease, seed: int, grade: str = "moderate", size: int = 1, *, live: bool = True) -> Trial:
    """Plant a disease, train, and judge what was found."""
    session = disease.session(seed, grade, size)
    every = session.every
    expected = {*disease.cause, *disease.symptoms}
    stated = lambda findings: any(f.rule in expected for f in _grave(findings))
    found = course(session, seed, live=live, enough=stated)
    grave = _grave(found.findings)
    first = next((f for f in found.findings if f.severity in GRAVE), None)
    noticed = _noticed(found, expected)
    named = first.remedy if first is not None else None
    return Trial(
        set="disease",
        name=disease.name,
        family=disease.family,
        grade=grade,
        seed=seed,
        size=size,
        alarm=bool(grave),
        ever=any(_grave(f) for _, f in found.asked),
        caught=any(f.rule in expected for f in grave),
        first=first.rule if first is not None else "",
        cause=first is not None and first.rule in disease.cause,
        place=any(f.rule in expected and disease.is_at(f.sites or (f.site,)) for f in grave),
        delay=None if noticed is None else max(0.0, (noticed - disease.onset) / every),
        rules=tuple(dict.fromkeys(f.rule for f in grave)),
        outcome=found.outcome,
        noticed=noticed,
        remedy=None if named is None else (named.kind, named.amount, named.places),
    )


def keep_watch(control: Control, seed: int, size: int = 1, *, live: bool = True) -> Trial:
    """Train a healthy control, and judge what was found."""
    session = control.session(seed, size)
    found = course(session, seed, live=live)
    grave = _grave(found.findings)
    first = next((f for f in found.findings if f.severity in GRAVE), None)
    named = first.remedy if first is not None else None
    return Trial(
        set="control",
        name=control.name,
        family="healthy",
        grade="",
        seed=seed,
        size=size,
        alarm=bool(grave),
        ever=any(_grave(f) for _, f in found.asked),
        first=first.rule if first is not None else "",
        rules=tuple(dict.fromkeys(f.rule for f in grave)),
        outcome=found.outcome,
        noticed=None if first is None else session.steps // 2,
        remedy=None if named is None else (named.kind, named.amount, named.places),
    )


@dataclass(frozen=True)
class Cure:
    """The same run three times: healthy, untreated, and treated from the step of the finding on."""

    name: str
    rule: str
    remedy: str
    seed: int
    healthy: float
    untreated: float
    treated: float

    @property
    def curable(self) -> bool:
        """Whether the disease did any harm that a cure could undo."""
        return not self.untreated - self.healthy <= HARMLESS * max(self.healthy, 0.2)

    @property
    def mended(self) -> bool:
        """Whether at least half of the gap to the healthy twin was closed."""
        if not math.isfinite(self.treated):
            return False
        if not math.isfinite(self.untreated):
            return self.treated < max(2 * self.healthy, self.healthy + 0.5)
        return self.untreated - self.treated >= CLOSED * (self.untreated - self.healthy)

    @property
    def harmed(self) -> bool:
        """Whether the treated run ended worse than the untreated one."""
        if not math.isfinite(self.untreated):
            return False
        return not math.isfinite(self.treated) or self.treated > WORSE * self.untreated + 0.05

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "curable": self.curable, "mended": self.mended, "harmed": self.harmed}


def cure(trial: Trial, disease: Disease | Control) -> Cure | None:
    """Apply the first advice of a trial from the step at which it was given, and go on for as long as the whole run."""
    if trial.remedy is None or trial.noticed is None:
        return None
    remedy = Remedy(trial.remedy[0], trial.remedy[1], tuple(trial.remedy[2]))
    at = trial.noticed

    def fresh() -> Session:
        if isinstance(disease, Control):
            return disease.session(trial.seed, trial.size)
        return disease.session(trial.seed, trial.grade, trial.size)

    healthy = (
        disease.session(trial.seed, trial.size)
        if isinstance(disease, Control)
        else disease.host(trial.seed, trial.size)
    )
    well = course(healthy, trial.seed, watched=False).outcome
    outcomes = []
    for treated in (False, True):
        session = fresh()
        session.steps = at + session.steps
        plan = (at, lambda s, o, step: treat(s, o, remedy, step)) if treated else None
        try:
            outcomes.append(course(session, trial.seed, watched=False, treat=plan).outcome)
        except (RuntimeError, torch.linalg.LinAlgError):  # a planted edit cannot be done to weights that are lost
            outcomes.append(math.inf)
    return Cure(trial.name, trial.first, remedy.kind, trial.seed, well, outcomes[0], outcomes[1])


def _grave(findings: Findings) -> list[Finding]:
    return [f for f in findings.all if f.severity in GRAVE]


def _noticed(found: Course, expected: set[str]) -> int | None:
    """The first step at which an expected finding was given and stayed."""
    noticed = None
    for step, findings in found.asked:
        if any(f.rule in expected for f in _grave(findings)):
            noticed = step if noticed is None else noticed
        else:
            noticed = None
    return noticed
