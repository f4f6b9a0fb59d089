"""Claims on Table 13: what keeps the canonical path, and the rate that is read along it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals.singular import rate_fit
from netvitals_lab import Claims, Expected, Measured, Plot, Row, Series, Verdict, not_run
from netvitals_lab.engine.judges import column, groups, matches, some
from netvitals_lab.papers.dead_directions._judging import SLOPE
from netvitals_lab.papers.dead_directions.variations import NAME

KEPT = ("sgd", "momentum", "muon", "shampoo")
LOST = ("adam", "adamw")


def _slopes(rows: Sequence[Row], against: str = "predicted") -> tuple[float, dict[str, str], int]:
    """Largest gap of a slope, the means in words, and runs without one."""
    gap, words, silent = 0.0, {}, 0
    for (axis, level), part in groups(rows, "axis", "level").items():
        read = [r for r in part if r["slope"] is not None]
        silent += len(part) - len(read)
        if read:
            gap = max(gap, *(abs(r["slope"] - r[against]) for r in read))
            mean, wanted = (float(np.mean([r[k] for r in read])) for k in ("slope", against))
            spread = float(np.std([r["slope"] for r in read]))
            words[f"{axis} {level}"] = f"{mean:.4f} ± {spread:.4f} ({wanted:.4f}), {len(read)} of {len(part)}"
    return gap, words, silent


def _picture(rows: Sequence[Row]) -> Plot:
    read = [r for r in rows if r["slope"] is not None]
    axes = dict.fromkeys(r["axis"] for r in read)
    series = [
        Series(a, [r["predicted"] for r in some(read, axis=a)], [r["slope"] for r in some(read, axis=a)]) for a in axes
    ]
    return Plot("predicted exponent of G of the first layer", "slope along the trajectory", series)


WHERE = "Table 13, App. B.4"
_bridge = lambda axis, level=None: matches(check="bridge", axis=axis, **({} if level is None else {"level": level}))
_whole_linear = lambda c: (
    _bridge(("canonical", "depth", "start"))(c) or _bridge("optimizer", ("momentum", "muon", "shampoo"))(c)
)
_bends = lambda c: (
    _bridge(("norm", "loss"))(c) or _bridge("activation", "relu")(c) or _bridge("residual", "per-block")(c)
)


claim = Claims("dead-directions", study=NAME)


@claim(
    "X24-linear",
    "within 0.05",
    uses=_whole_linear,
    plot=_picture,
    choices=("width 8, depth 3, start 0.3 and the rates are ours: the paper's are lost",),
)
def linear(rows: Sequence[Row]) -> Measured:
    """linear chains from the canonical start keep 2(L − 1) to depth 32, at three scales of the start, under SGD with
    and without momentum, Muon and Shampoo"""
    gap, words, silent = _slopes(rows)
    note = "largest gap of a slope to 2(L − 1), every seed; (predicted) behind each mean"
    return Measured(gap, note, facts=words, ok=gap < SLOPE and silent == 0)


@claim("X24-sampled", "within 0.05", uses=_bridge("sampled inputs", KEPT))
def sampled(rows: Sequence[Row]) -> Measured:
    """they keep it on sampled inputs too, whose live and dead channels are correlated"""
    gap, words, silent = _slopes(rows)
    note = "largest gap of a slope on inputs that are not white, every seed"
    return Measured(gap, note, facts=words, ok=gap < SLOPE and silent == 0)


@claim("X24-adam", "every seed", uses=_bridge("sampled inputs"))
def adam(rows: Sequence[Row]) -> Measured:
    """Adam is not equivariant: on sampled inputs it leaves the canonical path, and SGD does not"""
    left = {name: [r["left"] for r in some(rows, level=name)] for name in (*LOST, "sgd", "momentum")}
    facts: dict[str, object] = {f"{n}: left the canonical path": f"{sum(v)} of {len(v)}" for n, v in left.items()}
    facts["decades of t before, adam"] = float(np.mean([r["span"] for r in some(rows, level="adam")]))
    share = min(sum(v) / len(v) for n, v in left.items() if n in LOST)
    ok = share == 1 and not any(any(v) for n, v in left.items() if n not in LOST)
    return Measured(share, "smallest share of seeds in which Adam or AdamW leaves the path", facts=facts, ok=ok)


@claim("X24-smooth", "within 0.05", uses=_bridge("activation", ("tanh", "gelu")))
def smooth(rows: Sequence[Row]) -> Measured:
    """a smooth activation keeps 2(L − 1) as long as the trajectory is canonical and t small"""
    gap, words, silent = _slopes(some(rows, level="tanh"))
    words |= _slopes(some(rows, level="gelu"))[1]
    words["t at the end, gelu"] = f"{np.mean([r['t'] for r in some(rows, level='gelu')]):.2f}"
    note = (
        "largest gap of tanh's slope to 2(L − 1); GELU's derivative of ½ slows t down, and its slope is not asymptotic"
    )
    return Measured(gap, note, facts=words, ok=gap < SLOPE and silent == 0)


@claim(
    "X24-k-fac",
    "between 0.05 and 0.5",
    uses=lambda c: _bridge("optimizer", "k-fac")(c) or _bridge("sampled inputs", "k-fac")(c),
)
def partly(rows: Sequence[Row]) -> Measured:
    """K-FAC is equivariant in part: its layers part from one another, and the slope is near 2(L − 1) until then"""
    left = [r["left"] for r in rows]
    gap, words, silent = _slopes(rows)
    facts = {**words, "seeds that leave the canonical path": f"{sum(left)} of {len(left)}", "without a slope": silent}
    note = "largest gap of K-FAC's slope to 2(L − 1), read before its layers differ by 5 %"
    return Measured(gap, note, facts=facts, ok=all(left) and SLOPE < gap < 0.5)


@claim("X24-leaves", "below a tenth of a decade", uses=_bends)
def leave(rows: Sequence[Row]) -> Measured:
    """with ReLU, norms, cross-entropy or a skip over a block a learned trajectory leaves the canonical path at once, so
    that no rate can be read along it"""
    spans = {f"{a} {b}": [r["span"] for r in part] for (a, b), part in groups(rows, "axis", "level").items()}
    share = min(sum(r["left"] for r in part) / len(part) for part in groups(rows, "axis", "level").values())
    most = max(max(v) for v in spans.values())
    facts: dict[str, object] = {f"{k}: decades of t before": float(np.mean(v)) for k, v in spans.items()}
    facts["smallest share of seeds that leave"] = share
    return Measured(most, "most decades of t on the canonical path", facts=facts, ok=share == 1 and most < 0.1)


@claim("X24-skips", Expected(value=0.0), uses=_bridge("residual", "per-layer"))
def skips(rows: Sequence[Row]) -> Measured:
    """with a skip over each layer the rate is 0"""
    gap, words, silent = _slopes(rows)
    return Measured(
        gap, "largest gap to rate 0 with a skip over each layer", facts=words, ok=gap < SLOPE and silent == 0
    )


@claim("X24-mixers-sgd", "ratio of order one", uses={"check": "regime", "name": ("gelu", "swiglu")})
def mixers(rows: Sequence[Row]) -> Measured | Verdict:
    """mixers with skips and norms, under SGD and squared error, have rate 0 over depth"""
    if min(r["accuracy"] for r in rows) < 0.5:
        return not_run("the mixers have hardly learned: run it at a larger scale")
    least = {n: min(r["ratio"] for r in some(rows, name=n)) for n in ("gelu", "swiglu")}
    slopes = {
        n: rate_fit([r["depth"] + 1 for r in some(rows, name=n)], [r["sigma"] for r in some(rows, name=n)]).slope
        for n in least
    }
    return Measured(
        min(least.values()),
        note="smallest σ_r over depth against that of the input: "
        + ", ".join(f"{n} {v:.2f} (exponent in depth {slopes[n]:.2f})" for n, v in least.items()),
        facts={"seeds": len({r["seed"] for r in rows})},
        ok=min(least.values()) > 0.1 and max(map(abs, slopes.values())) < 1,
    )


@claim("X24-addition-seeds", "no asymptote", uses={"check": "regime", "name": "modular addition"})
def addition(rows: Sequence[Row]) -> Measured:
    """an MLP under Adam and cross-entropy on modular addition has no rate, only drift

    Over the seeds: local exponents of λ_min(G) in the step that go up and down, so that there is no asymptote.
    """
    runs = [[by[s] for s in sorted(by)] for run in groups(rows, "seed").values() if (by := {r["step"]: r for r in run})]
    local = [np.diff(np.log(column(run, "smallest"))) / np.diff(np.log(column(run, "step"))) for run in runs]
    shape = [r["smallest"] / r["trace"] for r in runs[0]]
    least = min(float(np.ptp(v)) for v in local)
    return Measured(
        least,
        note="spread of the local exponents of λ_min(G) in the step, smallest over seeds: no asymptote; in one from "
        f"{local[0].max():.1f} to {local[0].min():.1f}; over the trace it only moves between {min(shape):.1g} and "
        f"{max(shape):.1g}, so it follows the loss",
        ok=least > 1 and all(v.max() > 0 > v.min() for v in local),
    )
