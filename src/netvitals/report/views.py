"""The parts of the page as its template sees them: findings, cards, tiles, what was checked. Plain values, frozen."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals.findings import Findings, Status, is_pooled
from netvitals.findings.explanation import error_rate, threshold_of
from netvitals.report import words
from netvitals.report.card import Card
from netvitals.report.gate_plots import Picture
from netvitals.report.glossary import sign
from netvitals.runs import SEVERITIES, Finding

OPEN = 1  # so many findings are shown with reason and advice at once; the others on a click
TONES = {"not asked": "unasked", "not finite": "broken"}  # states whose class on the page has another name


@dataclass(frozen=True, kw_only=True)
class FindingView:
    """A finding, with the card, metric and sites that its link opens."""

    severity: str
    open: bool
    what: Any  # markup: names of sites are set as code
    why: str
    advice: str
    evidence: tuple[str, ...]
    anchor: str
    card: str
    vital: str
    show: str  # JSON: what the link shows
    dated: str = ""  # since when, until when, how sure
    null: str = ""
    refuted_by: str = ""
    threshold: str = ""  # beyond what the rule speaks, and where that comes from
    record: str = ""  # how the advice and the rule did in the clinic
    consequences: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricView:
    """The button that shows a metric."""

    index: int
    name: str
    meaning: str
    pooled: bool


@dataclass(frozen=True)
class PictureView:
    """A picture with its words."""

    title: str
    caption: str
    body: Any  # markup


@dataclass(frozen=True, kw_only=True)
class CardView:
    """A vital sign: its metrics, its last numbers, its arrays and pictures."""

    anchor: str
    title: str
    meaning: str
    first: int
    metrics: tuple[MetricView, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]  # site, one cell per metric
    arrays: tuple[str, ...]
    matrices: bool
    finding: FindingView | None
    pictures: tuple[PictureView, ...]

    @property
    def any_pooled(self) -> bool:
        """Whether some metric is one of the whole model."""
        return any(m.pooled for m in self.metrics)

    @property
    def all_pooled(self) -> bool:
        """Whether every metric is."""
        return all(m.pooled for m in self.metrics)


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A card at a glance."""

    anchor: str
    title: str
    value: str
    label: str
    path: str  # of the sparkline, and of the band around it
    band: str
    tone: str
    state: str


@dataclass(frozen=True)
class CheckedView:
    """A question that was asked."""

    state: str
    text: str


def finding_view(place: int, finding: Finding, cards: Sequence[Card]) -> FindingView:
    """A finding as the template shows it.

    Args:
        place: how many findings stand before it.
        finding: the finding.
        cards: the cards of the page, one of which it links to.

    Returns:
        The view.
    """
    ground = finding.evidence[0] if finding.evidence else None
    vital = finding.vital or (ground.vital if ground else "")
    card = next((c for c in cards if c.vital == vital), None)
    anchor, name = ("loss", "the loss") if vital == "loss" else ("", "")
    if card is not None:
        anchor, name = card.anchor, sign(card.vital).title
    show = {"metric": ground.metric if ground else "", "sites": list(finding.sites)[:8]}
    return FindingView(
        severity=finding.severity,
        open=place < OPEN,
        what=marked(finding.what, finding.sites),
        why=finding.why,
        advice=finding.advice,
        evidence=tuple(map(str, finding.evidence)),
        anchor=anchor,
        card=name,
        vital=vital,
        show=json.dumps(show),
        dated=finding.dated.strip(" ()"),
        null=finding.null,
        refuted_by=finding.refuted_by,
        threshold=threshold_of(finding.rule),
        record=" ".join(part for part in (finding.record, error_rate(finding.rule)) if part),
        consequences=tuple(c.what + c.dated for c in finding.below()),
    )


def card_view(card: Card, shown: Sequence[FindingView], pictures: Sequence[Picture] = ()) -> CardView:
    """A card as the template shows it.

    Args:
        card: the readings of one vital sign.
        shown: the findings of the page; the gravest of this vital sign marks the card.
        pictures: drawn below the chart.

    Returns:
        The view.
    """
    from markupsafe import Markup

    entry = sign(card.vital)
    return CardView(
        anchor=card.anchor,
        title=entry.title,
        meaning=entry.meaning,
        first=card.first,
        metrics=tuple(
            MetricView(i, m.name, m.meaning, all(is_pooled(s) for s in m.sites)) for i, m in enumerate(card.metrics)
        ),
        rows=tuple((site or "model", tuple(words.number(v) for v in row)) for site, row in card.rows),
        arrays=tuple(sorted({a.metric for a in card.arrays})),
        matrices=any(a.value.ndim > 1 for a in card.arrays),
        finding=gravest(shown, card.vital),
        pictures=tuple(PictureView(p.title, p.caption, Markup(p.plot.html())) for p in pictures),
    )


def tile_of(card: Card, status: Mapping[str, Status]) -> Tile | None:
    """A card at a glance: median over layers of its first metric, now and over time, with the spread of layers.

    Args:
        card: the readings of one vital sign.
        status: of every vital sign, for the tile's colour: green is said only of what was checked.

    Returns:
        The tile; None where there is no number to show.
    """
    if not card.metrics:
        return None
    metric = card.metrics[card.first]
    layers = [i for i, s in enumerate(metric.sites) if not is_pooled(s)] or list(range(len(metric.sites)))
    values = np.where(np.isfinite(metric.values[layers]), metric.values[layers], np.nan)
    known = ~np.isnan(values).all(axis=0)
    stand = status.get(card.vital, Status("not asked", "no rule judges it"))
    if not known.any():
        return None
    middle, low, high = (np.nanquantile(values[:, known], q, axis=0) for q in (0.5, 0.1, 0.9))
    path, band = _spark(middle, low, high) if len(middle) > 1 else ("", "")
    return Tile(
        anchor=card.anchor,
        title=sign(card.vital).title,
        value=words.number(float(middle[-1])),
        label=f"{metric.name}{', median' if len(layers) > 1 else ''}",
        path=path,
        band=band,
        tone=TONES.get(stand.state, stand.state),
        state=str(stand),
    )


def checked_views(findings: Findings) -> tuple[CheckedView, ...]:
    """Every question that was asked, with how it was answered.

    Args:
        findings: what was found and what was checked.

    Returns:
        One line a rule.
    """
    spoke = {f.rule for f in findings.all}
    return tuple(
        CheckedView(
            "absent" if not c.series else "hit" if c.rule in spoke else "",
            c.question + ("" if c.series else f" (no reading of {c.needs})"),
        )
        for c in findings.checked
    )


def gravest(shown: Sequence[FindingView], vital: str) -> FindingView | None:
    """The gravest finding of a vital sign.

    Args:
        shown: the findings of the page.
        vital: name of the vital sign.

    Returns:
        The first of the gravest; None where there is none.
    """
    order = {severity: i for i, severity in enumerate(SEVERITIES)}
    return min((f for f in shown if f.vital == vital), key=lambda f: order[f.severity], default=None)  # type: ignore[index]


def marked(text: str, sites: Sequence[str]) -> Any:
    """The text with the names of sites set as code; everything is escaped.

    Args:
        text: a sentence.
        sites: names of sites; bare numbers among them stay as they are.

    Returns:
        Markup.

    >>> str(marked("fc1 < fc2", ["fc1"]))
    '<code>fc1</code> &lt; fc2'
    """
    from markupsafe import Markup, escape

    named = sorted((s for s in sites if s and not s.replace(".", "").isdigit()), key=len, reverse=True)
    if not named:
        return escape(text)
    pieces = re.split(r"(?<![\w.])(" + "|".join(map(re.escape, named)) + r")(?![\w]|\.\w)", text)
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else escape(p) for i, p in enumerate(pieces))


def _spark(mean: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[str, str]:
    floor, top = float(low.min()), float(high.max())
    span = top - floor or 1.0
    x = np.linspace(0, 100, len(mean))
    y = {name: 28 - 26 * (v - floor) / span for name, v in (("mean", mean), ("low", low), ("high", high))}
    points = {name: [f"{a:.1f} {b:.1f}" for a, b in zip(x, v)] for name, v in y.items()}
    return "M" + "L".join(points["mean"]), "M" + "L".join(points["high"] + points["low"][::-1]) + "Z"
