"""What two papers print of activations: the crossings of Table 3, their definition, and the four classes."""

from __future__ import annotations

from collections.abc import Sequence

from netvitals_lab import Claims, Expected, Measured, Row
from netvitals_lab.engine.judges import one, some
from netvitals_lab.papers.activations.tables import STUDIES

STUDY = STUDIES[0].name
GATES, SADDLE = "gate-density", "saddle-escape"
PRINTED = {  # z_low(.10), Table 3
    "relu": 0.000,
    "leaky_relu:0.01": 0.000,
    "softplus:50": -0.044,
    "softplus:20": -0.110,
    "softplus:10": -0.219,
    "softplus:5": -0.439,
    "gelu": -0.554,
    "silu": -0.912,
    "mish": -0.891,
}
DIGIT = 1e-3  # one of the table's last
CLASSES = {  # Proposition 2 and Appendix A.5
    "identity": "A",
    "relu": "A almost everywhere",
    "tanh": "B3",
    "erf": "B3",
    "sin": "B3",
    "gelu": "C",
    "silu": "C",
    "sigmoid": "D",
    "softplus": "D",
    "poly:0:1:0:0:1": "outside",
}


def _missed(rows: Sequence[Row], kind: str) -> dict[str, float]:
    return {a: abs(float(one(rows, quantity=kind, activation=a)["value"]) - v) for a, v in PRINTED.items()}


claim = Claims("activations", study=STUDY)


@claim("table3", Expected(0.0, tolerance=DIGIT), uses={"table": "crossings"}, paper=GATES)
def table(rows: Sequence[Row]) -> Measured:
    """z_low(.10) of nine activations is 0, 0, −.044, −.110, −.219, −.439, −.554, −.912, −.891"""
    gaps = _missed(rows, "signed")
    return Measured(
        max(gaps.values()), "largest distance to the table of the signed crossing, inf{z : f'(z) > θ}", facts=gaps
    )


@claim(
    "definition",
    "GELU −0.554, SiLU −0.912, Mish −0.891",
    uses={"table": "crossings"},
    paper=GATES,
    correction="z_low(θ) = inf{z : f'(z) > θ}, the signed crossing",
)
def definition(rows: Sequence[Row]) -> Measured:
    """z_low(θ) = inf{z : |f'(z)| > θ} gives the z_low of Table 3

    The printed definition inf{z : |f'| > θ} against the printed table: wrong for GELU and Mish.
    """
    literal, signed = (max(_missed(rows, kind).values()) for kind in ("literal", "signed"))
    wrong = {a: float(one(rows, quantity="literal", activation=a)["value"]) for a in ("gelu", "silu", "mish")}
    note = "distance of the definition with |f'| to the printed table, the largest"
    return Measured(literal, note, facts=wrong, ok=literal <= DIGIT, right=signed <= DIGIT)


@claim("classes", "10 of 10", uses={"table": "class"}, paper=SADDLE)
def classes(rows: Sequence[Row]) -> Measured:
    """Linear and, almost everywhere, ReLU are of class A; tanh, erf and sin of B3; GELU and Swish of C; sigmoid and
    softplus of D; z + z⁴ of none"""
    found = {
        r["activation"]: r["text"] + (" almost everywhere" if r["almost everywhere"] else "")
        for r in some(rows, quantity="class")
    }
    wrong = [a for a, kind in CLASSES.items() if found[a] != kind]
    return Measured(
        f"{len(CLASSES) - len(wrong)} of {len(CLASSES)}",
        ", ".join(f"{a} {kind}" for a, kind in found.items()),
        ok=not wrong,
    )
