"""Claims on the theorems. A closed form stands if the Monte Carlo mean is within 4.5 standard errors everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from netvitals.lab.engine.judges import agree, matches, some
from netvitals.lab.engine.judges.combinators import Z, departure
from netvitals.lab.studies import Claim, Config, Expected, Plot, Row, Series, Verdict, decide, erratum, fails
from netvitals.lab.studies.weight_drift._rules import PATTERNS

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


def _agreement(**where: Any) -> Callable[[Sequence[Row]], Verdict]:
    """Holds if every row meets its expectation; measured is the largest |z|."""

    return lambda rows: agree(some(rows, **where))


def _claim(
    name: str,
    statement: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    section: str,
    uses: Callable[[Config], bool],
    plot: Callable[[Sequence[Row]], Plot] | None = None,
) -> Claim:
    return Claim(f"weight-drift/{name}", STUDY, statement, expected, judge, section=section, uses=uses, plot=plot)


def _signs(rows: Sequence[Row]) -> Verdict:
    chosen = [r for r in some(rows, quantity="gradient") if r["loss"] in ("ce", "huber")]
    pushes = [r for r in some(rows, quantity="push") if r["loss"] in ("ce", "huber")]
    weakest, push = (min(r["mean"] / r["stderr"] for r in rs) for rs in (chosen, pushes))
    return decide(
        weakest > -Z and push > Z,
        push,
        note=f"weakest total push Σ a_i g_i in standard errors; weakest single unit {weakest:+.1f}",
    )


def _gaussian_needed(rows: Sequence[Row]) -> Verdict:
    worst = max(abs(departure(r)) for r in some(rows, quantity="any-loss gap", loss="huber"))
    return decide(worst > Z, worst, note="largest departure from the Gaussian formula, in standard errors")


def _gain(rows: Sequence[Row]) -> Verdict:
    """Σ a_i E[g_i] / ‖a‖² = c_l, pooled over the twelve cases with weights 1/se²."""
    rows = some(rows, quantity="push", loss="mse")
    power = rows[0]["expected"] / 0.625
    weights = [1 / r["stderr"] ** 2 for r in rows]
    value = sum(w * r["mean"] for w, r in zip(weights, rows)) / sum(weights) / power
    error = sum(weights) ** -0.5 / power
    return decide(abs(value - 0.625) < Z * error, value, error)


def _reference(
    quantity: str, key: str, known: dict[Any, float], column: str, tolerance: float
) -> Callable[[Sequence[Row]], Verdict]:
    def judge(rows: Sequence[Row]) -> Verdict:
        values = {r[key]: r[column] for r in some(rows, quantity=quantity)}
        worst = max(abs(values[k] - v) for k, v in known.items())
        return decide(worst <= tolerance, worst, note="largest gap to the reference values")

    return judge


def _weights(loss: str) -> Callable[[Sequence[Row]], Verdict]:
    def judge(rows: Sequence[Row]) -> Verdict:
        (row,) = some(rows, quantity="weight gradient", loss=loss)
        ok = abs(departure(row)) < Z and row["correlation"] > 0.999
        return decide(
            ok,
            row["mean"] / row["expected"],
            row["stderr"] / row["expected"],
            note=f"layer mean over closed form; entries correlate {row['correlation']:.4f}; one "
            f"initialisation alone has signal to noise {row['signal to noise']:.1f}",
        )

    return judge


def _euler(rows: Sequence[Row]) -> Verdict:
    chosen = some(rows, quantity="euler", dtype="float64")
    worst = max(r["defect"] for r in chosen)
    steps = sorted({r["step"] for r in chosen})
    return decide(
        worst <= 2e-8,
        worst,
        note=f"float64, largest error over {chosen[0]['samples']} samples, "
        f"{len({r['layer'] for r in chosen})} layers and {len(steps)} steps up to {steps[-1]}; ⟨o, ∇ℓ⟩ went "
        f"from {chosen[0]['mean']:+.3f} to {chosen[-1]['mean']:+.3f}",
    )


def _euler_single(rows: Sequence[Row]) -> Verdict:
    worst = max(some(rows, quantity="euler", dtype="float32"), key=lambda r: r["defect"])
    return decide(
        worst["defect"] <= 2e-8,
        worst["defect"],
        note=f"at step {worst['step']}; rounding, "
        f"{worst['relative']:.1g} of the largest |⟨o, ∇ℓ⟩| in a batch of {worst['samples']}",
    )


def _theorem_1_1(rows: Sequence[Row]) -> Verdict:
    skewed = some(rows, law="skewed", activation=[1, 1])[0]
    symmetric = [r for r in rows if r["law"] != "skewed" and r["ties"] == 0]
    if skewed["inner"] >= 0:
        return decide(True, skewed["inner"], note="no counterexample was found")
    if any(r["inner"] != 0 for r in symmetric) or not symmetric:
        return fails(skewed["inner"], note="the corrected statement, zero for symmetric weights, fails too")
    return erratum(
        skewed["inner"],
        note="zero mean is not enough: w = 3 or −1 with chances ¼ and ¾ gives "
        f"E[1(z>0) w₁w₂] = {skewed['exact']} < 0 ({skewed['given alive']} given survival); for weights "
        "symmetric about zero it is exactly 0, as counting confirms",
    )


def _counted(rows: Sequence[Row]) -> Verdict:
    row = some(rows, law="skewed", activation=[1, 1])[0]
    got = (row["exact"], row["given alive"], row["push"])
    return decide(
        got == ("-9/16", "-9/7", "15/8"), ", ".join(got), note="E[1(z>0) w₁w₂], the same given survival, E[w₁ relu(z)]"
    )


def _rule(rows: Sequence[Row]) -> Verdict:
    """Every layer's drift has the predicted sign; where none is predicted it is within 4.5 standard errors of zero."""
    chosen = some(rows, quantity="first step")
    zs = {r["layer"]: r["mean"] / r["stderr"] if r["stderr"] else 0.0 for r in chosen}
    ok = all(abs(zs[r["layer"]]) < Z if r["sign"] == 0 else zs[r["layer"]] * r["sign"] > Z for r in chosen)
    hidden = [r for r in chosen if r["layer"] > 1]
    mean = sum(r["mean"] for r in hidden) / len(hidden)
    error = sum(r["stderr"] ** 2 for r in hidden) ** 0.5 / len(hidden)
    return decide(
        ok,
        mean,
        error,
        note="step of the mean weight per unit learning rate, hidden layers; by layer in "
        "standard errors: " + ", ".join(f"{z:+.1f}" for z in zs.values()),
        seeds=chosen[0]["inits"],
    )


def _sign_test_is_blind(rows: Sequence[Row]) -> Verdict:
    push = min(r["mean"] / r["stderr"] for r in some(rows, quantity="gradient where p > 0"))
    drift = max(abs(r["mean"]) / r["stderr"] for r in some(rows, quantity="first step"))
    return decide(
        push > Z and drift < Z,
        push,
        note="weakest gradient on positive units in standard errors, for tanh "
        f"and identity, whose weights do not drift (largest |z| {drift:.1f})",
    )


def _batch_norm(rows: Sequence[Row]) -> Verdict:
    (row,) = some(rows, quantity="batch norm")
    return decide(
        row["with"] < 1e-12 and row["without"] > 1e-3,
        row["with"],
        note=f"largest channel sum over Σ|g|; without the norm {row['without']:.2g}",
    )


def _readout(rows: Sequence[Row]) -> Verdict:
    moved = {(r["loss"], r["optimizer"], r["momentum"]): r["moved"] for r in some(rows, quantity="readout mean")}
    kept = max(v for (loss, kind, _), v in moved.items() if (loss, kind) == ("ce", "sgd"))
    others = moved["ce", "adam", 0.0], moved["mse", "sgd", 0.0]
    return decide(
        kept < 1e-12 and min(others) > 1e-6,
        kept,
        note=f"largest move of a column mean; Adam moves it by {others[0]:.2g}, squared error by {others[1]:.2g}",
    )


def _scatter(rows: Sequence[Row]) -> Plot:
    """Monte Carlo mean with standard errors against the closed form."""
    chosen = some(rows, quantity="gradient", loss="mse")
    series = []
    for law in dict.fromkeys(r["law"] for r in chosen):
        mine = [r for r in chosen if r["law"] == law]
        series.append(
            Series(law, [r["expected"] for r in mine], [r["mean"] for r in mine], [2 * r["stderr"] for r in mine])
        )
    top = max(r["expected"] for r in chosen)
    series.append(Series("closed form", [0, top], [0, top], line=True, dashed=True))
    return Plot("closed form c_l a_i", "mean gradient ± 2 standard errors", series)


def _gelu_curve(rows: Sequence[Row]) -> Plot:
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


def _claims() -> Iterator[Claim]:
    fixed = _uses("fixed activation")
    gaussian = _uses("fixed activation", law="gaussian")
    others: Callable[[Config], bool] = lambda c: fixed(c) and c["law"] != "gaussian"
    yield _claim(
        "V1",
        "Squared error: the mean gradient on unit i is c_l a_i, whatever the depth downstream and for "
        "Gaussian, uniform and Rademacher weights (D2, makes Theorem 1.2 exact)",
        WITHIN,
        _agreement(quantity="gradient", loss="mse"),
        "Theorem 1.2",
        fixed,
        _scatter,
    )
    yield _claim(
        "V1-gain",
        "c_l = d_out/d_l = 0.625 at every depth with He hidden layers (D1)",
        Expected(0.625, tolerance=0.005),
        _gain,
        "Theorem 1.1",
        fixed,
    )
    yield _claim(
        "V2-ce",
        "Cross-entropy, Gaussian weights: the mean gradient is a_i/‖a‖² · E⟨o, ∇ℓ⟩ at any depth (D4)",
        WITHIN,
        _agreement(quantity="any-loss gap", loss="ce"),
        "cross-entropy case",
        gaussian,
    )
    yield _claim(
        "V2-huber",
        "Huber loss, Gaussian weights: the same formula (D4 holds for any differentiable loss)",
        WITHIN,
        _agreement(quantity="any-loss gap", loss="huber"),
        "beyond the paper",
        gaussian,
    )
    yield _claim(
        "V2-sign",
        "Cross-entropy and Huber, uniform and Rademacher weights: the push is still positive",
        Expected(direction="positive"),
        _signs,
        "cross-entropy case",
        others,
    )
    yield _claim(
        "V2-gaussian",
        "The formula of D4 needs Gaussian weights: with others it fails for Huber",
        Expected(direction=f"|z| > {Z}"),
        _gaussian_needed,
        "beyond the paper",
        others,
    )
    yield _claim(
        "V3",
        "Columns of the downstream map: E⟨v_i, v_j⟩ = c_l if i = j, and exactly 0 else, for symmetric "
        "weights (D1; Theorem 1.1 only says not negative)",
        WITHIN,
        _agreement(quantity="column product"),
        "Theorem 1.1",
        fixed,
    )
    yield _claim(
        "V4",
        "Cross-entropy: the mean gradient is σ_L² a_i/‖a‖² · E[‖h‖²(1 − ‖s‖²)] at any depth (D3)",
        WITHIN,
        _agreement(quantity="closed-form gap"),
        "cross-entropy case",
        gaussian,
    )
    yield _claim(
        "V4-values",
        "The closed form with only the readout downstream: 0.1270, 0.0339, 0.1694, 0.0085, 0.0762",
        Expected(0.0, tolerance=1e-4),
        _reference("cross-entropy closed form", "unit", CLOSED_CE, "mean", 1e-4),
        "cross-entropy case",
        _uses("doubt"),
    )
    yield _claim(
        "V5",
        "GELU, squared error: the mean gradient is c_l φφ'(p), negative for mildly negative p (D2, D11)",
        WITHIN,
        _agreement(quantity="gelu gradient"),
        "smooth activations",
        _uses("gelu"),
        _gelu_curve,
    )
    yield _claim(
        "V5-values",
        "The closed form at p = ±2, ±1, ±0.5, ±0.2",
        Expected(0.0, tolerance=1e-4),
        _reference("gelu gradient", "p", CLOSED_GELU, "expected", 1e-4),
        "smooth activations",
        _uses("gelu"),
    )
    for loss, words in (("mse", "squared error, c_l E_x[a_i x_k]"), ("ce", "cross-entropy, D4 inside E_x")):
        yield _claim(
            f"V6-{loss}",
            f"Mean gradient of a weight matrix after a positive activation ({words}): no "
            "covariance assumption is needed (D6)",
            Expected(1.0, tolerance=0.04),
            _weights(loss),
            "Remark A.2",
            _uses("weight gradient"),
        )
    yield _claim(
        "V7",
        "Σ p ∂ℓ/∂p = ⟨o, ∇ℓ⟩ per sample in every layer, at any time in training (D5)",
        Expected(0.0, tolerance=2e-8),
        _euler,
        "beyond the paper",
        _uses("euler"),
    )
    yield _claim(
        "V7-float32",
        "The same in float32: the error per sample of a mean-reduced loss stays below 2e-8",
        Expected(0.0, tolerance=2e-8),
        _euler_single,
        "beyond the paper",
        _uses("euler"),
    )
    yield _claim(
        "V8",
        "Counting the four outcomes of D10",
        Expected(direction="-9/16, -9/7, 15/8"),
        _counted,
        "Theorem 1.1",
        _uses("enumeration"),
    )
    yield _claim(
        "T1.1",
        "Independent zero-mean weights of finite variance suffice for E⟨v_i, v_j⟩ ≥ 0",
        Expected(direction="not negative"),
        _theorem_1_1,
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
            _rule,
            "drift across activations",
            _uses("first step", pattern=name),
        )
    yield _claim(
        "D8",
        "Train-mode BatchNorm after a linear layer makes Σ_batch ∂ℓ/∂p vanish",
        Expected(0.0, tolerance=1e-12),
        _batch_norm,
        "beyond the paper",
        _uses("batch norm"),
    )
    yield _claim(
        "D9",
        "Cross-entropy with SGD, with or without momentum, conserves the column means of the readout",
        Expected(0.0, tolerance=1e-12),
        _readout,
        "beyond the paper",
        _uses("readout mean"),
    )
    yield _claim(
        "D11",
        "A positive gradient on positive pre-activations is no evidence of drift: tanh and identity show it too",
        Expected(direction="positive without drift"),
        _sign_test_is_blind,
        "Theorem 1.2",
        lambda c: c["check"] == "first step" and c["pattern"] in ("tanh", "identity"),
    )


_DRIFT = {"tanh": "no drift", "identity": "no drift", "alternating": "weights drift up"}
CLAIMS = tuple(_claims())
