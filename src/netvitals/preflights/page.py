"""A preflight as one HTML file: the four counts, failures, pictures of learning rates and batches, the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from netvitals.checks import ANSWERS
from netvitals.preflights.result import Preflight, PreflightCheck, RateRange
from netvitals.report import Plot, Series, render_html

TEMPLATES = Path(__file__).with_name("templates")
TONES = {"failed": "failed", "passed": "passed"}


@dataclass(frozen=True)
class Page:
    """What the template shows."""

    title: str
    counts: list[tuple[str, int, str]]
    facts: list[tuple[str, str]]
    note: str
    failed: tuple[PreflightCheck, ...]
    pictures: list[tuple[str, Any]]
    others: list[tuple[str, list[PreflightCheck]]]
    skipped: Mapping[str, str]


def page(found: Preflight) -> str:
    """The page as text."""
    from markupsafe import Markup

    pictures: list[tuple[str, Any]] = []
    if found.rates is not None:
        pictures.append((_words(found.rates), Markup(rate_plot(found.rates).html())))
    if found.features:
        pictures.append(("Mean and standard deviation of each input feature", Markup(feature_plot(found).html())))
    model = Page(
        title=f"Preflight of {found.model}",
        counts=[(name, count, TONES.get(name, "skipped")) for name, count in found.counts.items()],
        facts=[
            ("batches", str(found.batches)),
            ("seconds", f"{found.seconds:.1f}"),
            ("one step", f"{1000 * found.step_seconds:.3g} ms"),
        ],
        note=found.note,
        failed=found.failed,
        pictures=pictures,
        others=[(name, [c for c in found if c.status == name]) for name in ANSWERS[1:]],
        skipped=found.skipped,
    )
    return render_html("preflight.html.j2", model, styles=("preflight.css",), script="preflight.js", folder=TEMPLATES)


def rate_plot(rates: RateRange) -> Plot:
    """The loss after a short training at each rate; its ends, and the rate of the optimizer."""
    drawn = [(r, v) for r, v in zip(rates.rates, rates.losses) if math.isfinite(v)]
    top = rates.start + 1.5 * abs(rates.start)
    drawn = [(r, min(v, top)) for r, v in drawn]
    low, high = min([v for _, v in drawn] + [rates.start]), max([v for _, v in drawn] + [rates.start])
    column = lambda name, at, tone: Series(name, [at, at], [low, high], line=True, dashed=True, tone=tone)
    series = [
        Series("loss after training", [r for r, _ in drawn], [v for _, v in drawn], line=True, tone=0),
        Series("without training", [rates.rates[0], rates.rates[-1]], [rates.start] * 2, line=True, tone=7),
        column("your rate", rates.yours, 2),
    ]
    if rates.low is not None:
        series.append(column("too low", rates.low, 3))
    if rates.high is not None:
        series.append(column("diverges", rates.high, 1))
    return Plot("learning rate", "loss", series, log_x=True)


def feature_plot(found: Preflight) -> Plot:
    """Mean and standard deviation of the features of the first input."""
    at = [float(i) for i in range(len(found.features))]
    means, spreads = [m for m, _ in found.features], [s for _, s in found.features]
    return Plot("feature", "mean ± standard deviation", [Series("inputs", at, means, spreads, tone=0)])


def _words(rates: RateRange) -> str:
    words = f"Copies trained for {rates.steps} steps at {len(rates.rates)} rates; yours is {rates.yours:.3g}"
    if rates.low is not None:
        words += f"; from {rates.low:.2g} down they hardly learn"
    return words + (f"; from {rates.high:.2g} on they diverge" if rates.high is not None else "; none diverges")


def fragment(found: Preflight) -> str:
    """The four counts and the failures, for a notebook."""
    tally = ", ".join(f"<b>{n}</b> {escape(name)}" for name, n in found.counts.items())
    rows = "".join(
        f"<tr><td><b>{escape(c.name)}</b></td><td>{escape(c.measured)}</td><td><code>{escape(c.fix)}</code></td></tr>"
        for c in found.failed
    )
    table = f"<table><tr><th>failed</th><th>measured</th><th>fix</th></tr>{rows}</table>" if rows else ""
    picture = rate_plot(found.rates)._repr_html_() if found.rates is not None else ""
    return f"<div><p>Preflight of {escape(found.model)}: {tally}</p>{table}{picture}</div>"
