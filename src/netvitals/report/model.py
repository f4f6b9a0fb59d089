"""Everything the report's page shows, as one frozen model: built in steps from readings and findings, read by the
template and by nobody else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals.findings import Curve, Findings, Table, diagnose, is_pooled, table
from netvitals.forecasts import Forecast, Ledger
from netvitals.forecasts.ledger import scored
from netvitals.report import words
from netvitals.report.card import COLUMNS, Card, cards, matrix, packed
from netvitals.report.gate_plots import gate_pictures
from netvitals.report.views import (
    CardView,
    CheckedView,
    FindingView,
    Tile,
    card_view,
    checked_views,
    finding_view,
    marked,
    tile_of,
)
from netvitals.runs import Run

ROWS = 60  # open forecasts shown
SMOOTH_FROM = 60  # a loss of so many points is drawn with a running mean over a twentieth of them
CHIPS = {"model": "model", "parameters": "parameters", "every": "measured every", "seed": "seed"}


@dataclass(frozen=True, kw_only=True)
class ReportModel:
    """What ``page.html.j2`` knows, field by field."""

    title: str
    kind: str  # "run" or "checkup"
    chips: tuple[tuple[str, str], ...]
    words: tuple[Any, ...]  # sentences, as markup
    findings: tuple[FindingView, ...]
    tally: str
    calm: str  # what to say where nothing was found
    checked: tuple[CheckedView, ...]
    loss_caption: str  # "" where no loss is drawn
    tiles: tuple[Tile, ...]
    cards: tuple[CardView, ...]
    facts: tuple[tuple[str, str], ...]
    blocks: tuple[tuple[str, str], ...]
    skipped: Mapping[str, str]
    sites: Sequence[Mapping[str, Any]]
    binned: str  # what the foot says of columns that gather several steps
    data: Any  # what the script draws: JSON, as markup
    forecasts: tuple[
        tuple[str, ...], ...
    ] = ()  # rows: what, where, for which step, value, 80 % interval, by which method
    methods: tuple[str, ...] = ()  # how each method did on this run so far


def report_model(source: Any, *, title: str | None = None, findings: Findings | None = None) -> ReportModel:
    """The model of a run's or a checkup's page.

    Args:
        source: what :func:`netvitals.findings.diagnose` takes.
        title: the headline; by default the run's name.
        findings: shown instead of a fresh diagnosis.

    Returns:
        The model, ready for the template.
    """
    readings = table(source)
    judged = _judged(source, readings) if findings is None else findings
    kind = "run" if len(readings.steps) > 1 else "checkup"
    status = source.status if isinstance(source, Run) else str(readings.meta.get("status", "finished"))
    built = cards(readings)
    shown = tuple(finding_view(i, f, built) for i, f in enumerate(judged))
    loss = readings.loss if kind == "run" else None
    sites = tuple({s.site for s in readings.series.values() if not is_pooled(s.site)})
    hidden = ("status", "forecasts", "groups")
    short, long = words.facts({k: v for k, v in readings.meta.items() if k not in hidden})
    book = _book(source, readings)
    return ReportModel(
        title=title or (source.name if isinstance(source, Run) else _title(readings, kind)),
        kind=kind,
        chips=tuple(_chips(readings, status, kind)),
        words=tuple(marked(s, sites) for s in words.sentences(readings, judged, kind=kind, status=status)),
        findings=shown,
        tally=words.tally(list(judged)),
        calm=_calm(judged),
        checked=checked_views(judged),
        loss_caption="" if loss is None else words.loss_caption(loss),
        tiles=tuple(t for c in built if (t := tile_of(c, shown))),
        cards=tuple(card_view(c, shown, gate_pictures(readings, source) if c.vital == "gates" else ()) for c in built),
        facts=tuple(short),
        blocks=tuple(long),
        skipped=readings.meta.get("skipped") or {},
        sites=readings.meta.get("sites") or (),
        binned=_binned(built),
        data=_drawn(built, loss, None if book is None else _ahead(book)),
        forecasts=() if book is None else _forecast_rows(book),
        methods=() if book is None else tuple(map(str, book.methods())),
    )


def _judged(source: Any, readings: Table) -> Findings:
    own = getattr(source, "findings", None)
    return own if isinstance(own, Findings) else diagnose(readings)


def _title(readings: Table, kind: str) -> str:
    model = readings.meta.get("model")
    return f"{kind.capitalize()} of {model}" if isinstance(model, str) else kind.capitalize()


def _chips(readings: Table, status: str, kind: str) -> list[tuple[str, str]]:
    meta, steps = readings.meta, readings.steps
    out = [("", status)] if kind == "run" else []
    if steps and kind == "run":
        out.append(("steps", f"{steps[-1] - steps[0] + 1:,}"))  # the first one counts, whatever its number
    for key, label in CHIPS.items():
        value = meta.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            out.append((label, f"{value:,}" if key == "parameters" else str(value)))
        elif isinstance(value, str) and len(value) < 40:
            out.append((label, value))
    out += [("optimizer", str(o.get("name"))) for o in meta.get("optimizer") or () if isinstance(o, dict)]
    if isinstance(meta.get("started"), str):
        out.append(("began", meta["started"].replace("T", " ").removesuffix("+00:00") + " UTC"))
    return out


def _calm(findings: Findings) -> str:
    asked = [c for c in findings.checked if c.series]
    if not asked:
        return "But no rule found readings to look at."
    if len(asked) < len(findings.checked):
        return (
            f"But only {len(asked)} of {len(findings.checked)} questions could be asked of the readings; "
            "those were answered well."
        )
    return f"{words.plural(len(asked), 'question').capitalize()} asked of the readings, all answered well."


def _binned(built: Sequence[Card]) -> str:
    gathered = max((m.gathered for c in built for m in c.metrics), default=1)
    return "" if gathered == 1 else f"; a column of a heat map is the mean of up to {gathered} measured steps"


def _book(source: Any, readings: Table) -> Ledger | None:
    """The ledger of what was forecast; None where nothing was."""
    made = [Forecast.from_dict(record) for record in readings.meta.get("forecasts") or ()]
    if not made:
        return None
    series = {key: (curve.steps, curve.values) for key, curve in readings.series.items()}
    last = readings.steps[-1] if readings.steps else -1
    return Ledger(forecasts=tuple(made), scores=tuple(scored(made, series, last)), last_step=last)


def _forecast_rows(book: Ledger) -> tuple[tuple[str, ...], ...]:
    """Open forecasts: events first, then the last day of each quantity and site."""
    furthest: dict[tuple[str, str], Forecast] = {}
    for f in sorted(book.open, key=lambda f: f.for_step):
        furthest[f.quantity, f.site] = f
    ordered = sorted(furthest.values(), key=lambda f: (not f.is_event, f.quantity))
    return tuple(
        (
            f.quantity,
            f.site,
            "event" if f.is_event else f"{f.for_step:,}",
            f"step {f.value:,.0f}" if f.is_event else f"{f.value:.4g}",
            f"{f.interval80[0]:,.4g} to {f.interval80[1]:,.4g}",
            f.method + (" (demoted)" if "demoted" in f.conditions else ""),
        )
        for f in ordered[:ROWS]
    )


def _ahead(book: Ledger) -> dict[str, Any] | None:
    """The event that is drawn on the loss curve as a band with its date."""
    events = [f for f in book.open if f.is_event]
    if not events:
        return None
    f = max(events, key=lambda f: (f.quantity.startswith("loss/"), f.made_at))
    what = {"loss/lost": "lost", "plateau/leaves": "leaves this plateau"}.get(f.quantity, "fallen by half")
    return {"low": f.interval80[0], "high": f.interval80[1], "at": f.value, "what": what}


def _drawn(built: Sequence[Card], loss: Curve | None, ahead: dict[str, Any] | None = None) -> Any:
    """What the script draws, as JSON that no module name can break out of."""
    from markupsafe import Markup

    text = json.dumps(
        {"cards": [c.to_json() for c in built], "loss": None if loss is None else {**_loss(loss), "ahead": ahead}}
    )
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _loss(loss: Curve) -> dict[str, Any]:
    metric = matrix("loss", [loss], COLUMNS[1])
    values = metric.values[0]
    finite = loss.finite
    smooth = None
    if len(values) >= SMOOTH_FROM and np.isfinite(values).all():
        width = max(3, len(values) // 20) | 1
        padded = np.pad(values, width // 2, mode="reflect", reflect_type="odd")
        smooth = packed(np.convolve(padded, np.ones(width) / width, mode="valid"))
    return {
        **metric.to_json(),
        "smooth": smooth,
        "log": bool(len(finite) and finite.min() > 0 and finite.max() / finite.min() > 30),
    }
