"""From trials to rates with intervals: sensitivity, specificity, place, cause, delay, cures; and the file findings
read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from netvitals_lab.clinic.disease import FAMILIES, GRADES

Row = Mapping[str, Any]


def rate(rows: Sequence[Row], key: str | Callable[[Row], bool]) -> dict[str, float]:
    r"""A share with Wilson's interval of 95 %.

    $\frac{p + z^2/2n \pm z\sqrt{p(1-p)/n + z^2/4n^2}}{1 + z^2/n}$

    >>> found = rate([{"a": True}] * 9 + [{"a": False}], "a")
    >>> found["k"], found["n"], round(found["low"], 2), round(found["high"], 2)
    (9, 10, 0.6, 0.98)
    """
    test = (lambda r: bool(r[key])) if isinstance(key, str) else key
    n, k = len(rows), sum(test(r) for r in rows)
    if not n:
        return {"n": 0, "k": 0, "share": math.nan, "low": math.nan, "high": math.nan}
    z, p = 1.96, k / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return {"n": n, "k": k, "share": p, "low": max(0.0, middle - half), "high": min(1.0, middle + half)}


def scores(trials: Iterable[Row], cures: Iterable[Row] = ()) -> dict[str, Any]:
    """Everything that is published of a set of trials."""
    rows, healed = list(trials), list(cures)
    sick = [r for r in rows if r["set"] == "disease"]
    well = [r for r in rows if r["set"] == "control"]
    core = [r for r in sick if r["grade"] == "moderate"]
    placed = [r for r in core if r["caught"]]
    delays = [r["delay"] for r in core if r["delay"] is not None]
    return {
        "overall": {
            "sensitivity": rate(core, "caught"),
            "specificity": rate(well, lambda r: not r["alarm"]),
            "specificity_live": rate(well, lambda r: not r["ever"]),
            "place": rate(placed, "place"),
            "cause": rate(core, "cause"),
            "delay": _quartiles(delays),
        },
        "families": {
            f: {g: rate([r for r in sick if (r["family"], r["grade"]) == (f, g)], "caught") for g in GRADES}
            for f in FAMILIES
        },
        "grades": {g: rate([r for r in sick if r["grade"] == g], "caught") for g in GRADES},
        "diseases": {name: _disease(name, sick, healed) for name in dict.fromkeys(r["name"] for r in sick)},
        "controls": {
            name: rate([r for r in well if r["name"] == name], lambda r: not r["alarm"])
            for name in dict.fromkeys(r["name"] for r in well)
        },
        "rules": _rules(core, well),
        "advice": _advice(healed),
        "cures": {
            "cure": rate([c for c in healed if c["curable"]], "mended"),
            "harm": rate(healed, "harmed"),
        },
    }


def _quartiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {"n": 0, "median": math.nan, "low": math.nan, "high": math.nan}
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return {"n": len(values), "median": float(middle), "low": float(low), "high": float(high)}


def _disease(name: str, sick: Sequence[Row], healed: Sequence[Row]) -> dict[str, Any]:
    mine = [r for r in sick if r["name"] == name]
    core = [r for r in mine if r["grade"] == "moderate"]
    own = [c for c in healed if c["name"] == name]
    firsts = [r["first"] for r in core if r["first"]]
    return {
        "family": mine[0]["family"],
        **{g: rate([r for r in mine if r["grade"] == g], "caught") for g in GRADES},
        "cause": rate(core, "cause"),
        "place": rate([r for r in core if r["caught"]], "place"),
        "delay": _quartiles([r["delay"] for r in core if r["delay"] is not None]),
        "first": max(dict.fromkeys(firsts), key=firsts.count, default=""),
        "cure": rate([c for c in own if c["curable"]], "mended"),
        "harm": rate(own, "harmed"),
    }


def _rules(core: Sequence[Row], well: Sequence[Row]) -> dict[str, dict[str, int]]:
    names = dict.fromkeys([r["first"] for r in core] + [x for r in (*core, *well) for x in r["rules"]])
    return {
        name: {
            "spoke": sum(r["first"] == name for r in core),
            "right": sum(r["first"] == name and r["cause"] for r in core),
            "healthy": len(well),
            "false": sum(name in r["rules"] for r in well),
        }
        for name in names
        if name
    }


def _advice(healed: Sequence[Row]) -> dict[str, dict[str, dict[str, int]]]:
    out: dict[str, dict[str, dict[str, int]]] = {}
    for c in healed:
        if c["curable"]:
            tried = out.setdefault(c["rule"], {}).setdefault(c["remedy"], {"tried": 0, "mended": 0, "harmed": 0})
            tried["tried"] += 1
            tried["mended"] += bool(c["mended"])
            tried["harmed"] += bool(c["harmed"])
    return out
