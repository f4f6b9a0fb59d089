"""Claims on the theorems. A closed form stands if the Monte Carlo mean is within 4.5 standard errors everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from netvitals_lab import Claim, Config, Expected, Plot, Row, Verdict
from netvitals_lab.engine.judges import matches
from netvitals_lab.engine.judges.combinators import Z
from netvitals_lab.papers.weight_drift import theorem_judges
from netvitals_lab.papers.weight_drift._rules import PATTERNS

STUDY = "weight-drift-theorems"
CLOSED_CE = {0: 0.1270, 2: 0.0339, 3: 0.1694, 5: 0.0085, 6: 0.0762}
CLOSED_GELU = {
    2.0: 1.3257,
    1.0: 0.5697,
    0.5: 0.1875,
    0.2: 0.0476,
    -0.2: -0.0180,
    -0.5: -0.0128,
    -1.0: 0.0083,
    -2.0: 0.0024,
}
WITHIN = Expected(direction=f"|z| < {Z}")


def _uses(check: str, **where: Any) -> Callable[[Config], bool]:
    return matches(check=check, **where)


def _claim(
    name: str,
    statement: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    section: str,
    uses: Callable[[Config], bool],
    plot: Callable[[Sequence[Row]], Plot] | None = None,
) -> Claim:
    return Claim(
        id=f"weight-drift/{name}",
        study=STUDY,
        statement=statement,
        expected=expected,
        judge=judge,
        section=section,
        uses=uses,
        plot=plot,
    )


def _claims() -> Iterator[Claim]:
    fixed = _uses("fixed activation")
    gaussian = _uses("fixed activation", law="gaussian")
    others: Callable[[Config], bool] = lambda c: fixed(c) and c["law"] != "gaussian"
    yield _claim(
        "V1",
        "Squared error: the mean gradient on unit i is c_l a_i, whatever the depth downstream and for "
        "Gaussian, uniform and Rademacher weights (D2, makes Theorem 1.2 exact)",
        WITHIN,
        theorem_judges.agreement(quantity="gradient", loss="mse"),
        "Theorem 1.2",
        fixed,
        theorem_judges.scatter,
    )
    yield _claim(
        "V1-gain",
        "c_l = d_out/d_l = 0.625 at every depth with He hidden layers (D1)",
        Expected(0.625, tolerance=0.005),
        theorem_judges.gain,
        "Theorem 1.1",
        fixed,
    )
    yield _claim(
        "V2-ce",
        "Cross-entropy, Gaussian weights: the mean gradient is a_i/‖a‖² · E⟨o, ∇ℓ⟩ at any depth (D4)",
        WITHIN,
        theorem_judges.agreement(quantity="any-loss gap", loss="ce"),
        "cross-entropy case",
        gaussian,
    )
    yield _claim(
        "V2-huber",
        "Huber loss, Gaussian weights: the same formula (D4 holds for any differentiable loss)",
        WITHIN,
        theorem_judges.agreement(quantity="any-loss gap", loss="huber"),
        "beyond the paper",
        gaussian,
    )
    yield _claim(
        "V2-sign",
        "Cross-entropy and Huber, uniform and Rademacher weights: the push is still positive",
        Expected(direction="positive"),
        theorem_judges.signs,
        "cross-entropy case",
        others,
    )
    yield _claim(
        "V2-gaussian",
        "The formula of D4 needs Gaussian weights: with others it fails for Huber",
        Expected(direction=f"|z| > {Z}"),
        theorem_judges.gaussian_needed,
        "beyond the paper",
        others,
    )
    yield _claim(
        "V3",
        "Columns of the downstream map: E⟨v_i, v_j⟩ = c_l if i = j, and exactly 0 else, for symmetric "
        "weights (D1; Theorem 1.1 only says not negative)",
        WITHIN,
        theorem_judges.agreement(quantity="column product"),
        "Theorem 1.1",
        fixed,
    )
    yield _claim(
        "V4",
        "Cross-entropy: the mean gradient is σ_L² a_i/‖a‖² · E[‖h‖²(1 − ‖s‖²)] at any depth (D3)",
        WITHIN,
        theorem_judges.agreement(quantity="closed-form gap"),
        "cross-entropy case",
        gaussian,
    )
    yield _claim(
        "V4-values",
        "The closed form with only the readout downstream: 0.1270, 0.0339, 0.1694, 0.0085, 0.0762",
        Expected(0.0, tolerance=1e-4),
        theorem_judges.reference("cross-entropy closed form", "unit", CLOSED_CE, "mean", 1e-4),
        "cross-entropy case",
        _uses("doubt"),
    )
    yield _claim(
        "V5",
        "GELU, squared error: the mean gradient is c_l φφ'(p), negative for mildly negative p (D2, D11)",
        WITHIN,
        theorem_judges.agreement(quantity="gelu gradient"),
        "smooth activations",
        _uses("gelu"),
        theorem_judges.gelu_curve,
    )
    yield _claim(
        "V5-values",
        "The closed form at p = ±2, ±1, ±0.5, ±0.2",
        Expected(0.0, tolerance=1e-4),
        theorem_judges.reference("gelu gradient", "p", CLOSED_GELU, "expected", 1e-4),
        "smooth activations",
        _uses("gelu"),
    )
    for loss, words in (("mse", "squared error, c_l E_x[a_i x_k]"), ("ce", "cross-entropy, D4 inside E_x")):
        yield _claim(
            f"V6-{loss}",
            f"Mean gradient of a weight matrix after a positive activation ({words}): no "
            "covariance assumption is needed (D6)",
            Expected(1.0, tolerance=0.04),
            theorem_judges.weights_verdict(loss),
            "Remark A.2",
            _uses("weight gradient"),
        )
    yield _claim(
        "V7",
        "Σ p ∂ℓ/∂p = ⟨o, ∇ℓ⟩ per sample in every layer, at any time in training (D5)",
        Expected(0.0, tolerance=2e-8),
        theorem_judges.euler,
        "beyond the paper",
        _uses("euler"),
    )
    yield _claim(
        "V7-float32",
        "The same in float32: the error per sample of a mean-reduced loss stays below 2e-8",
        Expected(0.0, tolerance=2e-8),
        theorem_judges.euler_single,
        "beyond the paper",
        _uses("euler"),
    )
    yield _claim(
        "V8",
        "Counting the four outcomes of D10",
        Expected(direction="-9/16, -9/7, 15/8"),
        theorem_judges.counted,
        "Theorem 1.1",
        _uses("enumeration"),
    )
    yield _claim(
        "T1.1",
        "Independent zero-mean weights of finite variance suffice for E⟨v_i, v_j⟩ ≥ 0",
        Expected(direction="not negative"),
        theorem_judges.theorem_1_1,
        "Theorem 1.1",
        _uses("enumeration"),
    )
    for name in PATTERNS:
        words = _DRIFT.get(name, "weights drift down")
        yield _claim(
            f"D7-{name}",
            f"Sign rule, {name} network on centred random data: {words} in hidden layers, and "
            "the first layer does not drift",
            Expected(direction=words),
            theorem_judges.rule,
            "drift across activations",
            _uses("first step", pattern=name),
        )
    yield _claim(
        "D8",
        "Train-mode BatchNorm after a linear layer makes Σ_batch ∂ℓ/∂p vanish",
        Expected(0.0, tolerance=1e-12),
        theorem_judges.batch_norm,
        "beyond the paper",
        _uses("batch norm"),
    )
    yield _claim(
        "D9",
        "Cross-entropy with SGD, with or without momentum, conserves the column means of the readout",
        Expected(0.0, tolerance=1e-12),
        theorem_judges.readout,
        "beyond the paper",
        _uses("readout mean"),
    )
    yield _claim(
        "D11",
        "A positive gradient on positive pre-activations is no evidence of drift: tanh and identity show it too",
        Expected(direction="positive without drift"),
        theorem_judges.sign_test_is_blind,
        "Theorem 1.2",
        lambda c: c["check"] == "first step" and c["pattern"] in ("tanh", "identity"),
    )


_DRIFT = {"tanh": "no drift", "identity": "no drift", "alternating": "weights drift up"}
CLAIMS = tuple(_claims())
