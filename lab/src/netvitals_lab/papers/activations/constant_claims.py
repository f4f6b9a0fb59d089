"""One claim per constant of an activation: moments, Hermite coefficients, drives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netvitals_lab import Claim, Expected, Row, Verdict, within
from netvitals_lab.engine.judges import matches, one
from netvitals_lab.papers.activations import reference as ref
from netvitals_lab.papers.activations.number_claim import DRIFT, GATES, SADDLE, STUDY, classed, number


def claims_of_constants() -> Iterator[Claim]:
    for a, values in ref.CONSTANTS.items():
        for (quantity, tolerance), value in zip(ref.CONSTANT_NAMES, values):
            exact = ref.EXACT.get((a, quantity))
            yield number(
                f"{quantity.replace(' ', '-')}-{a}",
                SADDLE,
                "§2.5",
                f"{a}: {WORDS[quantity]}",
                quantity,
                value if exact is None else exact,
                tolerance if exact is None else 1e-9,
                classed(a),
            )
    for a, (fast, slow) in ref.DRIVE.items():
        for quantity, value, tolerance in (("K_t", fast, 1e-6), ("K_s", slow, 1e-8)):
            yield number(
                f"{quantity}-{a}",
                SADDLE,
                "§2.5",
                f"{a}: drive {quantity} at L = 4, N = 64, β = 1",
                quantity,
                value,
                tolerance,
                classed(a),
            )
    for a in ("tanh", "erf", "sin", "arctan", "sigmoid"):
        yield Claim(
            id=f"activations/hermite-{a}",
            study=STUDY,
            statement=f"{a}: E[f(g) g³] = 6 s₃ + 3 h with Hermite coefficient s₃",
            expected=Expected(0.0, tolerance=1e-10),
            judge=judge_hermite,
            section="§2.5, claim 41",
            paper=SADDLE,
            uses=matches(**classed(a)),
        )
    cubic = "poly:0:1:0:-0.5"
    yield number(
        "h-sign",
        SADDLE,
        "§2.5, claim 40",
        "u − u³/2 is of class B3 and yet has h = 1 − 3/2 < 0",
        "h",
        -0.5,
        1e-10,
        classed(cubic),
    )
    for a, (where, least) in ref.LEAST_SLOPE.items():
        yield number(
            f"least-slope-at-{a}",
            GATES,
            "§2.2",
            f"{a}: f' is least at this z",
            "least slope at",
            where,
            1e-4,
            classed(a),
        )
        yield number(
            f"least-slope-{a}",
            GATES,
            "§2.2",
            f"{a}: least f'",
            "least slope",
            least,
            1e-4 if a == "gelu" else 1e-5,
            classed(a),
        )
    for a, (where, least) in ref.MINIMUM.items():
        yield number(
            f"minimum-at-{a}", DRIFT, "§2.6", f"{a}: f is least at this z", "minimum at", where, 1e-4, classed(a)
        )
        yield number(f"minimum-{a}", DRIFT, "§2.6", f"{a}: least f", "minimum", least, 1e-5, classed(a))
    for a, value in ref.BUMP.items():
        yield number(
            f"bump-{a}",
            DRIFT,
            "§2.6",
            f"{a} squared: height of the bump on the negative side",
            "bump of the square",
            value,
            1e-5,
            classed(a),
        )


WORDS = {
    "slope": "α = f'(0)",
    "q": "order of the first nonlinear term",
    "a_q": "coefficient of that term",
    "h": "h = E[g f(g)]",
    "h_q": "E[f(g) g^q]",
    "half power": "½E[f(g)²]",
    "lambda prime": "λ' = a_q h_q / (α h)",
    "lambda": "λ = 2q/(q+1) λ'",
    "gamma printed": "γ_C as printed",
    "nlo 1": "qλ', next order of the first layer",
}


def judge_hermite(rows: Sequence[Row]) -> Verdict:
    gap = float(one(rows, quantity="h_3 from Hermite")["value"]) - float(one(rows, quantity="h_q")["value"])
    return within(gap, Expected(0.0, tolerance=1e-10))
