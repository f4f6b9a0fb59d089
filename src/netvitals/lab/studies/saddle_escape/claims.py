"""The claims of the paper, in the order of the checklist: C1 to C41, with the errata checked beside what is printed.

C10, C15, C16, C20, C30, C31, C38 and C39 stand with their experiments.
"""

from __future__ import annotations

from netvitals.lab.studies import Claim, Expected, decide, erratum, fails
from netvitals.lab.studies.saddle_escape import judges
from netvitals.lab.studies.saddle_escape.theorems import NAME, numbers


def _claim(n: str, section: str, statement: str, expected: str, check: str, judge: judges.Judge) -> Claim:
    return Claim(
        f"saddle-escape/{n}",
        NAME,
        statement,
        Expected(direction=expected),
        judge,
        section=section,
        uses=lambda config: config["check"] == check,
    )


_SIGNAL_SECTION = "§5, Prop. 8, Lemma 10"
CLAIMS = (
    _claim(
        "C1",
        "Theorem 1",
        "The imbalance identity is exact for any C¹ activation and any loss (T1)",
        "defect ≤ 1e-12",
        "identity",
        judges.at_most("identity", "defect", 1e-12),
    ),
    _claim(
        "C2",
        "A.5",
        "It holds almost everywhere for ReLU and leaky ReLU, whose imbalances are conserved (T1c)",
        "drift ≤ 1e-12 of its terms",
        "identity",
        judges.at_most("identity", "homogeneous drift", 1e-12),
    ),
    _claim(
        "C3",
        "A.2",
        "It holds with a rate per layer, and for a discrete step exactly (T1a)",
        "gap ≤ 1e-12",
        "identity",
        judges.at_most("identity", "discrete step gap", 1e-12),
    ),
    _claim(
        "C4",
        "§2",
        "Linear networks conserve W₂ᵀW₂ − W₁W₁ᵀ",
        "drift ≤ 1e-10",
        "linear conservation",
        judges.at_most("linear conservation", "linear drift", 1e-10),
    ),
    _claim(
        "C5",
        "Cor. 12",
        "The identity lifts to matrices, E[bφᵀ + φbᵀ] (T1b)",
        "printed form fails, corrected ≤ 1e-12",
        "identity",
        judges.corrected("identity", judges.printed_matrix, judges.right_matrix),
    ),
    _claim(
        "C6",
        "Prop. 2",
        "Every smooth activation of the family is in exactly one of four classes (T2)",
        "no wrong class",
        "classes",
        judges.at_most("classes", "wrong classes", 0.0),
    ),
    _claim(
        "C7",
        "Prop. 2",
        "φ starts as (q−1)a_q z^q",
        "order of φ near 0 within 0.02",
        "classes",
        judges.at_most("classes", "phi order gap", 0.02),
    ),
    _claim(
        "C8",
        "§3",
        "On the symmetric manifold the imbalance of layers l, l+1 drifts at order L + (q−1)l",
        "orders within 0.3",
        "expansion",
        judges.gap_drift,
    ),
    _claim(
        "C9",
        "Lemma 14",
        "The symmetric manifold is invariant under the flow (T3)",
        "pattern defect ≤ 1e-14",
        "ansatz",
        judges.at_most("ansatz", "pattern defect", 1e-14),
    ),
    _claim(
        "C11",
        "§3.1",
        "Uniform matrix flow does not induce the Euclidean scalar flow: the first layer is N times slower",
        "ratio 1/N to rounding",
        "ansatz",
        judges.at_most("ansatz", "uniform ratio gap", 1e-10),
    ),
    _claim(
        "C12",
        "(7)",
        "The leading drive is the same in every layer, K = β h α^(L−1)/√N",
        "√N β h α^(L−1) in the clock t",
        "expansion",
        judges.drive,
    ),
    _claim(
        "C13",
        "(7)",
        "The remainder is of order min(L+q−2, 2L−1)",
        "within 0.1 for tanh",
        "expansion",
        judges.at_most("expansion", "tanh remainder order gap", 0.1),
    ),
    _claim(
        "C14",
        "Prop. 13",
        "The gaps X_ℓ² − X_1² drift at order L+q−1, pairs above the first more slowly (T6)",
        "orders within 0.3, coefficient within 4 %",
        "expansion",
        judges.gap_drift,
    ),
    _claim(
        "C17",
        "Theorem 6",
        "The exponent depends on r, not on the depth",
        "−(r−2) within 0.02",
        "critical depth",
        judges.depth_free,
    ),
    _claim(
        "C18",
        "Theorem 6",
        "r = 1 removes the dependence on ε, r = 2 makes it logarithmic",
        "constant; rate 1/(KΠs)",
        "critical depth",
        judges.corner,
    ),
    _claim(
        "C19",
        "Theorem 6",
        "The prefactor is 1/[(r−2)KΠs_i] (T11)",
        "ratio 1 within 1 %",
        "critical depth",
        judges.critical,
    ),
    _claim(
        "C21",
        "Cor. 7",
        "The first correction is O(ε²) for class B and O(ε) for class C away from the resonance",
        "O(ε^(q−1)), and O(ε^(L−2)) for L < q+1",
        "corrections",
        judges.correction_order,
    ),
    _claim("C22", "Cor. 17", "A logarithm appears at L = q + 1 (T9)", "slope −λ", "resonance", judges.resonance),
    _claim(
        "C23",
        "(38)",
        "Class C corrects every layer by γ_C = 3σ''(0)²/(2αh)",
        "2λ' and λ' instead",
        "corrections",
        judges.gamma_c,
    ),
    _claim(
        "C24",
        "C.4",
        "Class D reduces to the centred activation (T14)",
        "true for the centred model only",
        "class D",
        judges.class_d,
    ),
    _claim(
        "C25",
        "Prop. 8",
        "γ̇ = β h T(1 + O(M²)) − S (T15)",
        "teacher term over β h T → 1 as M²",
        "signal",
        judges.signal_drive,
    ),
    _claim(
        "C26",
        _SIGNAL_SECTION,
        "|S| ≤ C γ T and γ̇ ≥ ½ β h T on the plateau (T16)",
        "ratio at least 0.5",
        "signal",
        judges.bootstrap,
    ),
    _claim(
        "C27",
        "(45)",
        "The gradients of γ are rank one, α^(L−1)B_ℓA_{ℓ−1}ᵀ, up to M²",
        "residual ≤ 2e-3 at ε = 0.01",
        "signal",
        judges.at_most("signal", "rank-one residual", 2e-3),
    ),
    _claim(
        "C28",
        "(46)",
        "T ≥ c' γ^(2−2/r) (T21)",
        "bounded below by 1",
        "signal",
        lambda rows: decide(
            min(numbers(rows, "signal", "least am-gm")) >= 1,
            min(numbers(rows, "signal", "least am-gm")),
            note="smallest T/γ^(2−2/r) along the plateau, r = 3",
        ),
    ),
    _claim(
        "C29",
        "Lemma 21",
        "Layers outside the bottleneck move by at most C m0² (T18)",
        "drift/M² ≤ 1",
        "signal",
        judges.at_most("signal", "largest drift over M^2", 1.0),
    ),
    _claim(
        "C32",
        "D",
        "γ(0) is nondegenerate with high probability (T27)",
        "density at 0 as of a Gaussian",
        "nondegeneracy",
        judges.density,
    ),
    _claim(
        "C33",
        "E.6",
        "t_k = I_L(θ)/Γ_k, ranked by Γ (T26)",
        "time over law within 1e-3",
        "stages",
        judges.near(
            "stages", {f"depth {d} time over law": (1.0, 1e-3) for d in (2, 3, 4, 5)} | {"ranked": (1.0, 1e-9)}
        ),
    ),
    _claim(
        "C34",
        "E.6",
        "A weaker mode with fewer small layers escapes first",
        "time ratio below 1",
        "stages",
        judges.at_most("stages", "weak over strong", 1.0),
    ),
    _claim(
        "C35",
        "E.1",
        "The block-aligned ansatz is preserved by the flow",
        "off-block velocities vanish",
        "blocks",
        judges.blocks,
    ),
    _claim(
        "C36",
        "Prop. 24",
        "A loop gain above 1 is the same as a positive real eigenvalue (T23)",
        "no violation",
        "perron",
        judges.perron,
    ),
    _claim(
        "C37",
        "Thm 25",
        "Truncated closures have strictly increasing rates, all below the true one (T24, T25)",
        "strictly increasing",
        "truncations",
        judges.truncations,
    ),
    _claim(
        "C40",
        "§2.5",
        "h > 0 does not follow from class B",
        "u − u³/2 is B3 with h = −1/2",
        "classes",
        judges.near("classes", {"h of u - u^3/2": (-0.5, 1e-9), "cubic is B3": (1.0, 1e-9)}),
    ),
    _claim("C41", "§2.5", "h⁽³⁾ = 6s₃ + 3h", "gap ≤ 1e-10", "classes", judges.at_most("classes", "hermite gap", 1e-10)),
    _claim(
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
    _claim(
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
    _claim(
        "T7",
        "Thm 16",
        "On the balanced ray X_1² − X_L² − (2(q−1)/(q+1))λ's^(q+1) is invariant to leading order",
        "ratio 1 within 3 %",
        "expansion",
        judges.near("expansion", {"tanh invariant ratio": (1.0, 0.03), "gelu invariant ratio": (1.0, 0.03)}),
    ),
    _claim(
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
    _claim(
        "T17", "Lemma 20", "γ ≈ h α^(L−1) v_1ᵀW_L⋯W_1v_1 and ‖f‖ ≍ γ", "without h; ‖f‖ is larger", "signal", judges.path
    ),
    _claim(
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
