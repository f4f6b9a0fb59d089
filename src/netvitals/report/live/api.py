"""What the page is answered, as plain values: the head of a run, a metric at all sites, a site with all its metrics.

The live page asks for these one by one; the file that needs no server has them inside. Numbers are little-endian
float32 in base64: NaN where nothing was measured, infinite where what was measured was not finite.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from netvitals.capture import plain
from netvitals.findings import Findings, Measurements, is_pooled, threshold_of
from netvitals.report import words
from netvitals.report.arrays import drawn, packed
from netvitals.report.forecast_panel import forecast_panel
from netvitals.report.gate_plots import gate_pictures
from netvitals.report.glossary import rank, sign
from netvitals.report.live.pyramid import PyramidColumns
from netvitals.report.live.series import Numbers, RunNumbers
from netvitals.runs import Finding, Run

CHIPS = {"model": "model", "parameters": "parameters", "every": "measured every", "seed": "seed"}
HIDDEN = ("status", "forecasts", "groups")  # metadata that is shown elsewhere
ARRAYS = 48  # arrays drawn for one vital sign
SPARK = 80  # points of a small curve
Source = Numbers | RunNumbers


def head(source: Source, findings: Findings, *, title: str, status: str, original: Any = None) -> dict[str, Any]:
    """Everything a run's page says in words, and what there is to draw."""
    measurements = source.table
    kind = "run" if _last_step(measurements) != _first_step(measurements) else "checkup"
    loss = measurements.loss if kind == "run" else None
    short, long = words.facts({k: v for k, v in measurements.meta.items() if k not in HIDDEN})
    vitals = _vitals(measurements)
    shown = [_finding(f, vitals) for f in findings]
    return {
        "title": title,
        "kind": kind,
        "status": status,
        "steps": [_first_step(measurements), _last_step(measurements)],
        "width": source.width,
        "chips": _chips(measurements, status, kind),
        "words": words.sentences(measurements, findings, kind=kind, status=status),
        "findings": shown,
        "tally": words.tally(list(findings)),
        "calm": calm(findings),
        "checked": [_checked(c, findings) for c in findings.checked],
        "loss": None
        if loss is None
        else {"site": loss.site, "metric": loss.metric, "caption": words.loss_caption(measurements)},
        "vitals": [
            v | {"tile": _tile(source, v, findings), "pictures": _pictures(v, measurements, original)} for v in vitals
        ],
        "forecasts": forecast_panel(measurements),
        "sites": _sites(measurements),
        "skipped": dict(measurements.meta.get("skipped") or {}),
        "facts": short,
        "blocks": long,
    }


def metric(source: Source, vital: str, name: str, start: int | None = None, stop: int | None = None) -> dict[str, Any]:
    """One metric at every site that has it, in columns of steps."""
    keys = [k for k in source.table.series if k[0] == vital and k[2] == name]
    if not keys:
        raise LookupError(f"the run has no measurements of {vital}/{name}")
    return {"vital": vital, "metric": name, "sites": [k[1] for k in keys], **_packed(source.read(keys, start, stop))}


def site(source: Source, name: str, start: int | None = None, stop: int | None = None) -> dict[str, Any]:
    """All metrics of one site, and its arrays."""
    keys = sorted((k for k in source.table.series if k[1] == name), key=lambda k: rank(k[0]))
    arrays = [a for (_, where, _), a in source.table.arrays.items() if where == name]
    if not keys and not arrays:
        raise LookupError(f"the run has no site {name!r}")
    read = source.read(keys, start, stop) if keys else None
    return {
        "site": name,
        "metrics": [[vital, m] for vital, _, m in keys],
        **(_packed(read) if read is not None else {"steps": [], "mean": "", "low": "", "high": ""}),
        "arrays": [drawn(a) for a in arrays[:ARRAYS]],
        "bands": _bands(source, name),
    }


def _bands(source: Source, name: str) -> list[dict[str, Any]]:
    """The channels of a site over time: five order statistics of at most ``SPARK`` of the arrays that were kept."""
    if not isinstance(source, RunNumbers):
        return []
    by_metric: dict[tuple[str, str], list[Any]] = {}
    for a in Run(source.path).arrays(site=name):
        if a.value.ndim == 1 and a.value.size > 1 and a.value.dtype.kind == "f":
            by_metric.setdefault((a.vital, a.metric), []).append(a)
    out = []
    for (vital, metric_name), arrays in by_metric.items():
        few = [arrays[i] for i in np.unique(np.linspace(0, len(arrays) - 1, min(SPARK, len(arrays))).astype(int))]
        if len(few) > 1:
            rows = _quantiles(np.array([np.sort(a.value.astype(float)) for a in few]).T, (0.05, 0.25, 0.5, 0.75, 0.95))
            stated = {"steps": [a.step for a in few], "rows": [[_plain(v) for v in row] for row in rows]}
            out.append({"vital": vital, "metric": metric_name, **stated})
    return out


def _plain(x: float) -> float | None:
    return float(f"{x:.5g}") if np.isfinite(x) else None


def to_json(value: Any) -> str:
    """The ``value`` as JSON that any reader takes: what is not finite is null."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(plain(value), allow_nan=False)


def calm(findings: Findings) -> str:
    """What to say where ``findings`` are empty: silence for want of measurements is not health."""
    asked = [c for c in findings.checked if c.series]
    if not asked:
        return "No check had enough measurements."
    apply = [c for c in findings.checked if c.applicable]
    if len(asked) < len(apply):
        return f"Only {len(asked)} of {len(apply)} checks had enough measurements; all of these passed."
    return f"All checks passed: {len(asked)} of {len(asked)}."


def block_of(name: str) -> str:
    """The block of the network that a site of this ``name`` belongs to: its name up to the first number in it.

    >>> block_of("transformer.h.3.mlp.act"), block_of("layers.0.1"), block_of("head"), block_of("model")
    ('transformer.h.3', 'layers.0', '', '')
    """
    owner = name.partition("→")[0].strip()
    found = re.match(r"(?:[^.\d][^.]*\.)*[^.\d][^.]*\.\d+(?=\.)|\d+(?=\.)", owner)
    return found.group(0) if found else ""


# ---------------------------------------------------------------- parts


def _packed(read: PyramidColumns) -> dict[str, Any]:
    whole = np.array_equal(read.low, read.high, equal_nan=True)
    return {
        "steps": read.steps.tolist(),
        "mean": packed(read.mean),
        "low": None if whole else packed(read.low),
        "high": None if whole else packed(read.high),
    }


def _first_step(measurements: Measurements) -> int:
    return min((int(c.steps[0]) for c in measurements.series.values() if len(c.steps)), default=0)


def _last_step(measurements: Measurements) -> int:
    return max((int(c.steps[-1]) for c in measurements.series.values() if len(c.steps)), default=0)


def _vitals(measurements: Measurements) -> list[dict[str, Any]]:
    """The vital signs of the run with their metrics, those of single sites first."""
    loss = measurements.loss
    metrics: dict[str, dict[str, bool]] = {}
    for (vital, where, name), curve in measurements.series.items():
        if curve is not loss:
            known = metrics.setdefault(vital, {})
            known[name] = known.get(name, True) and is_pooled(where)
    arrays: dict[str, list[Any]] = {}
    for a in measurements.arrays.values():
        arrays.setdefault(a.vital, []).append(a)
    out = []
    for vital in sorted({*metrics, *arrays}, key=rank):
        entry = sign(vital)
        names = sorted(metrics.get(vital, {}), key=lambda m: metrics[vital][m])
        first = next((h for h in entry.headline if h in names), names[0] if names else "")
        out.append(
            {
                "vital": vital,
                "title": entry.title,
                "meaning": entry.meaning,
                "first": first,
                "metrics": [
                    {"name": m, "meaning": entry.explain(m), "unit": entry.unit(m), "pooled": metrics[vital][m]}
                    for m in names
                ],
                "arrays": sorted({a.metric for a in arrays.get(vital, ())}),
                "matrices": [drawn(a) for a in arrays.get(vital, ()) if a.value.ndim > 1][:ARRAYS],
            }
        )
    return out


def _finding(finding: Finding, vitals: Sequence[dict[str, Any]]) -> dict[str, Any]:
    ground = finding.evidence[0] if finding.evidence else None
    vital = finding.vital or (ground.vital if ground else "")
    entry = next((v for v in vitals if v["vital"] == vital), None)
    names = [m["name"] for m in entry["metrics"]] if entry else []
    record = finding.to_dict()
    record["evidence"] = [str(e) for e in finding.evidence]
    record["threshold"] = threshold_of(finding.rule)
    return record | {
        "vital": vital,
        "title": entry["title"] if entry else ("Loss" if vital == "loss" else ""),
        "metric": ground.metric if ground and ground.metric in names else (entry["first"] if entry else ""),
        "steps": sorted({e.step for e in finding.evidence}),
    }


def _checked(checked: Any, findings: Findings) -> dict[str, str]:
    spoke = {f.rule for f in findings.all}
    state = "absent" if not checked.series else "hit" if checked.rule in spoke else "good"
    return {
        "state": state,
        "text": checked.question + ("" if checked.series else f" (no measurement of {checked.needs})"),
    }


def _tile(source: Source, vital: dict[str, Any], findings: Findings) -> dict[str, Any] | None:
    """A vital sign at a glance: median over sites of its first metric, over time and now, with the spread of sites."""
    keys = [k for k in source.table.series if k[0] == vital["vital"] and k[2] == vital["first"]]
    layers = [k for k in keys if not is_pooled(k[1])] or keys
    if not layers:
        return None
    read = source.read(layers)
    values = np.where(np.isfinite(read.mean), read.mean, np.nan)
    known = ~np.isnan(values).all(axis=0) if values.size else np.zeros(0, bool)
    broken = bool(values.size and np.isinf(read.mean[:, -1]).all())
    stated = findings.status.get(vital["vital"])
    state = {"state": "not asked" if stated is None else stated.state, "why": "" if stated is None else stated.why}
    if not known.any():
        return {
            "value": "not finite" if broken else "–",
            "label": vital["first"],
            "state": state,
            "step": -1,
            "spark": None,
        }
    columns = np.flatnonzero(known)
    columns = columns[np.unique(np.linspace(0, len(columns) - 1, min(SPARK, len(columns))).astype(int))]
    middle, low, high = _quantiles(values[:, columns], (0.5, 0.1, 0.9))
    label = f"{vital['first']}{', median' if len(layers) > 1 else ''}"
    return {
        "value": words.number(float(middle[-1])),
        "label": label,
        "state": state,
        "step": int(read.steps[known][-1]),
        "spark": None if len(middle) < 2 else [np.round(v, 6).tolist() for v in (middle, low, high)],
    }


def _quantiles(values: np.ndarray, shares: Sequence[float]) -> list[np.ndarray]:
    """Order statistics of each column without its NaNs; ``nanquantile`` goes column by column in Python.

    >>> [q.tolist() for q in _quantiles(np.array([[1.0, np.nan], [3.0, 5.0], [2.0, np.nan]]), (0.5, 1.0))]
    [[2.0, 5.0], [3.0, 5.0]]
    """
    ordered = np.sort(values, axis=0)
    last = (~np.isnan(ordered)).sum(0) - 1
    return [np.take_along_axis(ordered, np.round(q * last).astype(int)[None], 0)[0] for q in shares]


def _pictures(vital: dict[str, Any], measurements: Measurements, original: Any) -> list[dict[str, str]]:
    if vital["vital"] != "gates":
        return []
    return [
        {"title": p.title, "caption": p.caption, "svg": p.plot.html()} for p in gate_pictures(measurements, original)
    ]


def _sites(measurements: Measurements) -> list[dict[str, Any]]:
    known = {str(s.get("name")): s for s in measurements.meta.get("sites") or ()}
    names = dict.fromkeys([*(k[1] for k in measurements.series if not is_pooled(k[1])), *known])
    return [
        {
            "name": name,
            "block": block_of(name),
            **{k: str(known.get(name, {}).get(k, "")) for k in ("kind", "op", "role", "follows")},
        }
        for name in names
    ]


def _chips(measurements: Measurements, status: str, kind: str) -> list[tuple[str, str]]:
    meta = measurements.meta
    out = [("", status)] if kind == "run" else []
    if kind == "run":
        out.append(("steps", f"{_last_step(measurements) - _first_step(measurements) + 1:,}"))  # the first one counts
    for key, label in CHIPS.items():
        value = meta.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            out.append((label, f"{value:,}" if key == "parameters" else str(value)))
        elif isinstance(value, str) and len(value) < 40:
            out.append((label, value))
    for o in meta.get("optimizer") or ():
        if isinstance(o, dict):
            out.append(("optimizer", str(o.get("name"))))
    rates = [c for (vital, _, name), c in measurements.series.items() if vital == "optimizer" and name == "lr"]
    if rates:
        out.append(("learning rate", words.number(rates[0].last)))
    if isinstance(meta.get("started"), str):
        out.append(("began", meta["started"].replace("T", " ").removesuffix("+00:00") + " UTC"))
    return out
