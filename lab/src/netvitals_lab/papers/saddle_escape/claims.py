"""The claims of the paper, in the order of the checklist: C1 to C41, with the errata checked beside what is printed.

C10, C15, C16, C20, C30, C31, C38 and C39 stand with their experiments. Eq. 5, Lemmas 15, 19 and 20, Theorem 16 and
Prop. 22 have no number of their own and stand at the end.
"""

from __future__ import annotations

from netvitals_lab import Claim, Expected
from netvitals_lab.papers.saddle_escape import judges
from netvitals_lab.papers.saddle_escape.theorems import NAME


def claim(n: str, statement: str, expected: str, check: str, judge: judges.Judge) -> Claim:
    return Claim(
        id=f"saddle-escape/{n}",
        study=NAME,
        statement=statement,
        expected=Expected(direction=expected),
        judge=judge,
        uses=lambda config: config["check"] == check,
    )


CLAIMS = (
    claim(
        "C1",
        "The imbalance identity is exact for any C¹ activation and any loss (T1)",
        "defect ≤ 1e-12",
        "identity",
        judges.bounded("defect", 1e-12),
    ),
    claim(
        "C2",
        "It holds almost everywhere for ReLU and leaky ReLU, whose imbalances are conserved (T1c)",
        "drift ≤ 1e-12 of its terms",
        "identity",
        judges.bounded("homogeneous drift", 1e-12),
    ),
    claim(
        "C3",
        "It holds with a rate per layer, and for a discrete step exactly (T1a)",
        "gap ≤ 1e-12",
        "identity",
        judges.bounded("discrete step gap", 1e-12),
    ),
    claim(
        "C4",
        "Linear networks conserve W₂ᵀW₂ − W₁W₁ᵀ",
        "drift ≤ 1e-10",
        "linear conservation",
        judges.bounded("linear drift", 1e-10),
    ),
    claim(
        "C5",
        "The identity lifts to matrices, E[bφᵀ + φbᵀ] (T1b)",
        "printed form fails, corrected ≤ 1e-12",
        "identity",
        judges.matrix_identity,
    ),
    claim(
        "C6",
        "Every smooth activation of the family is in exactly one of four classes (T2)",
        "no wrong class",
        "classes",
        judges.bounded("wrong classes", 0.0),
    ),
    claim(
        "C7",
        "φ starts as (q−1)a_q z^q",
        "order of φ near 0 within 0.02",
        "classes",
        judges.bounded("phi order gap", 0.02),
    ),
    claim(
        "C9",
        "The symmetric manifold is invariant under the flow (T3)",
        "pattern defect ≤ 1e-14",
        "ansatz",
        judges.bounded("pattern defect", 1e-14),
    ),
    claim(
        "C11",
        "Uniform matrix flow does not induce the Euclidean scalar flow: the first layer is N times slower",
        "ratio 1/N to rounding",
        "ansatz",
        judges.bounded("uniform ratio gap", 1e-10),
    ),
    claim(
        "C12",
        "The leading drive is the same in every layer, K = β h α^(L−1)/√N",
        "√N β h α^(L−1) in the clock t",
        "expansion",
        judges.drive,
    ),
    claim(
        "C13",
        "The remainder is of order min(L+q−2, 2L−1)",
        "within 0.1 for tanh",
        "expansion",
        judges.bounded("tanh remainder order gap", 0.1),
    ),
    claim(
        "C14",
        "The gaps X_ℓ² − X_1² drift at order L+q−1, pairs above the first more slowly (T6)",
        "orders within 0.3, coefficient within 4 %",
        "expansion",
        judges.gap_drift,
    ),
    claim(
        "C17",
        "The exponent depends on r, not on the depth",
        "−(r−2) within 0.02",
        "critical depth",
        judges.depth_free,
    ),
    claim(
        "C18",
        "r = 1 removes the dependence on ε, r = 2 makes it logarithmic",
        "constant; rate 1/(KΠs)",
        "critical depth",
        judges.corner,
    ),
    claim(
        "C19",
        "The prefactor is 1/[(r−2)KΠs_i] (T11)",
        "ratio 1 within 1 %",
        "critical depth",
        judges.critical,
    ),
    claim(
        "C21",
        "The first correction is O(ε²) for class B and O(ε) for class C away from the resonance",
        "O(ε^(q−1)), and O(ε^(L−2)) for L < q+1",
        "corrections",
        judges.correction_order,
    ),
    claim("C22", "A logarithm appears at L = q + 1 (T9)", "slope −λ", "resonance", judges.resonance),
    claim(
        "C23",
        "Class C corrects every layer by γ_C = 3σ''(0)²/(2αh)",
        "2λ' and λ' instead",
        "corrections",
        judges.gamma_c,
    ),
    claim(
        "C24",
        "Class D reduces to the centred activation (T14)",
        "true for the centred model only",
        "class D",
        judges.class_d,
    ),
    claim(
        "C25",
        "γ̇ = β h T(1 + O(M²)) − S (T15)",
        "teacher term over β h T → 1 as M²",
        "signal",
        judges.signal_drive,
    ),
    claim(
        "C26",
        "|S| ≤ C γ T and γ̇ ≥ ½ β h T on the plateau (T16)",
        "ratio at least 0.5",
        "signal",
        judges.bootstrap,
    ),
    claim(
        "C27",
        "The gradients of γ are rank one, α^(L−1)B_ℓA_{ℓ−1}ᵀ, up to M²",
        "residual ≤ 2e-3 at ε = 0.01",
        "signal",
        judges.bounded("rank-one residual", 2e-3),
    ),
    claim(
        "C28",
        "T ≥ c' γ^(2−2/r) (T21)",
        "bounded below by 1",
        "signal",
        judges.am_gm,
    ),
    claim(
        "C29",
        "Layers outside the bottleneck move by at most C m0² (T18)",
        "drift/M² ≤ 1",
        "signal",
        judges.bounded("largest drift over M^2", 1.0),
    ),
    claim(
        "C32",
        "γ(0) is nondegenerate with high probability (T27)",
        "density at 0 as of a Gaussian",
        "nondegeneracy",
        judges.density,
    ),
    claim(
        "C33",
        "t_k = I_L(θ)/Γ_k, ranked by Γ (T26)",
        "time over law within 1e-3",
        "stages",
        judges.at({f"depth {d} time over law": (1.0, 1e-3) for d in (2, 3, 4, 5)} | {"ranked": (1.0, 1e-9)}),
    ),
    claim(
        "C34",
        "A weaker mode with fewer small layers escapes first",
        "time ratio below 1",
        "stages",
        judges.bounded("weak over strong", 1.0),
    ),
    claim(
        "C35",
        "The block-aligned ansatz is preserved by the flow",
        "off-block velocities vanish",
        "blocks",
        judges.blocks,
    ),
    claim(
        "C36",
        "A loop gain above 1 is the same as a positive real eigenvalue (T23)",
        "no violation",
        "perron",
        judges.perron,
    ),
    claim(
        "C36b",
        "At the balanced saddle the stage-one Jacobian has A, D diagonal and positive and B, C ≥ 0, so a loop gain "
        "above 1 is what makes it unstable",
        "A diagonal, B ≥ 0",
        "stage one",
        judges.stage_one,
    ),
    claim(
        "C37",
        "Truncated closures have strictly increasing rates, all below the true one (T24, T25)",
        "strictly increasing",
        "truncations",
        judges.truncations,
    ),
    claim(
        "C40",
        "h > 0 does not follow from class B",
        "u − u³/2 is B3 with h = −1/2",
        "classes",
        judges.at({"h of u - u^3/2": (-0.5, 1e-9), "cubic is B3": (1.0, 1e-9)}),
    ),
    claim("C41", "h⁽³⁾ = 6s₃ + 3h", "gap ≤ 1e-10", "classes", judges.bounded("hermite gap", 1e-10)),
    # theorems that no numbered claim covers
    claim(
        "T4e",
        "∂f/∂X_1 has σ(g) as its last factor",
        "g instead (E5)",
        "ansatz",
        judges.first_layer_drive,
    ),
    claim(
        "T5",
        "The output departs from linear at degree L + q − 1",
        "order within 0.1",
        "expansion",
        judges.output_order,
    ),
    claim(
        "T7",
        "On the balanced ray X_1² − X_L² − (2(q−1)/(q+1))λ's^(q+1) is invariant to leading order",
        "ratio 1 within 3 %",
        "expansion",
        judges.at({"tanh invariant ratio": (1.0, 0.03), "gelu invariant ratio": (1.0, 0.03)}),
    ),
    claim(
        "T12",
        "The shell estimate holds at every point of a shell",
        "−0.293 at its edges",
        "critical depth",
        judges.shell,
    ),
    claim("T17", "γ ≈ h α^(L−1) v_1ᵀW_L⋯W_1v_1 and ‖f‖ ≍ γ", "without h; ‖f‖ is larger", "signal", judges.path),
    claim(
        "T20",
        "At He initialisation r = 1 is Θ(1) and r = 2 is Θ(ln 1/ε)",
        "change ≤ 2 %; rate steady within 5 %",
        "corners",
        judges.corners,
    ),
)
