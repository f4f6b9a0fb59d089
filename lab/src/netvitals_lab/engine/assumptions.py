"""What every verdict of a study rests on besides the choices of its own claim, and what a verdict not yet given takes.

    setting = parameters at the scales that were run, what is smaller than in the paper, what it does not print, what
    more would cost

The record and the page show it once a study; a claim that has not been run says which scale has its trials, on which
data, and what they cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from netvitals_lab.engine.claim import Claim
from netvitals_lab.engine.registry import find_study
from netvitals_lab.engine.study import SCALES, Config, Study

if TYPE_CHECKING:
    from netvitals_lab.engine.status import Standing

INTRO = (
    "What every verdict rests on besides the choices in its own row: the parameters that its study was run with, and "
    "what a larger run takes."
)


@dataclass(frozen=True)
class Setting:
    """A study as it was run."""

    study: str
    title: str
    lines: tuple[tuple[str, str], ...]


def settings_of(standings: Sequence[Standing]) -> list[Setting]:
    """The setting of every study among the standings, by name; studies of somebody else are left out."""
    used: dict[str, set[str]] = {}
    near: dict[str, str] = {}
    for standing in standings:
        used.setdefault(standing.claim.study, set()).add(standing.verdict.scale)
        near[standing.claim.study] = standing.claim.id
    found = []
    for name in sorted(used):
        try:
            study = find_study(name, near[name])
        except LookupError:  # given by hand
            continue
        found.append(Setting(name, study.title, tuple(_lines(study, used[name]))))
    return found


def _lines(study: Study, scales: set[str]) -> list[tuple[str, str]]:
    lines = []
    for scale in (s for s in SCALES if s in scales):
        chosen = study.scales[scale]
        lines.append((scale, "; ".join(f"{f.name} = {_value(getattr(chosen, f.name))}" for f in fields(chosen))))
    lines += [("smaller than in the paper", study.reduced)] if study.reduced else []
    lines += [("not printed in the paper", study.unprinted)] if study.unprinted else []
    return [
        *lines,
        ("medium", f"as small: {study.settled}" if study.settled else str(study.resources or "not declared")),
    ]


def _value(value: Any) -> str:
    """
    >>> _value((1.0, (2, "b"), ("c",)))
    '1.0, 2/b, c'
    """
    if not isinstance(value, tuple | list):
        return str(value)
    return ", ".join("/".join(map(str, v)) if isinstance(v, tuple | list) else str(v) for v in value)


def data_of(configs: Sequence[Config]) -> tuple[str, ...]:
    """The data that trials were given, each by its name, without the options.

    >>> data_of([{"data": "cifar10,train=4000"}, {"data": "cifar10"}, {"seed": 1}, {"data": "made-up sentences"}])
    ('cifar10', 'made-up sentences')
    """
    return tuple(dict.fromkeys(c["data"].split(",")[0] for c in configs if isinstance(c.get("data"), str)))


def awaited(claim: Claim) -> str:
    """What a claim without a verdict waits for: a command, and where ``small`` has no trials of it, data and cost.

    >>> from netvitals_lab.engine.registry import find_claim
    >>> awaited(find_claim("dag-hessian/H6.7")).split(":")[0]
    'not run yet, for only the paper scale has its trials'
    """
    try:
        study = find_study(claim.study, claim.id)
    except LookupError:
        return f"not run yet: {claim.command}"
    for scale in SCALES[1:]:
        trials = [c for c in study.configs(scale) if claim.rests_on(c)]
        if trials and scale == "small":
            return f"not run yet: {claim.command}"
        if trials:
            where = f" on {', '.join(data_of(trials))}" if data_of(trials) else ""
            cost = _cost(study, len(trials))
            return (
                f"not run yet, for only the {scale} scale has its trials: {len(trials)} of them{where}{cost}; "
                f"{claim.command} --scale {scale}"
            )
    return f"not run yet: no scale of {study.name} has trials of it"


def _cost(study: Study, trials: int) -> str:
    from netvitals_lab.index import index_of, indexed  # it asks for standings, which ask here

    costs = index_of(study.paper).costs if study.paper in indexed() else {}
    return f", {costs[study.name].of(trials)}" if study.name in costs else ""
