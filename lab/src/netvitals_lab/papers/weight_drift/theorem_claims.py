"""Claims on the theorems. A closed form stands if the Monte Carlo mean is within 4.5 standard errors everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netvitals_lab import Claims, Expected, Measured, Plot, Row, Series, above, below
from netvitals_lab.engine.judges import groups, some

Z = 4.5  # standard errors by which a mean may miss its expectation; chance exceeds it once in 150,000 times


def departure(row: Row) -> float:
    """(mean − expected) / standard error; a gap of rounding only is none."""
    gap = row["mean"] - row["expected"]
    if abs(gap) < 1e-12:  # some quantities are the same in every draw
        return 0.0
    return gap / row["stderr"] if row["stderr"] else float("inf")


def agreement(rows: Sequence[Row], **where: Any) -> Measured:
    """The largest |z| of the rows' means against what is expected of them."""
    distances = [abs(departure(row)) for row in some(rows, **where)]
    return Measured(max(distances), f"largest of {len(distances)} comparisons, in standard errors")


def scatter(rows: Sequence[Row]) -> Plot:
    """Monte Carlo mean with standard errors against the closed form."""
    chosen = some(rows, quantity="gradient", loss="mse")
    series = []
    for law, mine in groups(chosen, "law").items():
        series.append(
            Series(law, [r["expected"] for r in mine], [r["mean"] for r in mine], [2 * r["stderr"] for r in mine])
        )
    top = max(r["expected"] for r in chosen)
    series.append(Series("closed form", [0, top], [0, top], line=True, dashed=True))
    return Plot("closed form c_l a_i", "mean gradient ± 2 standard errors", series)


def gelu_curve(rows: Sequence[Row]) -> Plot:
    chosen = sorted(some(rows, quantity="gelu gradient"), key=lambda r: r["p"])
    closed = {r["p"]: r["expected"] for r in chosen}
    return Plot(
        "pre-activation p",
        "mean gradient ± 2 standard errors",
        [
            Series(
                "Monte Carlo", [r["p"] for r in chosen], [r["mean"] for r in chosen], [2 * r["stderr"] for r in chosen]
            ),
            Series("closed form", list(closed), list(closed.values()), line=True, dashed=True),
        ],
    )


STUDY = "weight-drift-theorems"
WITHIN = below(Z, f"|z| < {Z}")


claim = Claims("weight-drift", study=STUDY)


@claim("V1", WITHIN, uses={"check": "fixed activation"}, plot=scatter)
def squared_error(rows: Sequence[Row]) -> Measured:
    """Squared error: the mean gradient on unit i is c_l a_i, whatever the depth downstream and for Gaussian, uniform
    and Rademacher weights (D2, makes Theorem 1.2 exact)"""
    return agreement(rows, quantity="gradient", loss="mse")


@claim("V2-ce", WITHIN, uses={"check": "fixed activation", "law": "gaussian"})
def any_loss(rows: Sequence[Row]) -> Measured:
    """Cross-entropy, Gaussian weights: the mean gradient is a_i/‖a‖² · E⟨o, ∇ℓ⟩ at any depth (D4)"""
    return agreement(rows, quantity="any-loss gap", loss="ce")


@claim("V2-huber", WITHIN, uses={"check": "fixed activation", "law": "gaussian"})
def huber(rows: Sequence[Row]) -> Measured:
    """Huber loss, Gaussian weights: the same formula (D4 holds for any differentiable loss)"""
    return agreement(rows, quantity="any-loss gap", loss="huber")


@claim("V2-sign", "positive", uses={"check": "fixed activation", "law": ("uniform", "rademacher")})
def signs(rows: Sequence[Row]) -> Measured:
    """Cross-entropy and Huber, uniform and Rademacher weights: the push is still positive"""
    chosen = [r for r in some(rows, quantity="gradient") if r["loss"] in ("ce", "huber")]
    pushes = [r for r in some(rows, quantity="push") if r["loss"] in ("ce", "huber")]
    weakest, push = (min(r["mean"] / r["stderr"] for r in rs) for rs in (chosen, pushes))
    return Measured(
        push,
        f"weakest total push Σ a_i g_i in standard errors; weakest single unit {weakest:+.1f}",
        ok=weakest > -Z and push > Z,
    )


@claim("V2-gaussian", above(Z, f"|z| > {Z}"), uses={"check": "fixed activation", "law": ("uniform", "rademacher")})
def gaussian_needed(rows: Sequence[Row]) -> Measured:
    """The formula of D4 needs Gaussian weights: with others it fails for Huber"""
    worst = max(abs(departure(r)) for r in some(rows, quantity="any-loss gap", loss="huber"))
    return Measured(worst, "largest departure from the Gaussian formula, in standard errors")


@claim("V3", WITHIN, uses={"check": "fixed activation"})
def columns(rows: Sequence[Row]) -> Measured:
    """Columns of the downstream map: E⟨v_i, v_j⟩ = c_l if i = j, and exactly 0 else, for symmetric weights (D1; Theorem
    1.1 only says not negative)"""
    return agreement(rows, quantity="column product")


@claim("V4", WITHIN, uses={"check": "fixed activation", "law": "gaussian"})
def closed_form(rows: Sequence[Row]) -> Measured:
    """Cross-entropy: the mean gradient is σ_L² a_i/‖a‖² · E[‖h‖²(1 − ‖s‖²)] at any depth (D3)"""
    return agreement(rows, quantity="closed-form gap")


@claim("V5", WITHIN, uses={"check": "gelu"}, plot=gelu_curve)
def gelu(rows: Sequence[Row]) -> Measured:
    """GELU, squared error: the mean gradient is c_l φφ'(p), negative for mildly negative p (D2, D11)"""
    return agreement(rows, quantity="gelu gradient")


@claim("V6", Expected(1.0, tolerance=0.04), factor="loss", uses={"check": "weight gradient"})
def weights(rows: Sequence[Row]) -> Measured:
    """Mean gradient of weights after a positive activation, E_x of c_l a_i x_k under squared error and of D4 under
    cross-entropy: no covariance assumption is needed (D6)"""
    (row,) = some(rows, quantity="weight gradient")
    ok = abs(departure(row)) < Z and row["correlation"] > 0.999
    return Measured(
        row["mean"] / row["expected"],
        note=f"layer mean over closed form; entries correlate {row['correlation']:.4f}; one "
        f"initialisation alone has signal to noise {row['signal to noise']:.1f}",
        stderr=row["stderr"] / row["expected"],
        ok=ok,
    )


@claim("V7", Expected(0.0, tolerance=2e-8), uses={"check": "euler"})
def euler(rows: Sequence[Row]) -> Measured:
    """Σ p ∂ℓ/∂p = ⟨o, ∇ℓ⟩ per sample in every layer, at any time in training (D5)"""
    chosen = some(rows, quantity="euler", dtype="float64")
    return Measured(
        max(r["defect"] for r in chosen),
        "float64, largest error over samples, layers and steps",
        facts={
            "samples": chosen[0]["samples"],
            "layers": len(groups(chosen, "layer")),
            "steps": sorted(groups(chosen, "step")),
            "⟨o, ∇ℓ⟩ first, last": [chosen[0]["mean"], chosen[-1]["mean"]],
        },
    )


@claim("D7", "down, up, none", factor="pattern", uses={"check": "first step"})
def rule(rows: Sequence[Row]) -> Measured:
    """Sign rule on centred random data: at the first step hidden weights drift down behind ReLU, GELU, SiLU and
    −ReLU(−x), up where ReLU and −ReLU(−x) alternate, not behind tanh and identity; in the first layer never

    Every layer's drift has the predicted sign; where none is predicted it is within 4.5 standard errors of zero.
    """
    chosen = some(rows, quantity="first step")
    zs = {r["layer"]: r["mean"] / r["stderr"] if r["stderr"] else 0.0 for r in chosen}
    ok = all(abs(zs[r["layer"]]) < Z if r["sign"] == 0 else zs[r["layer"]] * r["sign"] > Z for r in chosen)
    hidden = [r for r in chosen if r["layer"] > 1]
    mean = sum(r["mean"] for r in hidden) / len(hidden)
    error = sum(r["stderr"] ** 2 for r in hidden) ** 0.5 / len(hidden)
    return Measured(
        mean,
        note="step of the mean weight per unit learning rate, hidden layers; by layer in "
        "standard errors: " + ", ".join(f"{z:+.1f}" for z in zs.values()),
        stderr=error,
        seeds=chosen[0]["inits"],
        ok=ok,
    )


@claim("D8", Expected(0.0, tolerance=1e-12), uses={"check": "batch norm"})
def batch_norm(rows: Sequence[Row]) -> Measured:
    """Train-mode BatchNorm after a linear layer makes Σ_batch ∂ℓ/∂p vanish"""
    (row,) = some(rows, quantity="batch norm")
    return Measured(
        row["with"],
        f"largest channel sum over Σ|g|; without the norm {row['without']:.2g}",
        ok=row["with"] < 1e-12 and row["without"] > 1e-3,
    )


@claim("D9", Expected(0.0, tolerance=1e-12), uses={"check": "readout mean"})
def readout(rows: Sequence[Row]) -> Measured:
    """Cross-entropy with SGD, with or without momentum, conserves the column means of the readout"""
    moved = {(r["loss"], r["optimizer"], r["momentum"]): r["moved"] for r in some(rows, quantity="readout mean")}
    kept = max(v for (loss, kind, _), v in moved.items() if (loss, kind) == ("ce", "sgd"))
    others = moved["ce", "adam", 0.0], moved["mse", "sgd", 0.0]
    return Measured(
        kept,
        f"largest move of a column mean; Adam moves it by {others[0]:.2g}, squared error by {others[1]:.2g}",
        ok=kept < 1e-12 and min(others) > 1e-6,
    )


@claim(
    "D11", "positive without drift", uses=lambda c: c["check"] == "first step" and c["pattern"] in ("tanh", "identity")
)
def sign_test_is_blind(rows: Sequence[Row]) -> Measured:
    """A positive gradient on positive pre-activations is no evidence of drift: tanh and identity show it too"""
    push = min(r["mean"] / r["stderr"] for r in some(rows, quantity="gradient where p > 0"))
    drift = max(abs(r["mean"]) / r["stderr"] for r in some(rows, quantity="first step"))
    return Measured(
        push,
        note="weakest gradient on positive units in standard errors, for tanh "
        f"and identity, whose weights do not drift (largest |z| {drift:.1f})",
        ok=push > Z and drift < Z,
    )
