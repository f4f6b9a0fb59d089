"""How Monte Carlo means decide the theorems: within 4.5 standard errors of the closed form, everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from netvitals_lab import Plot, Row, Series, Verdict, decide, erratum, fails
from netvitals_lab.engine.judges import agree, at_most, groups, some
from netvitals_lab.engine.judges.combinators import Z, departure


def agreement(**where: Any) -> Callable[[Sequence[Row]], Verdict]:
    """Holds if every row meets its expectation; measured is the largest |z|."""

    return lambda rows: agree(some(rows, **where))


def signs(rows: Sequence[Row]) -> Verdict:
    chosen = [r for r in some(rows, quantity="gradient") if r["loss"] in ("ce", "huber")]
    pushes = [r for r in some(rows, quantity="push") if r["loss"] in ("ce", "huber")]
    weakest, push = (min(r["mean"] / r["stderr"] for r in rs) for rs in (chosen, pushes))
    return decide(
        weakest > -Z and push > Z,
        push,
        note=f"weakest total push Σ a_i g_i in standard errors; weakest single unit {weakest:+.1f}",
    )


def gaussian_needed(rows: Sequence[Row]) -> Verdict:
    worst = max(abs(departure(r)) for r in some(rows, quantity="any-loss gap", loss="huber"))
    return decide(worst > Z, worst, note="largest departure from the Gaussian formula, in standard errors")


def weights_verdict(rows: Sequence[Row]) -> Verdict:
    (row,) = some(rows, quantity="weight gradient")
    ok = abs(departure(row)) < Z and row["correlation"] > 0.999
    return decide(
        ok,
        row["mean"] / row["expected"],
        row["stderr"] / row["expected"],
        note=f"layer mean over closed form; entries correlate {row['correlation']:.4f}; one "
        f"initialisation alone has signal to noise {row['signal to noise']:.1f}",
    )


def euler(rows: Sequence[Row]) -> Verdict:
    chosen = some(rows, quantity="euler", dtype="float64")
    return at_most(
        max(r["defect"] for r in chosen),
        2e-8,
        "float64, largest error over samples, layers and steps",
        facts={
            "samples": chosen[0]["samples"],
            "layers": len(groups(chosen, "layer")),
            "steps": sorted(groups(chosen, "step")),
            "⟨o, ∇ℓ⟩ first, last": [chosen[0]["mean"], chosen[-1]["mean"]],
        },
    )


def theorem_1_1(rows: Sequence[Row]) -> Verdict:
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


def rule(rows: Sequence[Row]) -> Verdict:
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


def sign_test_is_blind(rows: Sequence[Row]) -> Verdict:
    push = min(r["mean"] / r["stderr"] for r in some(rows, quantity="gradient where p > 0"))
    drift = max(abs(r["mean"]) / r["stderr"] for r in some(rows, quantity="first step"))
    return decide(
        push > Z and drift < Z,
        push,
        note="weakest gradient on positive units in standard errors, for tanh "
        f"and identity, whose weights do not drift (largest |z| {drift:.1f})",
    )


def batch_norm(rows: Sequence[Row]) -> Verdict:
    (row,) = some(rows, quantity="batch norm")
    return decide(
        row["with"] < 1e-12 and row["without"] > 1e-3,
        row["with"],
        note=f"largest channel sum over Σ|g|; without the norm {row['without']:.2g}",
    )


def readout(rows: Sequence[Row]) -> Verdict:
    moved = {(r["loss"], r["optimizer"], r["momentum"]): r["moved"] for r in some(rows, quantity="readout mean")}
    kept = max(v for (loss, kind, _), v in moved.items() if (loss, kind) == ("ce", "sgd"))
    others = moved["ce", "adam", 0.0], moved["mse", "sgd", 0.0]
    return decide(
        kept < 1e-12 and min(others) > 1e-6,
        kept,
        note=f"largest move of a column mean; Adam moves it by {others[0]:.2g}, squared error by {others[1]:.2g}",
    )


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
