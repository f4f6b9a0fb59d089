"""One claim, many set-ups: what becomes of it where the paper does not print all that it rests on.

    every set-up as printed → holds;  some → underspecified, with the range;  none → fails, or not reproduced

A set-up is a tuple of choices in words, one for each thing that the text leaves open, and has rows of its own. The
claim's judge is asked in each of them. A set-up in which it cannot tell is counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from netvitals_lab.engine.study import Row
from netvitals_lab.engine.verdict import Fact, Status, Verdict, not_judged, worded

Judge = Callable[[Sequence[Row]], Verdict]
TOLD = ("holds", "fails", "not-reproduced")  # the others cannot tell
Setup = tuple[str, ...]  # one choice of every kind, in words


def over_setups(
    judge: Judge,
    setups: Callable[[Sequence[Row]], Mapping[Setup, Sequence[Row]]],
    printed: float | None = None,
) -> Judge:
    """A judge that asks ``judge`` in every set-up, and says in how many the claim is as printed.

    >>> from netvitals_lab.engine.verdict import decide
    >>> rows = [{"padding": p, "iou": v} for p, v in (("zero", 0.7), ("circular", 0.95))]
    >>> apart = lambda rows: {(f"{r['padding']} padding",): [r] for r in rows}
    >>> print(over_setups(lambda rows: decide(rows[0]["iou"] > 0.9, rows[0]["iou"], note="IoU"), apart)(rows))
    underspecified: 0.7; IoU; as printed in 1 of 2 set-ups; from 0.7 to 0.95 over the set-ups; as printed, by choice \
zero padding 0 of 1, circular padding 1 of 1; where it is so 0.95; where it is not 0.7
    """

    def judged(rows: Sequence[Row]) -> Verdict:
        found = {setup: judge(mine) for setup, mine in setups(rows).items()}
        silent = {setup: v for setup, v in found.items() if v.status not in TOLD}
        told = {setup: v for setup, v in found.items() if setup not in silent}
        if not told:
            first = next(iter(silent.values()))
            return not_judged(f"none of {len(found)} set-ups can tell; in the first, {first.note}")
        return _together(told, silent, printed)

    return judged


def _together(told: Mapping[Setup, Verdict], silent: Mapping[Setup, Verdict], printed: float | None) -> Verdict:
    first = next(iter(told.values()))
    agreeing = [setup for setup, v in told.items() if v.status == "holds"]
    numbers = {setup: float(v.measured) for setup, v in told.items() if isinstance(v.measured, float | int)}
    if not numbers:
        raise ValueError("a claim that is judged over set-ups needs a number in each, for the range")
    span = min(numbers.values()), max(numbers.values())
    facts: dict[str, Fact] = {}
    if 0 < len(agreeing) < len(told):
        facts["as printed, by choice"] = by_choice(list(told), agreeing)
        facts["where it is so"] = _least_and_most([numbers[s] for s in agreeing if s in numbers])
        facts["where it is not"] = _least_and_most([numbers[s] for s in told if s in numbers and s not in agreeing])
    if silent:
        why = next(iter(silent.values())).note
        facts[f"set-ups that cannot tell: {len(silent)}, the first because"] = why
    if first.facts:
        facts["in our set-up"] = ", ".join(f"{name} {worded(fact)}" for name, fact in first.facts.items())
    depends = bool(agreeing) or (printed is not None and span[0] <= printed <= span[1])
    unseen = [v.power for v in told.values() if v.power is not None]
    none: Status = "not-reproduced" if unseen else "fails"
    mixed: Status = "underspecified" if depends else none
    status: Status = "holds" if len(agreeing) == len(told) else mixed
    power = max(unseen) if status == "not-reproduced" else None
    return replace(first, status=status, power=power, setups=(len(agreeing), len(told)), span=span, facts=facts)


def _least_and_most(values: Sequence[float]) -> str:
    if not values:
        return "no number"
    return f"{min(values):.3g}" if min(values) == max(values) else f"{min(values):.3g} to {max(values):.3g}"


def by_choice(told: Sequence[Setup], agreeing: Sequence[Setup]) -> str:
    """In how many set-ups with each choice the claim is as printed; what all of them share is left out.

    >>> by_choice([("a", "x"), ("b", "x")], [("b", "x")])
    'a 0 of 1, b 1 of 1'
    """
    kinds = []
    for options in (list(dict.fromkeys(kind)) for kind in zip(*told)):
        counted = (f"{o} {sum(o in s for s in agreeing)} of {sum(o in s for s in told)}" for o in options)
        kinds += [", ".join(counted)] if len(options) > 1 else []
    return "; ".join(kinds)
