"""Numbers that the paper prints and that other numbers of its own contradict: N3 to N24 of the specification."""

from __future__ import annotations

from collections.abc import Sequence

from netvitals_lab import Claims, Row, Verdict, erratum, holds, underspecified
from netvitals_lab.engine.judges import one
from netvitals_lab.papers.gate_density.arithmetic import overlap

STUDY = "gate-density-arithmetic"


def compared(rows: Sequence[Row]) -> Verdict:
    """What follows from the other numbers, beside the printed one: wrong where no rounding reconciles them."""
    row = one(rows)
    low, high = row["follows"]
    number, facts = _number(low, high), {"printed": row["printed"], "follows": row["follows"]}
    note = "what follows from the paper's other numbers, with their rounding"
    return (holds if overlap(row["printed"], row["follows"]) else erratum)(number, note=note, facts=facts)


def open_to(rows: Sequence[Row], what: str) -> Verdict:
    """A judge where two printed numbers differ and the text does not say which set-up has which."""
    found = compared(rows)
    if found.status == "holds":
        return found
    ends = [*one(rows)["printed"], *one(rows)["follows"]]
    note = f"{found.note}; the text does not say {what}"
    return underspecified((min(ends), max(ends)), found.measured, note=note, facts=found.facts)


def _number(low: float, high: float) -> float | str:
    return low if low == high else f"{low:.4g} to {high:.4g}"


claim = Claims("gate-density", study=STUDY)


@claim(
    "N3",
    "one test, one p",
    uses={"check": "sides"},
    correction="the first is one-sided, the second two-sided; two-sided both are 4.88e-4",
)
def one_sided(rows: Sequence[Row]) -> Verdict:
    """12 of 12 runs under SGD have p = 2.44e-4, as 12 of 12 under Adam have 4.88e-4"""
    return compared(rows)


@claim(
    "N4",
    "6.1e-7",
    uses={"check": "sweep"},
    correction="over 37 runs p = 8.6e-7; 6.1e-7 is that of 38, one run more than is reported",
)
def over_runs(rows: Sequence[Row]) -> Verdict:
    """ρ = −.710 over 37 runs has p = 6.1e-7"""
    return compared(rows)


@claim(
    "N4-conditions",
    ".0045",
    uses={"check": "conditions"},
    correction="over 12 conditions p = .0069; .0045 is that of 13, with PReLU, which the text leaves out",
)
def over_conditions(rows: Sequence[Row]) -> Verdict:
    """ρ = −.731 over 12 conditions has p = .0045"""
    return compared(rows)


@claim(
    "N6",
    "114+",
    uses={"check": "runs"},
    correction="these are 90 runs; in the mixer of A.4 rank falls, so it does not rise in every condition either",
)
def runs(rows: Sequence[Row]) -> Verdict:
    """Effective rank was followed in 114 runs and more: 18 + 48 + 24"""
    return compared(rows)


@claim(
    "N8",
    ".261",
    uses={"check": "prelu"},
    correction="a slope of ¼ leaves Var f′ at most 9/64 = .1406, and no gate between 0 and 1 has more than .25; with "
    "that slope all gates are open at θ ≤ .10 before training, and density cannot rise",
)
def index_of_prelu(rows: Sequence[Row]) -> Verdict:
    """The smoothness index Var f′ of PReLU before training is .261, the largest of 13, and its density rises"""
    return compared(rows)


@claim("N9", "67 to 77 %", uses={"check": "shrinkage"})
def shrinkage(rows: Sequence[Row]) -> Verdict:
    """Under SGD σ shrinks by about 67 to 77 % for every activation (Table 1)"""
    return compared(rows)


@claim(
    "N10", ".0078", uses={"check": "wilcoxon"}, correction="20 pairs of one sign have p = 1.9e-6; .0078 is that of 8"
)
def all_seeds(rows: Sequence[Row]) -> Verdict:
    """Adam is above the oracle in all of 20 seeds, Wilcoxon p = .0078"""
    return compared(rows)


@claim("N11", "one IoU", uses={"check": "scale"})
def two_scales(rows: Sequence[Row]) -> Verdict:
    """At stiffness 10 and 64 × 64 pixels IoU is 1.000 (Table 7) and .767 (A.9.4, scale invariance)"""
    return open_to(rows, "which kernel, method and target the second has")


@claim("N12", "below 20 %", uses={"check": "attack"})
def attacks(rows: Sequence[Row]) -> Verdict:
    """Above a stiffness of 14 fewer than 20 % of the attacks succeed, while IoU is .947, .830, .771"""
    return open_to(rows, "what counts as success of an attack; as P[IoU > .7] it would be nearly all")


@claim("N13", "about 1", uses={"check": "widths"}, correction="(28.83 − 17.2) / 6.29 = 1.85 widths")
def widths(rows: Sequence[Row]) -> Verdict:
    """Onset and midpoint of the transition are about one width δ apart"""
    return compared(rows)


@claim("N13-retained", ".81", uses={"check": "retained"}, correction="the printed sigmoid leaves 87 % at 17.2")
def retained(rows: Sequence[Row]) -> Verdict:
    """At the onset 81 % of the order parameter is left"""
    return compared(rows)


@claim("N13-midpoint", ".893", uses={"check": "midpoint"})
def midpoint(rows: Sequence[Row]) -> Verdict:
    """At the midpoint IoU is (IoU_max + IoU_min)/2 ≈ .893"""
    return open_to(rows, "whose IoU_min it takes: that of the fit, .782, gives .891")


@claim("N15", ".63", uses={"check": "excess"})
def excess(rows: Sequence[Row]) -> Verdict:
    """The oracle keeps 12 to 63 % more active coordinates: a ratio of 1.12 to 1.64"""
    return compared(rows)


@claim("N16", "one scope", uses={"check": "validity"})
def scope(rows: Sequence[Row]) -> Verdict:
    """The depth law is valid from stiffness 16 on (Theorem A.3), and its independence from 40 on (A.9)"""
    return open_to(rows, "which of the two its own follow-up found")


@claim("N17", "one share", uses={"check": "active"})
def active_share(rows: Sequence[Row]) -> Verdict:
    """At stiffness 20 the active share of one layer is .147 (Table 8) and .270 to .470 by method (Table 6)"""
    return open_to(rows, "which method and kernel Table 8 has")


@claim(
    "N18", "−.674", uses={"check": "exponent"}, correction="a fit to the table's own five rates gives .266 · α^−.748"
)
def exponent(rows: Sequence[Row]) -> Verdict:
    """The rates of Table 8 follow .211 · α^−.674"""
    return compared(rows)


@claim("N19", ".302", uses={"check": "ratio 40"})
def at_40(rows: Sequence[Row]) -> Verdict:
    """At stiffness 40 two layers keep .018 / .059 = .302 of the active share"""
    return compared(rows)


@claim("N19-20", ".531", uses={"check": "ratio 20"})
def at_20(rows: Sequence[Row]) -> Verdict:
    """At stiffness 20 two layers keep .078 / .147 = .531 of the active share"""
    return compared(rows)


@claim("N20", "about 4", uses={"check": "sobel"})
def sobel(rows: Sequence[Row]) -> Verdict:
    """The Sobel kernel has norm 4"""
    return open_to(rows, "at which scale: the usual integer kernel has norm 8, its half 4")


@claim("N20-random", "about 1", uses={"check": "random kernel"})
def random_kernel(rows: Sequence[Row]) -> Verdict:
    """A random kernel (random_norm) has norm 1"""
    return open_to(rows, "which norm is 1; with the Frobenius norm 1 the spectral one is larger")


@claim("N23", ".82", uses={"check": "pathways"}, correction="over 14 values p = .78; .82 is that of 10")
def pathways(rows: Sequence[Row]) -> Verdict:
    """Over 14 stiffness values r = .082 has p = .82"""
    return compared(rows)


@claim("N24", "from 2", uses={"check": "amplification"}, correction="from 1 / .72 = 1.4 to 1 / .28 = 3.6 times")
def amplification(rows: Sequence[Row]) -> Verdict:
    """A learned kernel closes gates 2 to 3.5 times further: active ratios of .28 to .72"""
    return compared(rows)
