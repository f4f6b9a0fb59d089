"""Numbers that the paper prints and that other numbers of its own contradict: N3 to N24 of the specification."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netvitals_lab import Claim, Expected, Row, Verdict, erratum, holds, underspecified
from netvitals_lab.engine.judges import matches, one
from netvitals_lab.papers.gate_density.arithmetic import overlap

STUDY = "gate-density-arithmetic"


def compared(rows: Sequence[Row]) -> Verdict:
    """What follows from the other numbers, beside the printed one: wrong where no rounding reconciles them."""
    row = one(rows)
    low, high = row["follows"]
    number, facts = _number(low, high), {"printed": row["printed"], "follows": row["follows"]}
    note = "what follows from the paper's other numbers, with their rounding"
    return (holds if overlap(row["printed"], row["follows"]) else erratum)(number, note=note, facts=facts)


def open_to(what: str) -> Callable[[Sequence[Row]], Verdict]:
    """A judge where two printed numbers differ and the text does not say which set-up has which."""

    def judge(rows: Sequence[Row]) -> Verdict:
        found = compared(rows)
        if found.status == "holds":
            return found
        ends = [*one(rows)["printed"], *one(rows)["follows"]]
        note = f"{found.note}; the text does not say {what}"
        return underspecified((min(ends), max(ends)), found.measured, note=note, facts=found.facts)

    return judge


def _number(low: float, high: float) -> float | str:
    return low if low == high else f"{low:.4g} to {high:.4g}"


def _claim(name: str, check: str, statement: str, printed: str, correction: str = "", unsaid: str = "") -> Claim:
    return Claim(
        id=f"gate-density/{name}",
        study=STUDY,
        statement=statement,
        expected=Expected(direction=printed),
        judge=open_to(unsaid) if unsaid else compared,
        uses=matches(check=check),
        correction=correction,
    )


CLAIMS = (
    _claim(
        "N3",
        "sides",
        "12 of 12 runs under SGD have p = 2.44e-4, as 12 of 12 under Adam have 4.88e-4",
        "one test, one p",
        "the first is one-sided, the second two-sided; two-sided both are 4.88e-4",
    ),
    _claim(
        "N4",
        "sweep",
        "ρ = −.710 over 37 runs has p = 6.1e-7",
        "6.1e-7",
        "over 37 runs p = 8.6e-7; 6.1e-7 is that of 38, one run more than is reported",
    ),
    _claim(
        "N4-conditions",
        "conditions",
        "ρ = −.731 over 12 conditions has p = .0045",
        ".0045",
        "over 12 conditions p = .0069; .0045 is that of 13, with PReLU, which the text leaves out",
    ),
    _claim(
        "N6",
        "runs",
        "Effective rank was followed in 114 runs and more: 18 + 48 + 24",
        "114+",
        "these are 90 runs; in the mixer of A.4 rank falls, so it does not rise in every condition either",
    ),
    _claim(
        "N8",
        "prelu",
        "The smoothness index Var f′ of PReLU before training is .261, the largest of 13, and its density rises",
        ".261",
        "a slope of ¼ leaves Var f′ at most 9/64 = .1406, and no gate between 0 and 1 has more than .25; with that "
        "slope all gates are open at θ ≤ .10 before training, and density cannot rise",
    ),
    _claim("N9", "shrinkage", "Under SGD σ shrinks by about 67 to 77 % for every activation (Table 1)", "67 to 77 %"),
    _claim(
        "N10",
        "wilcoxon",
        "Adam is above the oracle in all of 20 seeds, Wilcoxon p = .0078",
        ".0078",
        "20 pairs of one sign have p = 1.9e-6; .0078 is that of 8",
    ),
    _claim(
        "N11",
        "scale",
        "At stiffness 10 and 64 × 64 pixels IoU is 1.000 (Table 7) and .767 (A.9.4, scale invariance)",
        "one IoU",
        unsaid="which kernel, method and target the second has",
    ),
    _claim(
        "N12",
        "attack",
        "Above a stiffness of 14 fewer than 20 % of the attacks succeed, while IoU is .947, .830, .771",
        "below 20 %",
        unsaid="what counts as success of an attack; as P[IoU > .7] it would be nearly all",
    ),
    _claim(
        "N13",
        "widths",
        "Onset and midpoint of the transition are about one width δ apart",
        "about 1",
        "(28.83 − 17.2) / 6.29 = 1.85 widths",
    ),
    _claim(
        "N13-retained",
        "retained",
        "At the onset 81 % of the order parameter is left",
        ".81",
        "the printed sigmoid leaves 87 % at 17.2",
    ),
    _claim(
        "N13-midpoint",
        "midpoint",
        "At the midpoint IoU is (IoU_max + IoU_min)/2 ≈ .893",
        ".893",
        unsaid="whose IoU_min it takes: that of the fit, .782, gives .891",
    ),
    _claim("N15", "excess", "The oracle keeps 12 to 63 % more active coordinates: a ratio of 1.12 to 1.64", ".63"),
    _claim(
        "N16",
        "validity",
        "The depth law is valid from stiffness 16 on (Theorem A.3), and its independence from 40 on (A.9)",
        "one scope",
        unsaid="which of the two its own follow-up found",
    ),
    _claim(
        "N17",
        "active",
        "At stiffness 20 the active share of one layer is .147 (Table 8) and .270 to .470 by method (Table 6)",
        "one share",
        unsaid="which method and kernel Table 8 has",
    ),
    _claim(
        "N18",
        "exponent",
        "The rates of Table 8 follow .211 · α^−.674",
        "−.674",
        "a fit to the table's own five rates gives .266 · α^−.748",
    ),
    _claim("N19", "ratio 40", "At stiffness 40 two layers keep .018 / .059 = .302 of the active share", ".302"),
    _claim("N19-20", "ratio 20", "At stiffness 20 two layers keep .078 / .147 = .531 of the active share", ".531"),
    _claim(
        "N20",
        "sobel",
        "The Sobel kernel has norm 4",
        "about 4",
        unsaid="at which scale: the usual integer kernel has norm 8, its half 4",
    ),
    _claim(
        "N20-random",
        "random kernel",
        "A random kernel (random_norm) has norm 1",
        "about 1",
        unsaid="which norm is 1; with the Frobenius norm 1 the spectral one is larger",
    ),
    _claim(
        "N23",
        "pathways",
        "Over 14 stiffness values r = .082 has p = .82",
        ".82",
        "over 14 values p = .78; .82 is that of 10",
    ),
    _claim(
        "N24",
        "amplification",
        "A learned kernel closes gates 2 to 3.5 times further: active ratios of .28 to .72",
        "from 2",
        "from 1 / .72 = 1.4 to 1 / .28 = 3.6 times",
    ),
)
