"""Claims about the rate primitive and Watanabe's inventory: C1–C5, C35–C41, N3, N4, and errata."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netvitals_lab import Claim, Expected, Plot, Row, Verdict
from netvitals_lab.papers.dead_directions import inventory_judges
from netvitals_lab.papers.dead_directions._judging import SLOPE, check_is, claim

STUDY = "dead-directions-inventory"


def _claim(
    number: str,
    statement: str,
    check: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    plot: Callable[[Sequence[Row]], Plot] | None = None,
) -> Claim:
    return claim(STUDY, number, statement, expected, judge, check_is(check), plot=plot)


CLAIMS = (
    _claim(
        "C1",
        "the directional Fisher decays as t^{2(k−1)}",
        "primitive",
        Expected(0.0, SLOPE),
        inventory_judges.slopes_verdict,
        inventory_judges.orders,
    ),
    _claim("C2", "F t²/K → 2k²", "primitive", Expected(0.0, 0.02), inventory_judges.ratios),
    _claim(
        "C3",
        "a dead hidden unit has order 2, whatever the activation",
        "dead units",
        Expected(direction="order 2"),
        inventory_judges.activations,
    ),
    _claim(
        "C4",
        "the spectrum falls into zero, constant, tangential and transversal",
        "selection",
        Expected(direction="9/12/3 and 16/24/4"),
        inventory_judges.partition,
        inventory_judges.spectrum,
    ),
    _claim(
        "C5",
        "the transversal eigenvector turns to v as t^{|j−(k−1)|}",
        "selection",
        Expected(direction="at least"),
        inventory_judges.turning,
    ),
    _claim(
        "X10",
        "merging two components has exponent 2",
        "two means",
        Expected(0.0, SLOPE),
        inventory_judges.two_means,
    ),
    _claim(
        "X10-three",
        "merging one pair of three components has exponent 2 too",
        "three means",
        Expected(0.0, SLOPE),
        inventory_judges.three_means,
    ),
    _claim(
        "X11",
        "with a free weight the merge has exponents 6, 2, 0",
        "merge",
        Expected(0.0, SLOPE),
        inventory_judges.merge,
    ),
    _claim(
        "C35",
        "the orders of a crossing follow from r + 1 rays",
        "crossings",
        Expected(0.0, 1e-6),
        inventory_judges.crossing,
    ),
    _claim(
        "C36",
        "λ = 1/(2 max k), m = how often",
        "crossings",
        Expected(direction="all"),
        inventory_judges.lambda_m,
    ),
    _claim(
        "C36-rank",
        "reduced-rank regression in closed form",
        "reduced rank",
        Expected(direction="consistent"),
        inventory_judges.reduced_rank,
    ),
    _claim("C37", "ν(k), k = 1 … 10", "fluctuation", Expected(0.0, 1e-4), inventory_judges.nu_table),
    _claim(
        "C37-universal",
        "ν does not depend on the leading coefficient",
        "fluctuation",
        Expected(direction="within 4 standard errors"),
        inventory_judges.universal,
    ),
    _claim(
        "C38",
        "E[G] = S + λ/n and E[T] = S + (λ − 2ν)/n",
        "fluctuation",
        Expected(direction="within 4.5 standard errors"),
        inventory_judges.losses,
    ),
    _claim(
        "C39",
        "a prior |u|^h shifts λ to (h+1)/(2k), and ν with it",
        "fluctuation",
        Expected(0.0, 1e-4),
        inventory_judges.prior,
    ),
    _claim(
        "C40",
        "volumes of {K < ε} and of high curvature",
        "volumes",
        Expected(direction="λ and m recovered"),
        inventory_judges.volume,
    ),
    _claim(
        "C41",
        "curvature of the mean maps",
        "curvature",
        Expected(0.0, 1e-8),
        inventory_judges.closed_forms,
    ),
    _claim(
        "N3",
        "a learned trajectory of reduced-rank regression gives the rank, not the order",
        "trajectories",
        Expected(direction="count grows with the deficit, no integer bands"),
        inventory_judges.trajectory,
    ),
    _claim(
        "N4",
        "at the boundary w → 0 the direction is tangential and no order follows",
        "weight boundary",
        Expected(direction="exponent depends on the distance"),
        inventory_judges.boundary,
    ),
    _claim(
        "E4",
        "printed: curvature blows up as t^{−2(k−1)} under Proposition 8's hypotheses",
        "curvature",
        Expected(direction="unbounded"),
        inventory_judges.flat_verdict,
    ),
    _claim(
        "E4-mixture",
        "printed: slope −2 on a mixture at unequal weights",
        "mixture curvature",
        Expected(direction="−2"),
        inventory_judges.mixture_curvature,
    ),
    _claim(
        "E5",
        "printed: F₄/C₆ goes smoothly from 18 to 12",
        "next order",
        Expected(direction="smooth"),
        inventory_judges.pole,
    ),
    _claim(
        "E6",
        "printed: the data-free part is λ − (Γ(λ+½)/Γ(λ))² for every k",
        "fluctuation",
        Expected(direction="every k"),
        inventory_judges.parity,
    ),
    _claim(
        "E7",
        "printed: ν does not depend on β",
        "fluctuation",
        Expected(direction="constant"),
        inventory_judges.temperature,
    ),
)
