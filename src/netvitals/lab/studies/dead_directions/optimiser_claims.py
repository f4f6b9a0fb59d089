"""Claims about optimisers: C33, C34, C42, C43, N2, and erratum E10."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netvitals.lab.engine.judges import some
from netvitals.lab.studies import Claim, Config, Expected, Row, Verdict, decide, erratum, fails
from netvitals.lab.studies.dead_directions._judging import SLOPE, check_is, claim

STUDY = "dead-directions-optimisers"
LATTICE = 12.0  # decades: a fixed step that lands on zero itself is no descent along the rate


def _ours(dtype: str, limit: float) -> Callable[[Sequence[Row]], Verdict]:
    def judge(rows: Sequence[Row]) -> Verdict:
        found = [r for r in rows if r["dtype"] == dtype and r["vertical"] != "adam itself"]
        worst = max(r["residual"] for r in found)
        return decide(
            worst <= limit,
            worst,
            note=f"largest residual over {len(found)} pairs of spec and vertical "
            f"mode, {dtype}, {found[0]['steps']} steps",
        )

    return judge


def _adam(rows: Sequence[Row]) -> Verdict:
    found = {r["spec"]: r["residual"] for r in some(rows, vertical="adam itself")}
    scales = {k: v for k, v in found.items() if "rescale" in k or "scale" in k}
    return decide(
        min(scales.values()) > 0.05,
        min(scales.values()),
        note="residual of Adam, smallest over rescalings: " + ", ".join(f"{k} {v:.2g}" for k, v in found.items()),
    )


def _drift(rows: Sequence[Row]) -> Verdict:
    ours, adam = (max(r["drift"] for r in some(rows, optimizer=o)) for o in ("ddcadam", "adam"))
    least = min(r["drift"] for r in some(rows, optimizer="adam"))
    sgd = max(r["drift"] for r in some(rows, optimizer="sgd"))
    return decide(
        ours <= 1e-6 and least >= 0.1,
        ours,
        note=f"|mean logit bias| after {rows[0]['steps']} steps, most "
        f"over seeds; Adam {least:.3f} to {adam:.3f}, SGD {sgd:.1e}",
    )


def _printed(rows: Sequence[Row]) -> Verdict:
    pairs = [
        (r["drift"], next(a["drift"] for a in some(rows, optimizer="adam") if a["seed"] == r["seed"]))
        for r in some(rows, optimizer="ddcadam printed")
    ]
    gap = max(abs(p / a - 1) for p, a in pairs)
    if gap > 0.01:
        return fails(gap, note="the printed version does not drift as Adam does")
    return erratum(
        max(p for p, _ in pairs),
        note="without re-projection the shift optimiser is Adam: the same drift "
        f"to {gap:.1e}; Adam commutes with shifts, the defect is the step's part along the orbit",
    )


def _rates(rows: Sequence[Row]) -> Verdict:
    fitted = [r for r in rows if r["slope"] is not None and r["span"] < LATTICE]
    left = [f"{r['optimizer']} (L={r['depth']})" for r in rows if r not in fitted]
    worst = max(abs(r["slope"] - 2 * (r["depth"] - 1)) for r in fitted)
    return decide(
        worst <= SLOPE and len(fitted) >= 10,
        worst,
        note=f"largest error of 2(L−1) over {len(fitted)} "
        "descents; the canonical start keeps every layer equal, so this is the lock of the geometry and no "
        f"merit of the optimiser; no descent to fit: {', '.join(left) or 'none'}",
    )


def _ddc_rates(rows: Sequence[Row]) -> Verdict:
    ours = [r for r in rows if r["optimizer"].startswith("ddcadam") and r["slope"] is not None]
    worst = max(abs(r["slope"] - 2 * (r["depth"] - 1)) for r in ours)
    return decide(worst <= SLOPE and len(ours) == 6, worst, note=f"over {len(ours)} trajectories, three vertical modes")


def _flow(rows: Sequence[Row]) -> Verdict:
    found = {r["depth"]: r["step_slope"] for r in some(rows, optimizer="sgd")}
    worst = max(abs(v + 1) for v in found.values())
    return decide(
        worst <= SLOPE, worst, note="λ_min against the step, " + ", ".join(f"L={d}: {v:.3f}" for d, v in found.items())
    )


def _structural(rows: Sequence[Row]) -> Verdict:
    values = [r["spearman"] for r in some(rows, optimizer="sgd")]
    return decide(
        max(abs(v - 1) for v in values) < 1e-9, min(values), note="Spearman correlation of t and λ_min along the flow"
    )


def _trajectory(*names: str) -> Callable[[Config], bool]:
    return lambda c: c["check"] == "trajectory" and (not names or str(c["optimizer"]).startswith(names))


def _claim(
    number: str,
    statement: str,
    section: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    uses: Callable[[Config], bool],
) -> Claim:
    return claim(STUDY, number, statement, expected, judge, section, uses)


CLAIMS = (
    _claim(
        "C33",
        "DDCAdam is equivariant, five specs and three vertical modes",
        "Proposition 83, X25",
        Expected(0.0, 1e-14),
        _ours("float64", 1e-14),
        check_is("equivariance"),
    ),
    _claim(
        "C33-single",
        "the same in single precision",
        "Remark 84",
        Expected(0.0, 5e-6),
        _ours("float32", 5e-6),
        check_is("equivariance"),
    ),
    _claim(
        "N2",
        "Adam is not equivariant under rescaling",
        "Remark 80",
        Expected(direction="residual above 0.05"),
        _adam,
        check_is("equivariance"),
    ),
    _claim(
        "C34",
        "DDCAdam removes the drift of the logit shift, Adam makes it",
        "X27",
        Expected(0.0, 1e-6),
        _drift,
        check_is("drift"),
    ),
    _claim(
        "C42",
        "in the canonical regime the slope does not depend on the optimiser",
        "X21, X23",
        Expected(0.0, SLOPE),
        _rates,
        _trajectory(),
    ),
    _claim(
        "C42-ddc",
        "DDCAdam's trajectories read 2(L−1) in every vertical mode",
        "Corollary 86, X26",
        Expected(0.0, SLOPE),
        _ddc_rates,
        _trajectory("ddcadam"),
    ),
    _claim(
        "C43",
        "λ_min falls as 1/step under gradient flow, whatever the depth",
        "X21",
        Expected(0.0, SLOPE),
        _flow,
        _trajectory("sgd"),
    ),
    _claim(
        "X9", "t and the smallest eigenvalue fall together", "B.1", Expected(1.0, 1e-9), _structural, _trajectory("sgd")
    ),
    _claim(
        "E10",
        "printed: Algorithm 2 without re-projection removes the logit shift's drift",
        "Algorithm 2",
        Expected(direction="no drift"),
        _printed,
        check_is("drift"),
    ),
)
