"""Claims about optimisers: C33, C34, C42, C43, N2, and erratum E10."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netvitals_lab import Claim, Config, Expected, Row, Verdict, decide
from netvitals_lab.engine.judges import at_most, column, corrected, some
from netvitals_lab.papers.dead_directions._judging import SLOPE, check_is, claim

STUDY = "dead-directions-optimisers"
LATTICE = 12.0  # decades: a fixed step that lands on zero itself is no descent along the rate


def _ours(dtype: str, limit: float) -> Callable[[Sequence[Row]], Verdict]:
    def judge(rows: Sequence[Row]) -> Verdict:
        found = [r for r in some(rows, dtype=dtype) if r["vertical"] != "adam itself"]
        facts = {"pairs of spec and vertical mode": len(found), "steps": found[0]["steps"]}
        return at_most(max(column(found, "residual")), limit, f"largest residual, {dtype}", facts=facts)

    return judge


def _adam(rows: Sequence[Row]) -> Verdict:
    found = {r["spec"]: r["residual"] for r in some(rows, vertical="adam itself")}
    least = min(v for k, v in found.items() if "scale" in k)
    return decide(least > 0.05, least, note="residual of Adam, smallest over rescalings", facts=found)


def _drift(rows: Sequence[Row]) -> Verdict:
    ours, adam, sgd = (column(rows, "drift", optimizer=o) for o in ("ddcadam", "adam", "sgd"))
    return decide(
        max(ours) <= 1e-6 and min(adam) >= 0.1,
        max(ours),
        note="|mean logit bias| at the end, most over seeds",
        facts={"steps": rows[0]["steps"], "Adam": [min(adam), max(adam)], "SGD at most": max(sgd)},
    )


def _printed(rows: Sequence[Row]) -> Verdict:
    adam = {r["seed"]: r["drift"] for r in reversed(some(rows, optimizer="adam"))}
    printed = {r["seed"]: r["drift"] for r in some(rows, optimizer="ddcadam printed")}
    gap = max(abs(drift / adam[seed] - 1) for seed, drift in printed.items())
    return corrected(
        False,
        gap <= 0.01,
        max(printed.values()) if gap <= 0.01 else gap,
        "without re-projection the shift optimiser is Adam, with the same drift; Adam commutes with shifts, the defect "
        "is the step's part along the orbit",
        otherwise="the printed version does not drift as Adam does",
        facts={"largest relative difference to Adam": gap},
    )


def _off(rows: Sequence[Row]) -> float:
    """Largest error of the slope 2(L−1)."""
    return max(abs(r["slope"] - 2 * (r["depth"] - 1)) for r in rows)


def _rates(rows: Sequence[Row]) -> Verdict:
    fitted = [r for r in rows if r["slope"] is not None and r["span"] < LATTICE]
    worst = _off(fitted)
    return decide(
        worst <= SLOPE and len(fitted) >= 10,
        worst,
        note="largest error of 2(L−1); the canonical start keeps every layer equal, so this is the lock of the "
        "geometry and no merit of the optimiser",
        facts={
            "descents": len(fitted),
            "no descent to fit": [f"{r['optimizer']} (L={r['depth']})" for r in rows if r not in fitted],
        },
    )


def _ddc_rates(rows: Sequence[Row]) -> Verdict:
    ours = [r for r in rows if r["optimizer"].startswith("ddcadam") and r["slope"] is not None]
    worst = _off(ours)
    return decide(worst <= SLOPE and len(ours) == 6, worst, note=f"over {len(ours)} trajectories, three vertical modes")


def _flow(rows: Sequence[Row]) -> Verdict:
    found = some(rows, optimizer="sgd")
    facts = {f"L = {r['depth']}": r["step_slope"] for r in found}
    return at_most(max(abs(v + 1) for v in facts.values()), SLOPE, "λ_min against the step", facts=facts)


def _structural(rows: Sequence[Row]) -> Verdict:
    values = column(rows, "spearman", optimizer="sgd")
    worst = max(abs(v - 1) for v in values)
    return decide(worst < 1e-9, min(values), note="Spearman correlation of t and λ_min along the flow")


def _trajectory(*names: str) -> Callable[[Config], bool]:
    return lambda c: c["check"] == "trajectory" and (not names or str(c["optimizer"]).startswith(names))


def _claim(
    number: str,
    statement: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    uses: Callable[[Config], bool],
) -> Claim:
    return claim(STUDY, number, statement, expected, judge, uses)


CLAIMS = (
    _claim(
        "C33",
        "DDCAdam is equivariant, five specs and three vertical modes",
        Expected(0.0, 1e-14),
        _ours("float64", 1e-14),
        check_is("equivariance"),
    ),
    _claim(
        "C33-single",
        "the same in single precision",
        Expected(0.0, 5e-6),
        _ours("float32", 5e-6),
        check_is("equivariance"),
    ),
    _claim(
        "N2",
        "Adam is not equivariant under rescaling",
        Expected(direction="residual above 0.05"),
        _adam,
        check_is("equivariance"),
    ),
    _claim(
        "C34",
        "DDCAdam removes the drift of the logit shift, Adam makes it",
        Expected(0.0, 1e-6),
        _drift,
        check_is("drift"),
    ),
    _claim(
        "C42",
        "in the canonical regime the slope does not depend on the optimiser",
        Expected(0.0, SLOPE),
        _rates,
        _trajectory(),
    ),
    _claim(
        "C42-ddc",
        "DDCAdam's trajectories read 2(L−1) in every vertical mode",
        Expected(0.0, SLOPE),
        _ddc_rates,
        _trajectory("ddcadam"),
    ),
    _claim(
        "C43",
        "λ_min falls as 1/step under gradient flow, whatever the depth",
        Expected(0.0, SLOPE),
        _flow,
        _trajectory("sgd"),
    ),
    _claim("X9", "t and the smallest eigenvalue fall together", Expected(1.0, 1e-9), _structural, _trajectory("sgd")),
    _claim(
        "E10",
        "printed: Algorithm 2 without re-projection removes the logit shift's drift",
        Expected(direction="no drift"),
        _printed,
        check_is("drift"),
    ),
)
