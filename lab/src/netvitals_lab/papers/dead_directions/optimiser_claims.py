"""Claims about optimisers: C33, C34, C42, C43, N2, and erratum E10."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netvitals_lab import Claims, Config, Expected, Measured, Row, above
from netvitals_lab.engine.judges import column, some
from netvitals_lab.papers.dead_directions._judging import SLOPE

STUDY = "dead-directions-optimisers"
LATTICE = 12.0  # decades: a fixed step that lands on zero itself is no descent along the rate


def _ours(rows: Sequence[Row], dtype: str, limit: float) -> Measured:
    found = [r for r in some(rows, dtype=dtype) if r["vertical"] != "adam itself"]
    facts = {"pairs of spec and vertical mode": len(found), "steps": found[0]["steps"]}
    return Measured(
        max(column(found, "residual")),
        f"largest residual, {dtype}",
        facts=facts,
        ok=max(column(found, "residual")) <= limit,
    )


def _off(rows: Sequence[Row]) -> float:
    """Largest error of the slope 2(L−1)."""
    return max(abs(r["slope"] - 2 * (r["depth"] - 1)) for r in rows)


def _trajectory(*names: str) -> Callable[[Config], bool]:
    return lambda c: c["check"] == "trajectory" and (not names or str(c["optimizer"]).startswith(names))


claim = Claims("dead-directions", study=STUDY)


@claim("C33", Expected(0.0, 1e-14), uses={"check": "equivariance"})
def double_precision(rows: Sequence[Row]) -> Measured:
    """DDCAdam is equivariant, five specs and three vertical modes"""
    return _ours(rows, "float64", 1e-14)


@claim("C33-single", Expected(0.0, 5e-6), uses={"check": "equivariance"})
def single_precision(rows: Sequence[Row]) -> Measured:
    """the same in single precision"""
    return _ours(rows, "float32", 5e-6)


@claim("N2", above(0.05, "residual above 0.05"), uses={"check": "equivariance"})
def adam(rows: Sequence[Row]) -> Measured:
    """Adam is not equivariant under rescaling"""
    found = {r["spec"]: r["residual"] for r in some(rows, vertical="adam itself")}
    least = min(v for k, v in found.items() if "scale" in k)
    return Measured(least, "residual of Adam, smallest over rescalings", facts=found)


@claim("C34", Expected(0.0, 1e-6), uses={"check": "drift"})
def drift(rows: Sequence[Row]) -> Measured:
    """DDCAdam removes the drift of the logit shift, Adam makes it"""
    ours, adam, sgd = (column(rows, "drift", optimizer=o) for o in ("ddcadam", "adam", "sgd"))
    return Measured(
        max(ours),
        "|mean logit bias| at the end, most over seeds",
        facts={"steps": rows[0]["steps"], "Adam": [min(adam), max(adam)], "SGD at most": max(sgd)},
        ok=max(ours) <= 1e-6 and min(adam) >= 0.1,
    )


@claim("C42", Expected(0.0, SLOPE), uses=_trajectory())
def rates(rows: Sequence[Row]) -> Measured:
    """in the canonical regime the slope does not depend on the optimiser"""
    fitted = [r for r in rows if r["slope"] is not None and r["span"] < LATTICE]
    worst = _off(fitted)
    return Measured(
        worst,
        note="largest error of 2(L−1); the canonical start keeps every layer equal, so this is the lock of the "
        "geometry and no merit of the optimiser",
        facts={
            "descents": len(fitted),
            "no descent to fit": [f"{r['optimizer']} (L={r['depth']})" for r in rows if r not in fitted],
        },
        ok=worst <= SLOPE and len(fitted) >= 10,
    )


@claim("C42-ddc", Expected(0.0, SLOPE), uses=_trajectory("ddcadam"))
def ddc_rates(rows: Sequence[Row]) -> Measured:
    """DDCAdam's trajectories read 2(L−1) in every vertical mode"""
    ours = [r for r in rows if r["optimizer"].startswith("ddcadam") and r["slope"] is not None]
    worst = _off(ours)
    return Measured(worst, f"over {len(ours)} trajectories, three vertical modes", ok=worst <= SLOPE and len(ours) == 6)


@claim("C43", Expected(0.0, SLOPE), uses=_trajectory("sgd"))
def flow(rows: Sequence[Row]) -> Measured:
    """λ_min falls as 1/step under gradient flow, whatever the depth"""
    found = some(rows, optimizer="sgd")
    facts = {f"L = {r['depth']}": r["step_slope"] for r in found}
    return Measured(max(abs(v + 1) for v in facts.values()), "λ_min against the step", facts=facts)


@claim("X9", Expected(1.0, 1e-9), uses=_trajectory("sgd"))
def structural(rows: Sequence[Row]) -> Measured:
    """t and the smallest eigenvalue fall together"""
    values = column(rows, "spearman", optimizer="sgd")
    worst = max(abs(v - 1) for v in values)
    return Measured(min(values), "Spearman correlation of t and λ_min along the flow", ok=worst < 1e-9)


@claim("E10", "no drift", uses={"check": "drift"})
def printed_version(rows: Sequence[Row]) -> Measured:
    """printed: Algorithm 2 without re-projection removes the logit shift's drift"""
    adam = {r["seed"]: r["drift"] for r in reversed(some(rows, optimizer="adam"))}
    printed = {r["seed"]: r["drift"] for r in some(rows, optimizer="ddcadam printed")}
    gap = max(abs(drift / adam[seed] - 1) for seed, drift in printed.items())
    return Measured(
        max(printed.values()) if gap <= 0.01 else gap,
        note="without re-projection the shift optimiser is Adam, with the same drift; Adam commutes with shifts, the "
        "defect is the step's part along the orbit",
        facts={"largest relative difference to Adam": gap},
        ok=False,
        right=gap <= 0.01,
        otherwise="the printed version does not drift as Adam does",
    )
