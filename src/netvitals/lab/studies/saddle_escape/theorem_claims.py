"""Theorems that no numbered claim covers: eq. 5, Lemmas 15, 19 and 20, Theorem 16, Prop. 22."""

from __future__ import annotations

from netvitals.lab.studies import decide, erratum, fails
from netvitals.lab.studies.saddle_escape import judges
from netvitals.lab.studies.saddle_escape.claims import claim
from netvitals.lab.studies.saddle_escape.theorems import numbers

CLAIMS = (
    claim(
        "T4e",
        "(5)",
        "∂f/∂X_1 has σ(g) as its last factor",
        "g instead (E5)",
        "ansatz",
        judges.corrected(
            "ansatz",
            lambda rows: (
                abs(judges.one(rows, "ansatz", "printed over true first-layer drive") - 1) < 1e-3,
                f"its drive is {judges.one(rows, 'ansatz', 'printed over true first-layer drive'):.3f} of the true one",
            ),
            lambda rows: (
                max(numbers(rows, "ansatz", "gradient gap")) <= 1e-10,
                max(numbers(rows, "ansatz", "gradient gap")),
                "g, which agrees with automatic differentiation",
            ),
        ),
    ),
    claim(
        "T5",
        "Lemma 15",
        "The output departs from linear at degree L + q − 1",
        "order within 0.1",
        "expansion",
        lambda rows: decide(
            max(judges.one(rows, "expansion", f"{n} output order gap") for n in ("tanh", "gelu")) <= 0.1,
            max(judges.one(rows, "expansion", f"{n} output order gap") for n in ("tanh", "gelu")),
        ),
    ),
    claim(
        "T7",
        "Thm 16",
        "On the balanced ray X_1² − X_L² − (2(q−1)/(q+1))λ's^(q+1) is invariant to leading order",
        "ratio 1 within 3 %",
        "expansion",
        judges.near("expansion", {"tanh invariant ratio": (1.0, 0.03), "gelu invariant ratio": (1.0, 0.03)}),
    ),
    claim(
        "T12",
        "Lemma 19",
        "The shell estimate holds at every point of a shell",
        "−0.293 at its edges",
        "critical depth",
        lambda rows: (
            erratum(
                judges.one(rows, "critical depth", "shell edge"),
                note="relative error at the edge of a shell; it holds inside, and for integrals (E15)",
            )
            if abs(judges.one(rows, "critical depth", "shell edge") + 0.293) < 1e-3
            else fails(judges.one(rows, "critical depth", "shell edge"))
        ),
    ),
    claim(
        "T17", "Lemma 20", "γ ≈ h α^(L−1) v_1ᵀW_L⋯W_1v_1 and ‖f‖ ≍ γ", "without h; ‖f‖ is larger", "signal", judges.path
    ),
    claim(
        "T20",
        "Prop. 22",
        "At He initialisation r = 1 is Θ(1) and r = 2 is Θ(ln 1/ε)",
        "change ≤ 2 %; rate steady within 5 %",
        "corners",
        lambda rows: decide(
            max(numbers(rows, "corners", "r1 change")) <= 0.02
            and max(numbers(rows, "corners", "r2 rate change")) <= 0.05,
            max(numbers(rows, "corners", "r1 change")),
            note=f"r = 2: dt/d ln(1/ε) changes by {max(numbers(rows, 'corners', 'r2 rate change')):.3f}",
        ),
    ),
)
