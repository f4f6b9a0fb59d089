"""One claim per reference value, plus the paper's definition that does not give its own table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from netvitals_lab import Claim, Expected, Row, Verdict, decide, erratum, fails
from netvitals_lab.engine.judges import matches, one
from netvitals_lab.papers.activations import reference as ref
from netvitals_lab.papers.activations.constant_claims import claims_of_constants
from netvitals_lab.papers.activations.number_claim import GATES, SADDLE, STUDY, classed, number
from netvitals_lab.papers.activations.tables import POPULATIONS, THETAS


def _crossing(a: str, theta: float) -> dict[str, Any]:
    return {"table": "crossings", "activation": a, "theta": theta}


def _crossing_claims() -> Iterator[Claim]:
    for a, values in ref.SIGNED.items():
        for theta, value in zip(THETAS, values):
            yield number(
                f"z_low-{a}-{theta}",
                GATES,
                "§2.2",
                f"{a}: f' first exceeds {theta} at this z",
                "signed",
                value,
                1e-4,
                _crossing(a, theta),
            )
    for (a, theta), value in ref.SIGNED_ONE.items():
        yield number(
            f"z_low-{a}-{theta}",
            GATES,
            "§2.2",
            f"{a}: f' first exceeds {theta} at this z",
            "signed",
            value,
            1e-4,
            _crossing(a, theta),
        )
    for a, pair in ref.LITERAL.items():
        for theta, value in zip((0.01, 0.1), pair):
            yield number(
                f"z_literal-{a}-{theta}",
                GATES,
                "§2.2",
                f"{a}: |f'| first exceeds {theta} at this z",
                "literal",
                value,
                1e-4,
                _crossing(a, theta),
            )
    for a, value in ref.SLIT.items():
        yield number(
            f"slit-{a}",
            GATES,
            "§2.2",
            f"{a}: the inactive slit at θ = 0.01 begins here",
            "active 0 high",
            value,
            1e-4,
            _crossing(a, 0.01),
        )
    for a, value in ref.TAIL.items():
        yield number(
            f"tail-{a}",
            GATES,
            "§2.2",
            f"{a}: the active interval on the tail at θ = 0.1 ends here",
            "active 0 high",
            value,
            1e-4,
            _crossing(a, 0.1),
        )
    for a, value in ref.PRINTED.items():
        yield number(
            f"table3-{a}",
            GATES,
            "Table 3",
            f"{a}: z_low(0.1) as printed, with the signed crossing",
            "signed",
            value,
            1e-3,
            _crossing(a, 0.1),
        )


def _density_claims() -> Iterator[Claim]:
    for theta, table in ((0.01, ref.DENSITY), (0.1, ref.DENSITY_10)):
        for a, values in table.items():
            if a == "relu" and theta != 0.1:
                continue  # ReLU's crossing is 0 at every θ; its row is computed once
            for (mu, sigma), (exact, half) in zip(POPULATIONS, values):
                for kind, value in (("density", exact), ("half-line density", half)):
                    yield number(
                        f"{kind.replace(' ', '-')}-{a}-{theta}-sigma{sigma:g}",
                        GATES,
                        "§2.3",
                        f"{a}: {kind} at θ = {theta} under N({mu:g}, {sigma:g}²)",
                        kind,
                        value,
                        1e-4,
                        _crossing(a, theta),
                        mu=mu,
                        sigma=sigma,
                    )
    for a, means in ref.MEAN_GATE.items():
        for (mu, sigma), value in zip(POPULATIONS, means):
            yield number(
                f"mean-gate-{a}-sigma{sigma:g}",
                GATES,
                "§2.3",
                f"{a}: mean |f'| under N({mu:g}, {sigma:g}²)",
                "mean gate",
                value,
                1e-4,
                classed(a),
                mu=mu,
                sigma=sigma,
            )
    for sigma, value in ref.INACTIVE.items():
        yield number(
            f"inactive-gelu-sigma{sigma:g}",
            GATES,
            "§2.3",
            f"gelu: inactive mass at θ = 0.01 under N(0, {sigma:g}²)",
            "inactive mass",
            value,
            1e-4,
            _crossing("gelu", 0.01),
            sigma=sigma,
        )


def _class_claims() -> Iterator[Claim]:
    for a, (label, centred, everywhere) in ref.CLASSES.items():
        text = _spoken(label, centred, everywhere)
        yield Claim(
            id=f"activations/class-{a}",
            study=STUDY,
            statement=f"{a} belongs to class {text}",
            expected=Expected(direction=text),
            judge=_judge_class(label, centred, everywhere),
            section="§2.4, §4.1",
            paper=SADDLE,
            uses=matches(**classed(a)),
        )
    for a, value in ref.LEADING.items():
        yield number(
            f"phi-{a}",
            SADDLE,
            "§2.4",
            f"{a}: coefficient with which z f' − f starts",
            "phi leading",
            value,
            1e-9,
            classed(a),
        )
    for a in ("identity", "relu", "leaky_relu:0.01", *ref.LEADING):
        yield number(
            f"phi-closed-{a}",
            SADDLE,
            "§2.4",
            f"{a}: largest gap between z f' − f and its closed form on [−6, 6]",
            "phi defect",
            0.0,
            1e-12,
            classed(a),
        )
    for a, (slope, second) in ref.TAYLOR.items():
        yield number(f"slope-{a}", SADDLE, "§4.1", f"{a}: f'(0)", "slope", slope, 1e-9, classed(a))
        yield number(f"second-{a}", SADDLE, "§4.1", f"{a}: f''(0)/2", "a_q", second, 1e-9, classed(a))


def _judge_class(label: str, centred: str, everywhere: bool) -> Callable[[Sequence[Row]], Verdict]:
    def judge(rows: Sequence[Row]) -> Verdict:
        got = tuple(one(rows, quantity=q)["text"] for q in ("label", "centred label", "almost everywhere"))
        return decide(
            got == (label, centred, str(everywhere)),
            _spoken(got[0], got[1], got[2] == "True"),
            note=str(one(rows, quantity="why")["text"]),
        )

    return judge


def _spoken(label: str, centred: str, everywhere: bool) -> str:
    return label + (" almost everywhere" if everywhere else "") + (f", {centred} once centred" if centred else "")


_NAMES = {"gelu": "GELU", "silu": "SiLU", "mish": "Mish"}


def _judge_definition(rows: Sequence[Row]) -> Verdict:
    """The printed definition inf{z : |f'| > θ} against the printed table: wrong for GELU and Mish, right for SiLU."""
    literal, signed = (
        max(abs(float(one(rows, quantity=kind, activation=a)["value"]) - ref.PRINTED[a]) for a in _NAMES)
        for kind in ("literal", "signed")
    )
    if literal <= 1e-3:
        return decide(True, literal, note="the printed definition gives the printed table")
    if signed > 1e-3:
        return fails(literal, note=f"neither definition gives the table: off by {literal:.3g} and {signed:.3g}")
    text = ", ".join(f"{w} {one(rows, quantity='literal', activation=a)['value']:.3f}" for a, w in _NAMES.items())
    return erratum(
        text,
        note=f"as defined, with |f'|, z_low misses the table by up to {literal:.3g}; the signed "
        f"crossing, inf{{z : f'(z) > θ}}, gives it to {signed:.1g}",
    )


def _definition_claim() -> Claim:
    return Claim(
        id="activations/definition",
        study=STUDY,
        statement="z_low(θ) = inf{z : |f'(z)| > θ} gives the z_low of Table 3",
        expected=Expected(direction="GELU −0.554, SiLU −0.912, Mish −0.891"),
        judge=_judge_definition,
        section="§2.2, Table 3",
        paper=GATES,
        uses=lambda c: c["table"] == "crossings" and c["activation"] in _NAMES and c["theta"] == 0.1,
    )


CLAIMS = (*_crossing_claims(), _definition_claim(), *_density_claims(), *_class_claims(), *claims_of_constants())
