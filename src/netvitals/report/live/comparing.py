"""Runs side by side: what differs in their settings, layer by layer, and which vital sign told them apart first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from netvitals.findings import Measurements, is_pooled
from netvitals.report.arrays import packed
from netvitals.report.glossary import sign

APART = 6.0  # a difference of so many usual steps from reading to reading ...
NEAR = 5  # measurements around a step that make the band of a good run
OUTSIDE = 0.5  # of the second half of a run, outside the band: the metric has left it
STAYS = 3  # ... on so many measurements in a row: two runs have separated
IGNORED = frozenset(
    ("started", "ended", "heartbeat", "steps", "status", "sites", "activations", "skipped", "segments", "resumed")
    + ("verdict", "forecasts", "checks")
)


def settings(metas: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What differs between the metadata of runs.

    >>> settings({"a": {"lr": 0.1, "model": "MLP"}, "b": {"lr": 0.3, "model": "MLP"}})
    [{'name': 'lr', 'values': {'a': '0.1', 'b': '0.3'}}]
    """
    flat = {run: _flat(meta) for run, meta in metas.items()}
    names = dict.fromkeys(name for values in flat.values() for name in values)
    out = []
    for name in names:
        values = {run: flat[run].get(name, "–") for run in flat}
        if len(set(values.values())) > 1:
            out.append({"name": name, "values": values})
    return out


def separated(one: Measurements, other: Measurements) -> list[dict[str, Any]]:
    """Which series told two runs apart, the earliest first.

    Two measurements differ when they lie further apart than ``APART`` times the usual change from one measurement to
    the next
    in either run; a series has separated at the first of ``STAYS`` such steps in a row. The runs may have been measured
    on different steps: only common ones count.
    """
    first: dict[tuple[str, str], dict[str, Any]] = {}
    for key, a in one.series.items():
        b = other.series.get(key)
        if b is None:
            continue
        common, at_a, at_b = np.intersect1d(a.steps, b.steps, return_indices=True)
        if len(common) < STAYS:
            continue
        x, y = a.values[at_a], b.values[at_b]
        noise = max(_noise(x), _noise(y), 1e-9 * float(np.nanmax(np.abs(np.r_[x, y, 0.0]))))
        far = ~(np.abs(x - y) <= APART * noise) if noise > 0 else x != y
        run = np.convolve(far.astype(int), np.ones(STAYS, int), "valid") == STAYS
        if not run.any():
            continue
        i = int(np.argmax(run))
        found = {
            "vital": key[0],
            "title": sign(key[0]).title if key[0] != "loss" else "Loss",
            "metric": key[2],
            "site": key[1],
            "step": int(common[i]),
            "values": [_number(x[i]), _number(y[i])],
            "sites": 1,
        }
        known = first.get((key[0], key[2]))
        if known is not None:
            found["sites"] = known["sites"] + 1
            if known["step"] <= found["step"]:
                known["sites"] += 1
                continue
        first[(key[0], key[2])] = found
    return sorted(first.values(), key=lambda f: (f["step"], f["vital"] == "loss", -f["sites"]))


def left_band(run: Measurements, good: Sequence[Measurements]) -> list[dict[str, Any]]:
    """Which metrics of ``run`` left the band of good runs, the earliest first.

    A metric is the median over its sites. Its band at a step goes from the lowest to the highest value of the good runs
    over the ``NEAR`` measurements around it, and ``APART`` times their usual change further on both sides. It is left
    where more than ``OUTSIDE`` of the second half of the common measurements lie beyond.
    """
    out = []
    pooled = [_by_metric(t) for t in (run, *good)]
    for key in sorted(set.intersection(*map(set, pooled))):
        steps = set.intersection(*(set(p[key]) for p in pooled))
        common = np.array(sorted(steps))
        if len(common) < 2 * STAYS:
            continue
        x, *refs = (np.array([p[key][step] for step in common.tolist()]) for p in pooled)
        near = np.pad(np.array(refs), ((0, 0), (NEAR // 2, NEAR // 2)), mode="edge")
        windows = np.lib.stride_tricks.sliding_window_view(near, NEAR, axis=1)
        margin = max(APART * max(_noise(r) for r in refs), 1e-6 * float(np.nanmax(np.abs(near))))
        low, high = windows.min((0, 2)) - margin, windows.max((0, 2)) + margin
        beyond = ~((x >= low) & (x <= high))  # what is not a number is beyond
        if beyond[len(x) // 2 :].mean() > OUTSIDE:
            i = int(np.argmax(beyond))
            band = [_number(low[i]), _number(high[i])]
            out.append(
                {"vital": key[0], "metric": key[1], "step": int(common[i]), "value": _number(x[i]), "band": band}
            )
    return sorted(out, key=lambda row: row["step"])


def _by_metric(table: Measurements) -> dict[tuple[str, str], dict[int, float]]:
    """The median over sites of each metric, by step."""
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for (vital, _, metric), s in table.series.items():
        by_step = found.setdefault((vital, metric), {})
        for step, value in zip(s.steps.tolist(), s.values.tolist()):
            by_step.setdefault(step, []).append(value)
    return {key: {step: float(np.median(v)) for step, v in by.items()} for key, by in found.items()}


def difference(one: Any, other: Any, vital: str, metric: str) -> dict[str, Any]:
    """A metric of the first run minus that of the second, at the sites and on the steps that both have."""
    keys = [k for k in one.table.series if (k[0], k[2]) == (vital, metric) and k in other.table.series]
    if not keys:
        raise LookupError(f"no site has {vital}/{metric} in both runs")
    a, b = one.read(keys), other.read(keys)
    end = min(a.steps[-1], b.steps[-1])
    steps = a.steps[a.steps <= end]
    at = np.clip(np.searchsorted(b.steps, steps, side="right") - 1, 0, None)
    with np.errstate(invalid="ignore"):
        gap = a.mean[:, : len(steps)] - b.mean[:, at]
    return {
        "vital": vital,
        "metric": metric,
        "sites": [k[1] for k in keys],
        "steps": steps.tolist(),
        "mean": packed(gap),
        "low": None,
        "high": None,
    }


def common_metrics(tables: Sequence[Measurements]) -> list[dict[str, Any]]:
    """The metrics that every run has, with their vital sign, whether of the whole model, and at how many sites."""
    shared = set.intersection(*(set(t.series) for t in tables)) if tables else set()
    count: dict[tuple[str, str], list[str]] = {}
    for key in tables[0].series if tables else ():
        if key in shared:
            count.setdefault((key[0], key[2]), []).append(key[1])
    return [
        {
            "vital": vital,
            "title": "Loss" if vital == "loss" else sign(vital).title,
            "metric": metric,
            "pooled": all(is_pooled(s) for s in sites) or vital == "loss",
            "sites": sites[:500],
        }
        for (vital, metric), sites in count.items()
    ]


def _noise(values: np.ndarray) -> float:
    """Usual size of a change from reading to reading."""
    change = np.abs(np.diff(values[np.isfinite(values)]))
    return float(np.median(change)) if len(change) else 0.0


def _flat(value: Any, name: str = "") -> dict[str, str]:
    if isinstance(value, Mapping):
        inner = [_flat(v, f"{name}.{k}" if name else str(k)) for k, v in value.items() if name or k not in IGNORED]
    elif isinstance(value, list | tuple):
        inner = [_flat(v, f"{name}[{i}]") for i, v in enumerate(value[:50])]
    else:
        return {name: str(value)}
    return {k: v for part in inner for k, v in part.items()}


def _number(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None
