"""Everything the report's page shows, as one frozen model: built in steps from readings and findings, read by the
template and by nobody else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals.findings import Curve, Findings, Table, diagnose, is_pooled, table
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
    short, long = words.facts({k: v for k, v in readings.meta.items() if k != "status"})
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
        tiles=tuple(t for c in built if (t := tile_of(c, judged.status))),
        cards=tuple(card_view(c, shown, gate_pictures(readings, source) if c.vital == "gates" else ()) for c in built),
        facts=tuple(short),
        blocks=tuple(long),
        skipped=readings.meta.get("skipped") or {},
        sites=readings.meta.get("sites") or (),
        binned=_binned(built),
        data=_drawn(built, loss),
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


def _drawn(built: Sequence[Card], loss: Curve | None) -> Any:
    """What the script draws, as JSON that no module name can break out of."""
    from markupsafe import Markup

    text = json.dumps({"cards": [c.to_json() for c in built], "loss": None if loss is None else _loss(loss)})
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
