"""Claims 1–6: what theory says at initialisation, judged on the rows of the theorem study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from netvitals_lab import Claim, Config, Expected, Row, Verdict, decide
from netvitals_lab.engine.judges import groups, matches, some
from netvitals_lab.papers.weight_drift.theorem_claims import STUDY, Z
from netvitals_lab.papers.weight_drift.theorem_judges import theorem_1_1

LAWS = ("gaussian", "uniform", "rademacher")


def _fixed(config: Config) -> bool:
    return config["check"] == "fixed activation"


def _not_negative(loss: str) -> Callable[[Sequence[Row]], Verdict]:
    """No positive unit's mean gradient is below zero by 4.5 standard errors, and their weighted sum is above."""

    def judge(rows: Sequence[Row]) -> Verdict:
        units, sums = some(rows, quantity="gradient", loss=loss), some(rows, quantity="push", loss=loss)
        weakest, push = (min(r["mean"] / r["stderr"] for r in rs) for rs in (units, sums))
        return decide(
            weakest > -Z and push > Z,
            weakest,
            note="weakest unit with p > 0 in standard errors, over "
            f"{len(units)} units, depths and laws; weakest weighted sum {push:.0f}",
        )

    return judge


def _strict(rows: Sequence[Row]) -> Verdict:
    """Strictness needs a lower bound: pooled over laws and depths, every unit's gradient is above zero."""
    pooled = {}
    for unit, mine in groups(rows, "unit", quantity="gradient", loss="mse").items():
        weight = sum(1 / r["stderr"] ** 2 for r in mine)
        pooled[unit] = sum(r["mean"] / r["stderr"] ** 2 for r in mine) / weight**0.5
    weakest = min(pooled.values())
    return decide(weakest > Z, weakest, note="weakest unit with p > 0, pooled over laws and depths, in standard errors")


def _every_depth(rows: Sequence[Row]) -> Verdict:
    pushes = some(rows, quantity="push", loss="mse", law="gaussian")
    by = {tuple(r["hidden"]): r["mean"] / r["stderr"] for r in pushes}
    facts = {f"{len(hidden)} hidden layers": z for hidden, z in by.items()}
    return decide(min(by.values()) > Z, min(by.values()), note="weakest push Σ a_i g_i in standard errors", facts=facts)


def _label_term(rows: Sequence[Row]) -> Verdict:
    """The label is e_0 in every draw: if its term did not vanish, the mean would miss c_l a_i."""
    chosen = some(rows, quantity="gradient", loss="mse")
    worst = max(abs(r["mean"] - r["expected"]) / r["stderr"] for r in chosen)
    (single,) = some(rows, quantity="weight gradient", loss="mse")
    return decide(
        worst < Z,
        worst,
        note=f"largest gap to c_l a_i in standard errors over {len(chosen)} units; in a "
        f"single initialisation the signal is only {single['signal to noise']:.1f} times the noise",
    )


def _claims() -> Iterator[Claim]:
    positive = Expected(direction="not negative")
    yield Claim(
        id="weight-drift/C1",
        study=STUDY,
        statement="Squared error: the expected gradient on a positive pre-activation is not negative at initialisation",
        expected=positive,
        judge=_not_negative("mse"),
        uses=_fixed,
    )
    yield Claim(
        id="weight-drift/C2",
        study=STUDY,
        statement="Cross-entropy: the same",
        expected=positive,
        judge=_not_negative("ce"),
        uses=_fixed,
    )
    yield Claim(
        id="weight-drift/C3",
        study=STUDY,
        statement="It is strictly positive where p > 0",
        expected=Expected(direction="positive"),
        judge=_strict,
        uses=_fixed,
    )
    yield Claim(
        id="weight-drift/C4",
        study=STUDY,
        statement="Columns of the downstream map: E⟨v_i, v_j⟩ ≥ 0 for independent weights of mean 0, finite variance",
        expected=positive,
        judge=theorem_1_1,
        uses=matches(check="enumeration"),
    )
    yield Claim(
        id="weight-drift/C5",
        study=STUDY,
        statement="It holds at any depth",
        expected=Expected(direction="positive at every depth"),
        judge=_every_depth,
        uses=lambda c: _fixed(c) and c["law"] == "gaussian",
    )
    yield Claim(
        id="weight-drift/C6",
        study=STUDY,
        statement="The term of the label vanishes in expectation",
        expected=Expected(direction=f"|z| < {Z}"),
        judge=_label_term,
        uses=lambda c: _fixed(c) or c["check"] == "weight gradient",
    )


CLAIMS = tuple(_claims())
