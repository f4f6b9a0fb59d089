"""What is printed about K-FAC rates and is wrong: each claim is the printed law, with the corrected one beside it."""

from __future__ import annotations

from netvitals_lab import Expected
from netvitals_lab.papers.dead_directions import rate_judges
from netvitals_lab.papers.dead_directions._judging import SLOPE, claim, topic_is
from netvitals_lab.papers.dead_directions.rate_claims import GAP, STUDY, check

CLAIMS = (
    claim(
        STUDY,
        "E1",
        "printed: R_O = 4·min(k, 2)",
        Expected(0.0, SLOPE),
        rate_judges.saturation,
        topic_is("attention"),
    ),
    claim(
        STUDY,
        "E2",
        "printed: SwiGLU blocks add, order 3n",
        Expected(direction="3n"),
        rate_judges.swiglu_printed,
        topic_is("swiglu"),
    ),
    check(
        "E3",
        "printed: under cross-entropy λ_min(G_ℓ) ~ t^{2(L−ℓ)}",
        "softmax head",
        Expected(direction="positive"),
        rate_judges.shift_kernel,
    ),
    claim(
        STUDY,
        "E8",
        "printed: a bracket for LayerNorm's exponent",
        GAP,
        rate_judges.bracket,
        topic_is("layer norm"),
    ),
    claim(
        STUDY,
        "C22-rms",
        "printed: RMSNorm leaves the rates of a chain without norms, in any window",
        Expected(0.0, SLOPE),
        rate_judges.rms_printed,
        topic_is("rms norm"),
    ),
    check(
        "E9",
        "printed: κ₄ is ((d−1)/d)²·E[1/σ₀²]",
        "finite t",
        Expected(direction="κ₄'"),
        rate_judges.printed_kappa,
    ),
    claim(
        STUDY,
        "X15",
        "printed: memorisation takes the ladder from the empirical Fisher",
        Expected(direction="collapses"),
        rate_judges.contrast_verdict,
        topic_is("memorised"),
    ),
    claim(
        STUDY,
        "X17",
        "printed: block pairs of attention and MLP add up to (8, 4, 0)",
        Expected(direction="8"),
        rate_judges.additive,
        topic_is("pair"),
    ),
)
