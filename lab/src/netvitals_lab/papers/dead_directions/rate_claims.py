"""Claims about K-FAC rates: C6–C32, C44, N1, and the errata of the printed laws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from netvitals_lab import Claim, Config, Expected, Row, Verdict
from netvitals_lab.papers.dead_directions import rate_judges
from netvitals_lab.papers.dead_directions._judging import SLOPE, check_is, claim, exponents, topic_is

STUDY = "dead-directions-rates"
GAP = Expected(0.0, tolerance=SLOPE)


def _rate(
    number: str,
    statement: str,
    section: str,
    topics: tuple[str, ...],
    *readouts: str,
    judge: Callable[[Sequence[Row]], Verdict] | None = None,
) -> Claim:
    return claim(
        STUDY,
        number,
        statement,
        GAP,
        judge or exponents(*readouts),
        section,
        topic_is(*topics),
        plot=rate_judges.picture,
    )


def check(
    number: str,
    statement: str,
    section: str,
    name: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    **more: Any,
) -> Claim:
    return claim(STUDY, number, statement, expected, judge, section, check_is(name), **more)


def _attention(config: Config) -> bool:
    """One attention block alone, and one above an MLP, whose middle is the input of the attention block."""
    options = config.get("options", {})
    return (topic_is("attention")(config) and options["blocks"] == 1) or (
        topic_is("pair")(config) and options["kinds"] == "MA"
    )


CLAIMS = (
    _rate(
        "C6",
        "λ_min(G_ℓ) ~ t^{2(L−ℓ)} in a six-layer chain, four activations",
        "Theorem 21, Table 1",
        ("ladder",),
        "G",
        "G_schur",
    ),
    _rate("C7", "λ_min(A_ℓ) ~ t^{2(ℓ−1)}", "Theorem 24, Table 2", ("ladder",), "A", "A_schur"),
    _rate("C8", "λ_min(A_ℓ)·λ_min(G_ℓ) ~ t^{2(L−1)} in every layer", "Corollary 25", ("ladder",), "product"),
    _rate("C9", "σ_min(X_ℓ) ~ √N t^ℓ", "Corollary 26", ("ladder",), "stream"),
    _rate("C10", "without noise every rate of G is 2L higher", "Remark 23", ("noise-free",), "G"),
    check(
        "C11",
        "bᵀB⁻¹b/D = (h−1)/(π(h−2+π)) for ReLU",
        "Lemma 18",
        "schur constant",
        Expected(0.0, 0.01),
        rate_judges.schur,
    ),
    check(
        "C12",
        "the lift g_min a_minᵀ is the bottom eigenvector of A ⊗ G",
        "Corollary 28",
        "lift",
        Expected(1.0, 1e-8),
        rate_judges.lift,
    ),
    check(
        "C13",
        "a single-layer lift has K ≡ 0; the joint mode of L layers has order L",
        "Corollary 28",
        "lift",
        Expected(direction="gauge; k = L"),
        rate_judges.joint,
    ),
    _rate(
        "C14",
        "block rates of MLPs add",
        "Theorem 30",
        ("pair",),
        judge=exponents(kinds="MM"),
    ),
    _rate(
        "C15",
        "with skips the exponent of G is twice the cheapest way to the output",
        "Theorem 43, Corollary 48",
        ("skips",),
        "G",
        "stream",
    ),
    _rate("C16", "a skip over every layer leaves no rate", "Corollary 47", ("per-layer skips",), "G", "stream"),
    _rate("C17", "under cross-entropy the dead entry keeps the ladder", "Theorem 36", ("cross-entropy",), "G"),
    check(
        "C18",
        "the kernel of the head's G is span(1)",
        "Lemma 33",
        "softmax head",
        Expected(1.0, 1e-9),
        rate_judges.head,
    ),
    check(
        "C19",
        "per sample ‖p − e_y‖² is ε² and tr H is ε, up to factors of two",
        "Corollary 39",
        "memorisation",
        Expected(direction="bounds hold, contrast of order ε"),
        rate_judges.memorised,
    ),
    check(
        "C20",
        "Cov(LN(X))·γ⁻¹ = 0 exactly",
        "Proposition 63",
        "norm kernels",
        Expected(1.0, 1e-3),
        rate_judges.kernel("layer"),
    ),
    check(
        "C21",
        "RMSNorm has no such kernel",
        "Proposition 63",
        "norm kernels",
        Expected(direction="fails"),
        rate_judges.kernel("rms"),
    ),
    _rate(
        "C22",
        "LayerNorm resets: the exponent is twice the distance to the next norm above",
        "Theorem 60, corrected",
        ("layer norm",),
        "G",
    ),
    claim(
        STUDY,
        "C22-relu",
        "above a LayerNorm a ReLU closes the dead channel: entries are exactly zero",
        Expected(direction="identically zero"),
        rate_judges.closed,
        "Theorem 60, v2",
        topic_is("layer norm closes ReLU"),
    ),
    check(
        "C23",
        "F(t) = 4[σ² + κ₂t² + κ₄t⁴] behind a LayerNorm",
        "Theorem 122",
        "finite t",
        Expected(0.0, 4.0),
        rate_judges.finite_t,
    ),
    claim(
        STUDY,
        "C24",
        "single-head attention: forward and backward order 2",
        Expected(2.0, SLOPE),
        rate_judges.single,
        "Theorems 66, 67",
        _attention,
    ),
    claim(
        STUDY,
        "C25",
        "R_V − R_O = 2 in any composition",
        Expected(0.0, SLOPE),
        rate_judges.vo,
        "Proposition 54",
        topic_is("attention", "attention, reset"),
    ),
    _rate(
        "C26",
        "attention chains: R_O = min(4k, 4p+8), R_V = R_O + 2, R_Q = R_K = 4p + 2",
        "Proposition 69, corrected",
        ("attention", "attention, reset"),
        "G",
        "forward",
    ),
    claim(
        STUDY,
        "C27",
        "n SwiGLU blocks have forward order 3(2ⁿ−1), 3 for one",
        Expected(0.0, 0.15),
        rate_judges.swiglu,
        "Proposition 114, corrected",
        topic_is("swiglu"),
    ),
    claim(
        STUDY,
        "C27-gates",
        "GeGLU, ReGLU and bilinear blocks have the order of SwiGLU; a sigmoid gate, open at zero, has 2n",
        Expected(0.0, 0.15),
        rate_judges.swiglu,
        "beyond the paper: other gates of Proposition 114",
        topic_is("gated"),
    ),
    _rate("X18", "heads that share a dead direction read as one head does, 72 combinations", "X18", ("heads",), "G"),
    _rate("C28", "biases keep the ladder of G", "Theorem 112", ("biases",), "G"),
    claim(
        STUDY,
        "C28-alone",
        "a perturbation of biases alone has rate 0",
        GAP,
        rate_judges.biases_alone,
        "Theorem 112",
        topic_is("biases alone"),
    ),
    _rate("C29", "rectangular widths keep the dead entry's ladder", "Theorem 103", ("rectangular",), "G"),
    _rate(
        "C29-losses",
        "rectangular nets have the same ladder under squared error and cross-entropy, three activations",
        "Table 4",
        ("rectangular", "rectangular, cross-entropy"),
        "G",
    ),
    _rate("C30", "several directions: 2·Σ of the exponents above", "Theorem 106", ("several directions",), "G"),
    claim(
        STUDY,
        "C31",
        "a rotation of linear chains changes nothing",
        GAP,
        rate_judges.linear_rotation,
        "Proposition 118",
        topic_is("rotation"),
    ),
    claim(
        STUDY,
        "N1",
        "a rotation of nonlinear chains loses the ladder",
        Expected(direction="slope of layer 1 falls from 6"),
        rate_judges.rotation,
        "Proposition 119",
        topic_is("rotation"),
    ),
    check(
        "N1-crossover",
        "the canonical slope survives down to t_× ~ s^{1/K}",
        "Corollary 120, v2",
        "crossover",
        Expected(0.0, 0.06),
        rate_judges.crossover,
    ),
    check(
        "C32",
        "on the quotient the scalar chain has λ = L t^{2(L−1)}",
        "Corollary 27",
        "quotient",
        Expected(0.0, 1e-6),
        rate_judges.quotient,
    ),
    check(
        "C44",
        "two layers: λ_min(G_1) = φ'(0)²σ²t², ½σ²t² for ReLU",
        "§9.5, Table 5",
        "two layers",
        Expected(0.0, 0.05),
        rate_judges.two_layers,
    ),
    check(
        "X3",
        "off-diagonals of G are sampling noise",
        "X3",
        "off-diagonals",
        Expected(direction="below 5/√N"),
        rate_judges.off_verdict,
    ),
    _rate(
        "X5",
        "superposition: 2 and 0 with noise, 6 and 4 without",
        "§7.2",
        ("superposition", "superposition, noisy"),
        "G",
    ),
    _rate("X8", "autoencoder with a dead unit: 2 and 0 for the identity target", "Table 7", ("autoencoder",), "G"),
    _rate("X20", "one block in a pre-norm stack reads as without norms", "Remark 62", ("pre-norm",), "G"),
    check(
        "X31-stream",
        "a trained transformer keeps the weakest active direction of its stream",
        "Corollary 58",
        "trained networks",
        Expected(direction="ratio above 0.01"),
        rate_judges.trained("stream"),
        plot=rate_judges.profile,
    ),
    check(
        "X31-schur",
        "training makes units redundant: the Schur ratio falls below its value at the start",
        "X31",
        "trained networks",
        Expected(direction="falls"),
        rate_judges.trained("schur"),
    ),
    check(
        "X31-attention",
        "R_V − R_O = 2 on trained attention",
        "Proposition 54",
        "trained networks",
        Expected(0.0, SLOPE),
        rate_judges.trained("value minus output"),
    ),
)
