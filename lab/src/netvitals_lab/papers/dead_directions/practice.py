"""The study of rates in use: networks of one's own, checkpoints, streams behind norms, pruning, designs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netvitals_lab import Config, Row, Study
from netvitals_lab.papers.dead_directions import _choices, _practice

NAME = "dead-directions-practice"
STREAMS = ("post-norm", "post-norm, gains", "post-norm, cancelled", "pre-norm")
CHECKS: dict[str, Callable[..., Row | list[Row]]] = {
    "deviation": _practice.deviation,
    "refusal": _practice.refusal,
    "approach": _practice.approach,
    "stream": _practice.stream,
    "shift": _practice.shift,
    "pruning": _choices.pruning,
    "design": _choices.design,
}


@dataclass(frozen=True)
class Practice:
    """Sizes of the networks, steps of training, examples behind a slope, seeds."""

    width: int = 12
    examples: int = 64
    approach: int = 4000
    pruning: int = 400
    design: int = 400
    seeds: int = 5


def trials(p: Practice) -> list[Config]:
    seeds = range(p.seeds)
    out: list[Config] = [
        {"check": "deviation", "net": n, "loss": loss, "width": p.width, "examples": p.examples, "seed": s}
        for n in _practice.NETS
        for loss in ("mse", "ce")
        for s in seeds
    ]
    out += [{"check": "refusal", "primitive": n} for n in _practice.REFUSED]
    out += [
        {"check": "approach", "start": start, "depth": d, "steps": p.approach, "seed": s}
        for start in ("aligned", "random")
        for d in (2, 3)
        for s in seeds
    ]
    out += [
        {"check": "stream", "arrangement": a, "depth": 4, "width": p.width, "seed": s} for a in STREAMS for s in seeds
    ]
    out += [
        {"check": "shift", "setup": n, "window": w, "norm": norm, "fisher": f, "examples": 2 * p.examples, "seed": 0}
        for n in _practice.SETUPS
        for w in _practice.WINDOWS
        for norm in (True, False)
        for f in ("expected", "empirical")
    ]
    out += [
        {"check": "pruning", "activation": a, "width": 2 * p.width, "steps": p.pruning, "data": "digits", "seed": s}
        for a in ("relu", "tanh")
        for s in seeds
    ]
    out += [
        {"check": "design", "depth": 7, "width": 2 * p.width, "steps": p.design, "data": "digits", "seed": s}
        for s in seeds
    ]
    return out


def trial(config: Config) -> list[Row]:
    found = CHECKS[config["check"]](**{k: v for k, v in config.items() if k not in ("check", "data")})
    return found if isinstance(found, list) else [found]


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    gaps = [abs(r["difference"]) for r in rows if r["check"] == "deviation" and r["difference"] is not None]
    return {"exponents of modules": len(gaps), "largest gap": max(gaps), "trials": len(rows)}


STUDIES = (
    Study(
        NAME,
        "dead-directions",
        "rates in use: modules of one's own, checkpoints, streams, pruning, designs",
        trials=trials,
        trial=trial,
        settled="the paper names no sizes for these; exponents lie apart by far more than small leaves open",
        summary=summary,
        scales={
            "smoke": Practice(width=8, examples=24, approach=800, pruning=40, design=20, seeds=1),
            "small": Practice(),
            "paper": Practice(width=32, examples=400, approach=40_000, pruning=2000, design=4000, seeds=10),
        },
        unprinted="networks, window and estimator of these readings",
    ),
)
