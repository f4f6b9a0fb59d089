"""Claims on norms of trained and pretrained transformers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claims, Measured, Plot, Row, Series, Verdict
from netvitals_lab.engine.judges import compared, groups, paired, some
from netvitals_lab.papers.dead_directions.pretrained import NAME


def _medians(rows: Sequence[Row], when: str) -> dict[int, float]:
    of = groups([r for r in some(rows, when=when) if r["ratio"] is not None], "seed")
    return {seed: float(np.median([r["ratio"] for r in part])) for seed, part in of.items()}


def _falls(rows: Sequence[Row]) -> Verdict:
    after, before = (_medians(rows, when) for when in ("trained", "drawn"))
    change = paired({s: float(np.log(v)) for s, v in after.items()}, {s: float(np.log(v)) for s, v in before.items()})
    facts = {"drawn, median": float(np.median([*before.values()])), "trained": float(np.median([*after.values()]))}
    note = "log of the median Schur ratio at the kernel, trained minus drawn"
    return compared(change, -1, scaled=True, note=note, facts=facts)


def _by_site(rows: Sequence[Row]) -> Plot:
    sites = list(dict.fromkeys(r["site"] for r in rows))
    series = []
    for when in ("drawn", "trained"):
        mine = [r for r in some(rows, when=when) if r["ratio"]]
        series.append(Series(when, [sites.index(r["site"]) for r in mine], [r["ratio"] for r in mine]))
    return Plot("norm, in the order of the forward pass", "Schur ratio at the kernel", series, log_y=True)


claim = Claims("dead-directions", study=NAME)


@claim("X31-norms", "all pass, all fail", uses={"kind": "trained here"})
def kernels(rows: Sequence[Row]) -> Measured:
    """in trained transformers every LayerNorm has the kernel of its inverse gains, and no RMSNorm has"""
    layer, rms = ([r for r in rows if r["class"] == c] for c in ("LayerNorm", "RMSNorm"))
    passed, failed = sum(r["passes"] for r in layer), sum(not r["passes"] for r in rms)
    largest = max(r["variance"] for r in layer)
    facts = {
        "LayerNorms that pass": f"{passed} of {len(layer)}",
        "RMSNorms that fail": f"{failed} of {len(rms)}",
        "smallest variance along the direction behind an RMSNorm": min(r["variance"] for r in rms),
    }
    note = "largest variance behind a trained LayerNorm along the inverse of its gains, over that of a channel"
    return Measured(largest, note, facts=facts, ok=passed == len(layer) > 0 and failed == len(rms) > 0)


@claim("X31-pretrained", "all pass", uses={"kind": "pretrained"})
def pretrained(rows: Sequence[Row]) -> Measured:
    """in a pretrained encoder every LayerNorm has the kernel of its inverse gains"""
    mine = some(rows, when="trained")
    passed = sum(r["passes"] for r in mine)
    facts = {"models": sorted({r["name"] for r in mine}), "norms": len({r["site"] for r in mine})}
    note = f"largest variance along the kernel over that of a channel; {passed} of {len(mine)} measurements pass"
    return Measured(max(r["variance"] for r in mine), note, facts=facts, ok=passed == len(mine))


@claim(
    "X31-share",
    "falls",
    uses={"kind": "trained here", "norm": "layer"},
    seeds=5,
    plot=_by_site,
    choices=("a small vision transformer on digits, AdamW",),
)
def share(rows: Sequence[Row]) -> Verdict:
    """the Schur ratio at the kernel's direction of what enters a LayerNorm falls with training"""
    return _falls(rows)


@claim(
    "X31-share-pretrained",
    "lower",
    uses={"kind": "pretrained"},
    seeds=5,
    plot=_by_site,
    choices=("one pretrained model: the seeds are of the encoder drawn anew",),
)
def share_pretrained(rows: Sequence[Row]) -> Verdict:
    """the Schur ratio at the kernel's direction is lower in a pretrained encoder than in one drawn anew"""
    return _falls(rows)
