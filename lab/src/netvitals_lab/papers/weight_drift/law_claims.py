"""Claims 1–6: what theory says at initialisation, judged on the rows of the theorem study."""

from __future__ import annotations

from collections.abc import Sequence

from netvitals_lab import Claims, Config, Measured, Row, above, below
from netvitals_lab.engine.judges import groups, some
from netvitals_lab.papers.weight_drift.theorem_claims import STUDY, Z

LAWS = ("gaussian", "uniform", "rademacher")


def _fixed(config: Config) -> bool:
    return config["check"] == "fixed activation"


def _not_negative(rows: Sequence[Row], loss: str) -> Measured:
    """No positive unit's mean gradient is below zero by 4.5 standard errors, and their weighted sum is above."""
    units, sums = some(rows, quantity="gradient", loss=loss), some(rows, quantity="push", loss=loss)
    weakest, push = (min(r["mean"] / r["stderr"] for r in rs) for rs in (units, sums))
    return Measured(
        weakest,
        note="weakest unit with p > 0 in standard errors, over "
        f"{len(units)} units, depths and laws; weakest weighted sum {push:.0f}",
        ok=weakest > -Z and push > Z,
    )


claim = Claims("weight-drift", study=STUDY)


@claim("C1", "not negative", uses=_fixed)
def squared_error(rows: Sequence[Row]) -> Measured:
    """Squared error: the expected gradient on a positive pre-activation is not negative at initialisation"""
    return _not_negative(rows, "mse")


@claim("C2", "not negative", uses=_fixed)
def cross_entropy(rows: Sequence[Row]) -> Measured:
    """Cross-entropy: the same"""
    return _not_negative(rows, "ce")


@claim("C3", above(Z, "positive"), uses=_fixed)
def strict(rows: Sequence[Row]) -> Measured:
    """It is strictly positive where p > 0

    Strictness needs a lower bound: pooled over laws and depths, every unit's gradient is above zero.
    """
    pooled = {}
    for unit, mine in groups(rows, "unit", quantity="gradient", loss="mse").items():
        weight = sum(1 / r["stderr"] ** 2 for r in mine)
        pooled[unit] = sum(r["mean"] / r["stderr"] ** 2 for r in mine) / weight**0.5
    weakest = min(pooled.values())
    return Measured(weakest, "weakest unit with p > 0, pooled over laws and depths, in standard errors")


@claim("C4", "not negative", uses={"check": "enumeration"})
def columns(rows: Sequence[Row]) -> Measured:
    """Columns of the downstream map: E⟨v_i, v_j⟩ ≥ 0 for independent weights of mean 0, finite variance"""
    skewed = some(rows, law="skewed", activation=[1, 1])[0]
    symmetric = [r for r in rows if r["law"] != "skewed" and r["ties"] == 0]
    if skewed["inner"] >= 0:
        return Measured(skewed["inner"], "no counterexample was found", ok=True)
    return Measured(
        skewed["inner"],
        note="zero mean is not enough: w = 3 or −1 with chances ¼ and ¾ gives "
        f"E[1(z>0) w₁w₂] = {skewed['exact']} < 0 ({skewed['given alive']} given survival); for weights "
        "symmetric about zero it is exactly 0, as counting confirms",
        ok=False,
        right=bool(symmetric) and all(r["inner"] == 0 for r in symmetric),
        otherwise="the corrected statement, zero for symmetric weights, fails too",
    )


@claim("C5", above(Z, "positive at every depth"), uses=lambda c: _fixed(c) and c["law"] == "gaussian")
def every_depth(rows: Sequence[Row]) -> Measured:
    """It holds at any depth"""
    pushes = some(rows, quantity="push", loss="mse", law="gaussian")
    by = {tuple(r["hidden"]): r["mean"] / r["stderr"] for r in pushes}
    facts = {f"{len(hidden)} hidden layers": z for hidden, z in by.items()}
    return Measured(min(by.values()), "weakest push Σ a_i g_i in standard errors", facts=facts)


@claim("C6", below(Z, f"|z| < {Z}"), uses=lambda c: _fixed(c) or c["check"] == "weight gradient")
def label_term(rows: Sequence[Row]) -> Measured:
    """The term of the label vanishes in expectation

    The label is e_0 in every draw: if its term did not vanish, the mean would miss c_l a_i.
    """
    chosen = some(rows, quantity="gradient", loss="mse")
    worst = max(abs(r["mean"] - r["expected"]) / r["stderr"] for r in chosen)
    (single,) = some(rows, quantity="weight gradient", loss="mse")
    return Measured(
        worst,
        note=f"largest gap to c_l a_i in standard errors over {len(chosen)} units; in a "
        f"single initialisation the signal is only {single['signal to noise']:.1f} times the noise",
    )
