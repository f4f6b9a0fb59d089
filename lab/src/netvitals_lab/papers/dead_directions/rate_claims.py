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
        topic_is(*topics),
        plot=rate_judges.picture,
    )


def check(
    number: str,
    statement: str,
    name: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    **more: Any,
) -> Claim:
    return claim(STUDY, number, statement, expected, judge, check_is(name), **more)


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
        ("ladder",),
        "G",
        "G_schur",
    ),
    _rate("C7", "λ_min(A_ℓ) ~ t^{2(ℓ−1)}", ("ladder",), "A", "A_schur"),
    _rate("C8", "λ_min(A_ℓ)·λ_min(G_ℓ) ~ t^{2(L−1)} in every layer", ("ladder",), "product"),
    _rate("C9", "σ_min(X_ℓ) ~ √N t^ℓ", ("ladder",), "stream"),
    _rate("C10", "without noise every rate of G is 2L higher", ("noise-free",), "G"),
    check(
        "C11",
        "bᵀB⁻¹b/D = (h−1)/(π(h−2+π)) for ReLU",
        "schur constant",
        Expected(0.0, 0.01),
        rate_judges.schur,
    ),
    check(
        "C12",
        "the lift g_min a_minᵀ is the bottom eigenvector of A ⊗ G",
        "lift",
        Expected(1.0, 1e-8),
        rate_judges.lift,
    ),
    check(
        "C13",
        "a single-layer lift has K ≡ 0; the joint mode of L layers has order L",
        "lift",
        Expected(direction="gauge; k = L"),
        rate_judges.joint,
    ),
    _rate(
        "C14",
        "block rates of MLPs add",
        ("pair",),
        judge=exponents(kinds="MM"),
    ),
    _rate(
        "C15",
        "with skips the exponent of G is twice the cheapest way to the output",
        ("skips",),
        "G",
        "stream",
    ),
    _rate("C16", "a skip over every layer leaves no rate", ("per-layer skips",), "G", "stream"),
    _rate("C17", "under cross-entropy the dead entry keeps the ladder", ("cross-entropy",), "G"),
    check(
        "C18",
        "the kernel of the head's G is span(1)",
        "softmax head",
        Expected(1.0, 1e-9),
        rate_judges.head,
    ),
    check(
        "C19",
        "per sample ‖p − e_y‖² is ε² and tr H is ε, up to factors of two",
        "memorisation",
        Expected(direction="bounds hold, contrast of order ε"),
        rate_judges.memorised,
    ),
    check(
        "C20",
        "Cov(LN(X))·γ⁻¹ = 0 exactly",
        "norm kernels",
        Expected(1.0, 1e-3),
        rate_judges.kernel("layer"),
    ),
    check(
        "C21",
        "RMSNorm has no such kernel",
        "norm kernels",
        Expected(direction="fails"),
        rate_judges.kernel("rms"),
    ),
    _rate(
        "C22",
        "LayerNorm resets: the exponent is twice the distance to the next norm above",
        ("layer norm",),
        "G",
    ),
    claim(
        STUDY,
        "C22-relu",
        "above a LayerNorm a ReLU closes the dead channel: entries are exactly zero",
        Expected(direction="identically zero"),
        rate_judges.closed,
        topic_is("layer norm closes ReLU"),
    ),
    check(
        "C23",
        "F(t) = 4[σ² + κ₂t² + κ₄t⁴] behind a LayerNorm",
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
        _attention,
    ),
    claim(
        STUDY,
        "C25",
        "R_V − R_O = 2 in any composition",
        Expected(0.0, SLOPE),
        rate_judges.vo,
        topic_is("attention", "attention, reset"),
    ),
    _rate(
        "C26",
        "attention chains: R_O = min(4k, 4p+8), R_V = R_O + 2, R_Q = R_K = 4p + 2",
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
        topic_is("swiglu"),
    ),
    claim(
        STUDY,
        "C27-gates",
        "GeGLU, ReGLU and bilinear blocks have the order of SwiGLU; a sigmoid gate, open at zero, has 2n",
        Expected(0.0, 0.15),
        rate_judges.swiglu,
        topic_is("gated"),
    ),
    _rate("X18", "heads that share a dead direction read as one head does, 72 combinations", ("heads",), "G"),
    _rate("C28", "biases keep the ladder of G", ("biases",), "G"),
    claim(
        STUDY,
        "C28-alone",
        "a perturbation of biases alone has rate 0",
        GAP,
        rate_judges.biases_alone,
        topic_is("biases alone"),
    ),
    _rate("C29", "rectangular widths keep the dead entry's ladder", ("rectangular",), "G"),
    _rate(
        "C29-losses",
        "rectangular nets have the same ladder under squared error and cross-entropy, three activations",
        ("rectangular", "rectangular, cross-entropy"),
        "G",
    ),
    _rate("C30", "several directions: 2·Σ of the exponents above", ("several directions",), "G"),
    claim(
        STUDY,
        "C31",
        "a rotation of linear chains changes nothing",
        GAP,
        rate_judges.linear_rotation,
        topic_is("rotation"),
    ),
    claim(
        STUDY,
        "N1",
        "a rotation of nonlinear chains loses the ladder",
        Expected(direction="slope of layer 1 falls from 6"),
        rate_judges.rotation,
        topic_is("rotation"),
    ),
    check(
        "N1-crossover",
        "the canonical slope survives down to t_× ~ s^{1/K}",
        "crossover",
        Expected(0.0, 0.06),
        rate_judges.crossover,
    ),
    check(
        "C32",
        "on the quotient the scalar chain has λ = L t^{2(L−1)}",
        "quotient",
        Expected(0.0, 1e-6),
        rate_judges.quotient,
    ),
    check(
        "C44",
        "two layers: λ_min(G_1) = φ'(0)²σ²t², ½σ²t² for ReLU",
        "two layers",
        Expected(0.0, 0.05),
        rate_judges.two_layers,
    ),
    check(
        "X3",
        "off-diagonals of G are sampling noise",
        "off-diagonals",
        Expected(direction="below 5/√N"),
        rate_judges.off_verdict,
    ),
    _rate(
        "X5",
        "superposition: 2 and 0 with noise, 6 and 4 without",
        ("superposition", "superposition, noisy"),
        "G",
    ),
    _rate("X8", "autoencoder with a dead unit: 2 and 0 for the identity target", ("autoencoder",), "G"),
    _rate("X20", "one block in a pre-norm stack reads as without norms", ("pre-norm",), "G"),
    check(
        "X31-stream",
        "a trained transformer keeps the weakest active direction of its stream",
        "trained networks",
        Expected(direction="ratio above 0.01"),
        rate_judges.trained("stream"),
        plot=rate_judges.profile,
    ),
    check(
        "X31-schur",
        "training makes units redundant: the Schur ratio falls below its value at the start",
        "trained networks",
        Expected(direction="falls"),
        rate_judges.trained("schur"),
    ),
    check(
        "X31-attention",
        "R_V − R_O = 2 on trained attention",
        "trained networks",
        Expected(0.0, SLOPE),
        rate_judges.trained("value minus output"),
    ),
)
