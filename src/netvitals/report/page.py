"""The report: one HTML file that holds its data, its style and its script, and needs no network."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from netvitals._version import __version__
from netvitals.findings import Curve, Findings, Table, diagnose, is_pooled, table
from netvitals.report import words
from netvitals.report.card import COLUMNS, Card, Metric, cards, matrix, packed
from netvitals.report.gate_plots import Picture, gate_pictures
from netvitals.report.glossary import sign
from netvitals.report.plot import style as plot_style
from netvitals.runs import SEVERITIES, Run

TEMPLATES = Path(__file__).with_name("templates")
OPEN = 1  # so many findings are shown with reason and advice at once; the others on a click
SMOOTH_FROM = 60  # a loss of so many points is drawn with a running mean over a twentieth of them


def write(
    source: Any, path: str | os.PathLike[str], *, title: str | None = None, findings: Findings | None = None
) -> Path:
    """Write the report of a run, a checkup, a frame or readings to ``path`` and return it.

    Args:
        source: what :func:`netvitals.findings.diagnose` takes.
        path: the HTML file; a folder gets ``report.html``. An existing file is replaced once the new one is whole.
        title: the headline; by default the run's name.
        findings: shown instead of a fresh diagnosis.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "report.html"
    text = render(source, title=title, findings=findings)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
    return path


def render(source: Any, *, title: str | None = None, findings: Findings | None = None) -> str:
    """The page as text."""
    from markupsafe import Markup

    readings = table(source)
    if findings is None:
        own = getattr(source, "findings", None)
        findings = own if isinstance(own, Findings) else diagnose(readings)
    built = cards(readings)
    kind = "run" if len(readings.steps) > 1 else "checkup"
    status = source.status if isinstance(source, Run) else str(readings.meta.get("status", "finished"))
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    loss = readings.loss
    sites = tuple({s.site for s in readings.series.values() if not is_pooled(s.site)})
    shown = [_finding(i, f, built) for i, f in enumerate(findings)]
    short, long = words.facts({k: v for k, v in readings.meta.items() if k != "status"})
    gathered = max((m.gathered for p in built for m in p.metrics), default=1)
    data = {"cards": [p.to_json() for p in built], "loss": _loss(loss) if loss is not None and kind == "run" else None}
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=title or (source.name if isinstance(source, Run) else _title(readings, kind)),
            version=__version__,
            kind=kind,
            chips=_chips(readings, status, kind),
            words=[_marked(s, sites) for s in words.sentences(readings, findings, kind=kind, status=status)],
            findings=shown,
            tally=words.tally(list(findings)),
            calm=_calm(findings),
            checked=_checked(findings),
            loss={"caption": words.loss_caption(loss)} if data["loss"] and loss is not None else None,
            tiles=[t for p in built if (t := _tile(p, shown))],
            cards=[_card(p, shown, gate_pictures(readings, source) if p.vital == "gates" else ()) for p in built],
            facts=short,
            blocks=long,
            skipped=readings.meta.get("skipped") or {},
            sites=readings.meta.get("sites") or [],
            binned="" if gathered == 1 else f"; a column of a heat map is the mean of up to {gathered} measured steps",
            style=Markup((TEMPLATES / "style.css").read_text(encoding="utf-8") + plot_style()),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            data=Markup(_safe(json.dumps(data))),
        )
    )


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True)


def _title(readings: Table, kind: str) -> str:
    model = readings.meta.get("model")
    return f"{kind.capitalize()} of {model}" if isinstance(model, str) else kind.capitalize()


def _safe(text: str) -> str:
    """JSON that no module name can break out of."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _chips(readings: Table, status: str, kind: str) -> list[tuple[str, str]]:
    meta, steps = readings.meta, readings.steps
    out = [("", status)] if kind == "run" else []
    if steps and kind == "run":
        out.append(("steps", f"{steps[-1] - steps[0] + 1:,}"))  # the first one counts, whatever its number
    for key, label in (("model", "model"), ("parameters", "parameters"), ("every", "measured every"), ("seed", "seed")):
        value = meta.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            out.append((label, f"{value:,}" if key == "parameters" else str(value)))
        elif isinstance(value, str) and len(value) < 40:
            out.append((label, value))
    out += [("optimizer", str(o.get("name"))) for o in meta.get("optimizer") or () if isinstance(o, dict)]
    if isinstance(meta.get("started"), str):
        out.append(("began", meta["started"].replace("T", " ").removesuffix("+00:00") + " UTC"))
    return out


def _finding(place: int, finding: Any, built: list[Card]) -> dict[str, Any]:
    """A finding as the template shows it, with the panel, metric and sites its link opens."""
    ground = finding.evidence[0] if finding.evidence else None
    vital = finding.vital or (ground.vital if ground else "")
    card = next((p for p in built if p.vital == vital), None)
    target, name = (
        ("loss", "the loss") if vital == "loss" else ((card.anchor, sign(card.vital).title) if card else ("", ""))
    )
    show = {"metric": ground.metric if ground else "", "sites": list(finding.sites)[:8]}
    return {
        "severity": finding.severity,
        "open": place < OPEN,
        "what": _marked(finding.what, finding.sites),
        "why": finding.why,
        "advice": finding.advice,
        "evidence": [str(e) for e in finding.evidence],
        "anchor": target,
        "panel": name,
        "vital": vital,
        "show": json.dumps(show),
    }


def _marked(text: str, sites: tuple[str, ...]) -> Any:
    """The text with the names of sites set as code; everything is escaped."""
    from markupsafe import Markup, escape

    named = sorted((s for s in sites if s and not s.replace(".", "").isdigit()), key=len, reverse=True)
    if not named:
        return escape(text)
    pieces = re.split(r"(?<![\w.])(" + "|".join(map(re.escape, named)) + r")(?![\w]|\.\w)", text)
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else escape(p) for i, p in enumerate(pieces))


def _checked(findings: Findings) -> list[dict[str, str]]:
    return [
        {
            "state": "absent" if not c.series else "hit" if c.rule in {f.rule for f in findings} else "",
            "text": c.question + ("" if c.series else f" (no reading of {c.needs})"),
        }
        for c in findings.checked
    ]


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


def _gravest(shown: list[dict[str, Any]], vital: str) -> dict[str, Any] | None:
    mine = [f for f in shown if f["vital"] == vital]
    return min(mine, key=lambda f: SEVERITIES.index(f["severity"])) if mine else None


def _card(card: Card, shown: list[dict[str, Any]], pictures: Sequence[Picture] = ()) -> dict[str, Any]:
    from markupsafe import Markup

    entry = sign(card.vital)
    metrics = [
        {"index": i, "name": m.name, "meaning": m.meaning, "pooled": all(is_pooled(s) for s in m.sites)}
        for i, m in enumerate(card.metrics)
    ]
    return {
        "anchor": card.anchor,
        "title": entry.title,
        "meaning": entry.meaning,
        "first": card.first,
        "metrics": metrics,
        "any_pooled": any(m["pooled"] for m in metrics),
        "all_pooled": all(m["pooled"] for m in metrics),
        "rows": [{"site": site or "model", "cells": [words.number(v) for v in row]} for site, row in card.rows],
        "arrays": sorted({a.metric for a in card.arrays}),
        "finding": _gravest(shown, card.vital),
        "matrices": any(a.value.ndim > 1 for a in card.arrays),
        "pictures": [{"title": p.title, "caption": p.caption, "body": Markup(p.plot.html())} for p in pictures],
    }


def _tile(card: Card, shown: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The panel at a glance: median over layers of its first metric, now and over time, with the spread of layers."""
    if not card.metrics:
        return None
    metric = card.metrics[card.first]
    layers = [i for i, s in enumerate(metric.sites) if not is_pooled(s)] or list(range(len(metric.sites)))
    values = np.where(np.isfinite(metric.values[layers]), metric.values[layers], np.nan)
    known = ~np.isnan(values).all(axis=0)
    if not known.any():
        return None
    values = values[:, known]
    middle, low, high = (np.nanquantile(values, q, axis=0) for q in (0.5, 0.1, 0.9))
    grave = _gravest(shown, card.vital)
    path, band = _spark(middle, low, high) if len(middle) > 1 else ("", "")
    return {
        "anchor": card.anchor,
        "title": sign(card.vital).title,
        "value": words.number(float(middle[-1])),
        "label": f"{metric.name}{', median' if len(layers) > 1 else ''}",
        "path": path,
        "band": band,
        "tone": grave["severity"] if grave else "",
        "state": grave["severity"] if grave else "nothing alarming",
    }


def _spark(mean: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[str, str]:
    floor, top = float(low.min()), float(high.max())
    span = top - floor or 1.0
    x = np.linspace(0, 100, len(mean))
    y = {name: 28 - 26 * (v - floor) / span for name, v in (("mean", mean), ("low", low), ("high", high))}
    points = {name: [f"{a:.1f} {b:.1f}" for a, b in zip(x, v)] for name, v in y.items()}
    return "M" + "L".join(points["mean"]), "M" + "L".join(points["high"] + points["low"][::-1]) + "Z"


def _loss(loss: Curve) -> dict[str, Any]:
    drawn: Metric = matrix("loss", [loss], COLUMNS[1])
    values = drawn.values[0]
    finite = loss.finite
    smooth = None
    if len(values) >= SMOOTH_FROM and np.isfinite(values).all():
        width = max(3, len(values) // 20) | 1
        padded = np.pad(values, width // 2, mode="reflect", reflect_type="odd")
        smooth = packed(np.convolve(padded, np.ones(width) / width, mode="valid"))
    return {
        **drawn.to_json(),
        "smooth": smooth,
        "log": bool(len(finite) and finite.min() > 0 and finite.max() / finite.min() > 30),
    }
