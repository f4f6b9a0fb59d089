"""Claims on the theorems. A closed form stands if the Monte Carlo mean is within 4.5 standard errors everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from netvitals_lab import Claim, Config, Expected, Plot, Row, Verdict
from netvitals_lab.engine.judges import by_factor, matches
from netvitals_lab.engine.judges.combinators import Z
from netvitals_lab.papers.weight_drift import theorem_judges

STUDY = "weight-drift-theorems"
WITHIN = Expected(direction=f"|z| < {Z}")


def _uses(check: str, **where: Any) -> Callable[[Config], bool]:
    return matches(check=check, **where)


def _claim(
    name: str,
    statement: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    uses: Callable[[Config], bool],
    plot: Callable[[Sequence[Row]], Plot] | None = None,
) -> Claim:
    return Claim(
        id=f"weight-drift/{name}",
        study=STUDY,
        statement=statement,
        expected=expected,
        judge=judge,
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
        fixed,
        theorem_judges.scatter,
    )
    yield _claim(
        "V2-ce",
        "Cross-entropy, Gaussian weights: the mean gradient is a_i/‖a‖² · E⟨o, ∇ℓ⟩ at any depth (D4)",
        WITHIN,
        theorem_judges.agreement(quantity="any-loss gap", loss="ce"),
        gaussian,
    )
    yield _claim(
        "V2-huber",
        "Huber loss, Gaussian weights: the same formula (D4 holds for any differentiable loss)",
        WITHIN,
        theorem_judges.agreement(quantity="any-loss gap", loss="huber"),
        gaussian,
    )
    yield _claim(
        "V2-sign",
        "Cross-entropy and Huber, uniform and Rademacher weights: the push is still positive",
        Expected(direction="positive"),
        theorem_judges.signs,
        others,
    )
    yield _claim(
        "V2-gaussian",
        "The formula of D4 needs Gaussian weights: with others it fails for Huber",
        Expected(direction=f"|z| > {Z}"),
        theorem_judges.gaussian_needed,
        others,
    )
    yield _claim(
        "V3",
        "Columns of the downstream map: E⟨v_i, v_j⟩ = c_l if i = j, and exactly 0 else, for symmetric "
        "weights (D1; Theorem 1.1 only says not negative)",
        WITHIN,
        theorem_judges.agreement(quantity="column product"),
        fixed,
    )
    yield _claim(
        "V4",
        "Cross-entropy: the mean gradient is σ_L² a_i/‖a‖² · E[‖h‖²(1 − ‖s‖²)] at any depth (D3)",
        WITHIN,
        theorem_judges.agreement(quantity="closed-form gap"),
        gaussian,
    )
    yield _claim(
        "V5",
        "GELU, squared error: the mean gradient is c_l φφ'(p), negative for mildly negative p (D2, D11)",
        WITHIN,
        theorem_judges.agreement(quantity="gelu gradient"),
        _uses("gelu"),
        theorem_judges.gelu_curve,
    )
    yield _claim(
        "V6",
        "Mean gradient of weights after a positive activation, E_x of c_l a_i x_k under squared error and of D4 "
        "under cross-entropy: no covariance assumption is needed (D6)",
        Expected(1.0, tolerance=0.04),
        by_factor(theorem_judges.weights_verdict, "loss"),
        _uses("weight gradient"),
    )
    yield _claim(
        "V7",
        "Σ p ∂ℓ/∂p = ⟨o, ∇ℓ⟩ per sample in every layer, at any time in training (D5)",
        Expected(0.0, tolerance=2e-8),
        theorem_judges.euler,
        _uses("euler"),
    )
    yield _claim(
        "D7",
        "Sign rule on centred random data: at the first step hidden weights drift down behind ReLU, GELU, SiLU and "
        "−ReLU(−x), up where ReLU and −ReLU(−x) alternate, not behind tanh and identity; in the first layer never",
        Expected(direction="down, up, none"),
        by_factor(theorem_judges.rule, "pattern"),
        _uses("first step"),
    )
    yield _claim(
        "D8",
        "Train-mode BatchNorm after a linear layer makes Σ_batch ∂ℓ/∂p vanish",
        Expected(0.0, tolerance=1e-12),
        theorem_judges.batch_norm,
        _uses("batch norm"),
    )
    yield _claim(
        "D9",
        "Cross-entropy with SGD, with or without momentum, conserves the column means of the readout",
        Expected(0.0, tolerance=1e-12),
        theorem_judges.readout,
        _uses("readout mean"),
    )
    yield _claim(
        "D11",
        "A positive gradient on positive pre-activations is no evidence of drift: tanh and identity show it too",
        Expected(direction="positive without drift"),
        theorem_judges.sign_test_is_blind,
        lambda c: c["check"] == "first step" and c["pattern"] in ("tanh", "identity"),
    )


CLAIMS = tuple(_claims())
