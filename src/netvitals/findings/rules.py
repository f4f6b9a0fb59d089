"""What a rule is, and how twelve layers with one trouble become one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netvitals.findings.series import Measurements, Series
from netvitals.findings.statistics import last_stretch
from netvitals.runs import SEVERITIES, Evidence, Finding, Remedy, Severity

NAMED = 4  # so many layers are named one by one; more are given as a range


@dataclass(frozen=True)
class Context:
    """What a rule may ask: the measurements, and the activation function at each site, where it is known."""

    table: Measurements
    activations: dict[str, Any]


@dataclass(frozen=True)
class Rule:
    """A question asked of the measurements, with what it needs to be answered."""

    name: str
    question: str
    vital: str  # the panel that shows what it found
    needs: tuple[tuple[str, str], ...]  # (vital, metric), any of which makes the question answerable
    observe: Callable[[Context], list[Finding]]
    least: int = 1  # measurements a series must have for the question to make sense
    optional: bool = False  # asked only where some of what it needs was read: not every model has a stream or experts
    null: str = ""  # what a healthy network shows
    threshold: str = ""  # beyond what the rule speaks
    source: str = ""  # where that comes from
    refuted_by: str = ""  # what would prove a finding of it wrong
    also: tuple[str, ...] = ()  # other vital signs whose measurements it judges
    asked: Callable[[Mapping[str, Any]], int] | None = (
        None  # of an exact check: how often it ran, by the run's metadata
    )
    lacks: str = ""  # what an exact check needs

    def series(self, table: Measurements) -> int:
        """How many series there are to look at."""
        if self.asked is not None:
            return self.asked(table.meta)
        return sum(len(s.values) >= self.least for s in self.needs_in(table))

    def needs_in(self, table: Measurements) -> list[Series]:
        """The series of what it needs, however short."""
        kinds = table.by_metric.items()
        wanted = [of for (v, m), of in kinds if (v, m) in self.needs or (v, m.split("@")[0] + "@") in self.needs]
        return [s for of in wanted for s in of]

    def __str__(self) -> str:
        if self.asked is not None:
            return self.lacks
        wanted = " or ".join(f"{vital}/{metric}" for vital, metric in self.needs)
        return f"{wanted} on {self.least} steps" if self.least > 1 else wanted


def rule(
    name: str,
    question: str,
    vital: str,
    *needs: tuple[str, str],
    least: int = 1,
    optional: bool = False,
    null: str = "",
    threshold: str = "",
    source: str = "choice of this project, set on planted bugs",
    refuted_by: str = "",
    also: tuple[str, ...] = (),
) -> Callable[[Callable[[Context], Any]], Rule]:
    """Make a rule of a function that yields findings; they get its name, and its vital sign where they name none."""

    def made(observe: Callable[[Context], Iterable[Finding]]) -> Rule:
        def signed(context: Context) -> list[Finding]:
            return [
                replace(
                    f,
                    rule=name,
                    vital=f.vital or vital,
                    null=f.null or null,
                    refuted_by=f.refuted_by or refuted_by,
                )
                for f in observe(context)
            ]

        return Rule(
            name=name,
            question=question,
            vital=vital,
            needs=needs,
            observe=signed,
            least=least,
            optional=optional,
            null=null,
            threshold=threshold,
            source=source,
            refuted_by=refuted_by,
            also=also,
        )

    return made


@dataclass(frozen=True)
class Hit:
    """One site where a rule found its trouble."""

    site: str
    severity: Severity
    evidence: tuple[Evidence, ...]
    size: float = 0.0  # how bad it is, to name the worst
    since: int | None = None
    until: int | None = None


def hit(
    curve: Series,
    severity: Severity,
    size: float,
    *,
    change: bool | None = None,
    beyond: float | None = None,
    above: bool = True,
) -> Hit:
    """A site's trouble, grounded on one of its series."""
    change = len(curve.finite) > 2 if change is None else change
    found = Hit(curve.site, severity, (curve.evidence(change=change),), size)
    return found if beyond is None else crossed(found, curve, beyond, above)


def crossed(found: Hit, curve: Series, threshold: float, above: bool = True) -> Hit:
    """The same hit with since when and until when, from where its series is beyond a threshold."""
    with np.errstate(invalid="ignore"):
        seen = curve.values > threshold if above else curve.values < threshold
    stretch = last_stretch(curve.steps, seen)
    if stretch is None:
        return found
    return replace(found, since=stretch.since, until=stretch.until)


def together(
    hits: Sequence[Hit],
    *,
    what: Callable[[str, Hit], str],
    why: str,
    advice: str,
    vital: str = "",
    remedy: Remedy | None = None,
) -> list[Finding]:
    """One finding for all sites with the same trouble: as grave as the most severe, evidence of the worst first."""
    if not hits:
        return []
    ordered = sorted(hits, key=lambda h: (SEVERITIES.index(h.severity), -h.size))
    gravest = ordered[0]
    sites = tuple(h.site for h in hits)
    return [
        Finding(
            severity=gravest.severity,
            site=gravest.site,
            what=what(names(sites), gravest),
            why=why,
            advice=advice,
            evidence=tuple(e for h in ordered for e in h.evidence),
            sites=sites,
            vital=vital,
            since=min((h.since for h in hits if h.since is not None), default=None),
            until=max((h.until for h in hits if h.until is not None), default=None),
            remedy=remedy,
        )
    ]


def called(site: str) -> str:
    """A site as a sentence names it; the bare numbers of ``nn.Sequential`` would be read as quantities.

    >>> called("blocks.0.act"), called("3"), called("")
    ('blocks.0.act', 'layer 3', 'the model')
    """
    return f"layer {site}" if site.replace(".", "").isdigit() else site or "the model"


def in_worst(where: str, worst: Hit) -> str:
    """Where the worst of several layers is; nothing where a sentence names only one.

    >>> in_worst("fc1 and fc2", Hit("fc2", "note", ())), in_worst("fc2", Hit("fc2", "note", ()))
    (' in fc2', '')
    """
    return "" if where == called(worst.site) else f" in {called(worst.site)}"


def names(sites: Sequence[str]) -> str:
    """Several sites as a sentence names them.

    >>> names(["fc1"]), names(["fc1", "fc2", "fc3"]), names([f"block.{i}" for i in range(12)])
    ('fc1', 'fc1, fc2 and fc3', '12 layers (block.0 … block.11)')
    """
    text = [called(s) for s in sites]
    if len(text) > NAMED:
        return f"{len(text)} layers ({text[0]} … {text[-1]})"
    return text[0] if len(text) == 1 else f"{', '.join(text[:-1])} and {text[-1]}"


def short(value: float) -> str:
    """A value to set, with one significant digit.

    >>> short(0.00316), short(3e-8), short(31.6)
    ('0.003', '3e-8', '30')
    """
    digits = f"{value:.0e}"
    return f"{float(digits):g}".replace("e-0", "e-").replace("e+0", "e")


def percent(share: float) -> str:
    """A share as a sentence gives it.

    >>> percent(0.5), percent(0.004), percent(0.0)
    ('50 %', '0.4 %', '0 %')
    """
    return f"{100 * share:.0f} %" if share == 0 or share >= 0.0995 else f"{100 * share:.1f} %"
