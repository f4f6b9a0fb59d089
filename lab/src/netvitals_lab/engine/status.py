"""Where every claim stands: the verdict of the largest scale that gave one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from netvitals._plot import Plot
from netvitals_lab.engine.assumptions import awaited
from netvitals_lab.engine.claim import Claim
from netvitals_lab.engine.judging import fair, rows_of
from netvitals_lab.engine.registry import find_study
from netvitals_lab.engine.store import Results, StoredVerdict
from netvitals_lab.engine.study import SCALES, Row, trial_key
from netvitals_lab.engine.verdict import Verdict, not_run
from netvitals_lab.engine.versions import code_version

MADE_UP = "made-up"  # how the name of data begins that stand in for a file
RECORDED = Path(__file__).parents[1] / "recorded"  # verdicts that were measured before, one file a paper


@dataclass(frozen=True)
class Standing:
    """A claim beside its verdict."""

    claim: Claim
    verdict: Verdict
    judged: str = ""  # when
    stale: bool = False  # the code behind the trials has changed since
    recorded: bool = False  # measured before and shipped with netvitals, not by the results at hand

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        c = self.claim
        return {
            "id": c.id,
            "paper": c.paper,
            "study": c.study,
            "place": c.place,
            "statement": c.statement,
            "expected": str(c.expected),
            "whose": c.whose,
            "decides": c.decides,
            "headline": c.headline,
            "effect": c.effect,
            "choices": list(c.choices),
            "question": c.question,
            "command": c.command,
            "label": self.verdict.label,
            "judged": self.judged,
            "stale": self.stale,
            "recorded": self.recorded,
            **asdict(self.verdict),
        }


def standings(
    claims: Iterable[Claim], results: str | os.PathLike[str] | Results | None, *, recorded: bool = False
) -> list[Standing]:
    """Every claim with the verdict stored for it; without one, or with a smoke run's only, what is on record where
    ``recorded``, else ``not-run``."""
    kept: dict[str, list[StoredVerdict]] = {}
    if results is not None:
        store = results if isinstance(results, Results) else Results(Path(results), write=False)
        try:
            for stored in store.verdicts():
                kept.setdefault(stored.claim, []).append(stored)
        finally:
            if store is not results:
                store.close()
    known = recorded_verdicts() if recorded else {}
    found = [_standing(c, kept.get(c.id, [])) for c in claims]
    return [
        Standing(s.claim, fair(s.claim, find_study(s.claim.study, s.claim.id), known[s.claim.id]), recorded=True)
        if (s.verdict.status == "not-run" or s.verdict.scale == "smoke") and s.claim.id in known
        else s
        for s in found
    ]


@cache
def recorded_verdicts() -> dict[str, Verdict]:
    """The verdicts that are shipped with netvitals, by claim; ``netvitals claims --record`` writes them anew."""
    found: dict[str, Verdict] = {}
    for file in sorted(RECORDED.glob("*.json")):
        for claim, record in json.loads(file.read_text(encoding="utf-8")).items():
            found[claim] = Verdict.from_dict(record)
    return found


def _standing(claim: Claim, kept: list[StoredVerdict]) -> Standing:
    if not kept:
        return Standing(claim, not_run(awaited(claim)))
    best = max(kept, key=lambda s: (s.verdict.status != "not-run", SCALES.index(s.scale)))
    return Standing(claim, best.verdict, best.judged, best.code != code_version(find_study(claim.study, claim.id)))


def plot_of(standing: Standing, results: Results) -> Plot | None:
    """The claim's picture from the trials behind its verdict, where it has one."""
    claim, scale = standing.claim, standing.verdict.scale
    if claim.plot is None or not standing.verdict.trials or standing.stale:
        return None
    study = find_study(claim.study, claim.id)
    code = code_version(study)
    keys = [trial_key(study.name, c, code) for c in study.configs(scale) if claim.rests_on(c)]
    rows = rows_of(t for t in results.trials(keys).values())
    return _marked(claim.plot(rows), rows) if rows else None


def _marked(plot: Plot, rows: Sequence[Row]) -> Plot:
    """The picture, with a word below it where the data were made up for want of a file."""
    made_up = sorted({str(r["data"]) for r in rows if str(r.get("data", "")).startswith(MADE_UP)})
    return replace(plot, x_label=f"{plot.x_label} (text: {', '.join(made_up)})") if made_up else plot
