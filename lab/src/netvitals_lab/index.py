"""A paper's index: every table, figure and experiment of it, and what has become of each here.

The rows are data, in ``papers/<paper>/index.py``: a tuple ``ENTRIES`` and a table ``COSTS`` of what one trial of a
study takes at ``paper`` scale. The page puts the verdicts on record, the pictures and the configurations beside them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from netvitals_lab.engine.judges.rows import matches
from netvitals_lab.engine.registry import find_study, papers
from netvitals_lab.engine.status import recorded_verdicts
from netvitals_lab.engine.study import Config
from netvitals_lab.engine.verdict import Verdict

Fate = Literal["whole", "small only", "configuration only", "not here"]
FATES: dict[Fate, str] = {
    "whole": "we measured it at scale `small`; at scale `paper` it has the set-up of the paper",
    "small only": "we measured it at scale `small`; at scale `paper` a part of the paper's set-up is missing",
    "configuration only": "at scale `paper` it has the set-up of the paper; we did not measure it at scale `small`",
    "not here": "not implemented; the row gives the reason",
}
CORE, GPU = "CPU core", "GPU of 80 GB"  # device classes that costs are given on
HIDDEN = ("seed", "seeds")  # keys of a configuration that are counted, not listed
SHOWN = 6  # values of one key that are listed


@dataclass(frozen=True)
class StudyCost:
    """What one trial takes at ``paper`` scale: an estimate, on a class of devices."""

    hours: float
    device: str = CORE

    def of(self, trials: int) -> str:
        """
        >>> StudyCost(0.15, GPU).of(24)
        'about 3.6 hours of a GPU of 80 GB'
        """
        total = self.hours * trials
        if total < 1:
            return f"about {max(1, round(60 * total))} minutes of a {self.device}"
        text = f"{total:.2g}" if total < 100 else f"{total:.0f}"
        return f"about {text} hours of a {self.device}"


@dataclass(frozen=True)
class IndexEntry:
    """One table, figure or experiment."""

    number: str
    shows: str
    fate: Fate
    study: str = ""
    claims: tuple[str, ...] = ()
    why: str = ""
    only: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.fate not in FATES:
            raise ValueError(f"{self.number}: the fate is one of {', '.join(FATES)}, got {self.fate!r}")
        if (self.fate == "not here") == bool(self.study):
            raise ValueError(f"{self.number}: what is here names its study, what is not here names none")
        if self.fate != "whole" and not self.why:
            raise ValueError(f"{self.number}: say what is missing of it, and why")

    def trials(self, scale: str) -> list[Config]:
        """The configurations of its study that it rests on."""
        is_one = matches(**self.only)
        return [c for c in find_study(self.study).configs(scale) if is_one(c)] if self.study else []


@dataclass(frozen=True)
class Index:
    """All entries of one paper."""

    paper: str
    entries: tuple[IndexEntry, ...]
    costs: Mapping[str, StudyCost] = field(hash=False)

    @property
    def counts(self) -> dict[Fate, int]:
        """How many entries have each fate."""
        found = Counter(e.fate for e in self.entries)
        return {fate: found[fate] for fate in FATES}


def indexed() -> list[str]:
    """The papers that have an index."""
    return [p for p in papers() if importlib.util.find_spec(_module(p)) is not None]


def index_of(paper: str) -> Index:
    """The index of a paper.

    >>> index_of("saddle-escape").counts["not here"] >= 0
    True
    """
    if paper not in indexed():
        raise LookupError(f"there is no index of {paper!r}; there are {', '.join(indexed())}")
    module = importlib.import_module(_module(paper))
    return Index(paper, tuple(module.ENTRIES), dict(module.COSTS))


def _module(paper: str) -> str:
    return f"netvitals_lab.papers.{paper.replace('-', '_')}.index"


def configured(trials: Sequence[Config]) -> str:
    """Configurations in words: what is the same in all of them, what they vary, and how many there are.

    >>> configured([{"net": n, "epochs": 25, "seed": s} for n in ("a", "b") for s in range(3)])
    '6 trials: net a, b; epochs 25; 3 seeds'
    """
    values: dict[str, dict[str, None]] = {}
    for config in trials:
        for key, value in config.items():
            if key not in HIDDEN and value is not None and not (isinstance(value, list) and len(value) > SHOWN):
                values.setdefault(key, {})[_plain(value)] = None
    parts = [f"{k} {', '.join(v)}" if len(v) <= SHOWN else f"{len(v)} values of {k}" for k, v in values.items()]
    seeds = {str(c["seed"]) for c in trials if "seed" in c}
    several = {len(c["seeds"]) if isinstance(c["seeds"], list) else int(c["seeds"]) for c in trials if "seeds" in c}
    count = max([len(seeds), *several])
    parts += [f"{count} seed{'s' * (count != 1)}"] if count else []
    return f"{len(trials)} trial{'s' * (len(trials) != 1)}: " + "; ".join(parts)


def _plain(value: Any) -> str:
    return "/".join(map(_plain, value)) if isinstance(value, list) else f"{value:g}" if _number(value) else str(value)


def _number(value: Any) -> bool:
    return isinstance(value, float)


def render_index(index: Index, pictures: Path | None = None) -> str:
    """The page of a paper, as Markdown."""
    counts = ", ".join(f"{n} {fate}" for fate, n in index.counts.items())
    lines = [
        f"# {index.paper}: every table, figure and experiment",
        "",
        f"This table lists all {len(index.entries)} tables, figures and experiments of the paper: {counts}.",
        f"The verdicts are from the [report of our own checks](../verdicts/{index.paper}.md). The costs are estimates.",
        "`netvitals studies --index docs/papers` writes this page.",
        "",
        *(f"- *{fate}*: {meaning}" for fate, meaning in FATES.items()),
        "",
        "| place in the paper | what it shows | status | study, picture | verdicts | trials at scale `paper` |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_line(index, entry, pictures) for entry in index.entries]
    return "\n".join([*lines, ""])


def _line(index: Index, entry: IndexEntry, pictures: Path | None) -> str:
    known = recorded_verdicts()
    ids = [f"{index.paper}/{c}" for c in entry.claims]
    record = "; ".join(_standing(i, known.get(i)) for i in ids)
    study = f"`{entry.study}`" if entry.study else ""
    drawn = [i.replace("/", "-") + ".svg" for i in ids]
    links = [
        f"[{n.removesuffix('.svg')}](../verdicts/images/{n})" for n in drawn if pictures and (pictures / n).is_file()
    ]
    trials = entry.trials("paper")
    there = trials and entry.fate != "small only"
    paper = f"{configured(trials)}; {index.costs[entry.study].of(len(trials))}" if there else ""
    fate = f"**{entry.fate}**" + (f": {entry.why}" if entry.why else "")
    cells = (entry.number, entry.shows, fate, ", ".join(filter(None, (study, *links))), record, paper)
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def _standing(claim: str, verdict: Verdict | None) -> str:
    name = claim.split("/", 1)[1]
    if verdict is None:
        return f"{name} not on record"
    number = f" ({verdict.number})" if verdict.number and len(verdict.number) < 40 else ""
    return f"{name} {verdict.label}{number}"


def write_indices(folder: str | os.PathLike[str], pictures: str | os.PathLike[str] | None = None) -> list[Path]:
    """Write ``PAPER.md`` for every paper that has an index."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = Path(pictures) if pictures is not None else folder.parent / "verdicts" / "images"
    recorded_verdicts.cache_clear()  # they may have been written a moment ago
    paths = []
    for paper in indexed():
        path = folder / f"{paper}.md"
        path.write_text(render_index(index_of(paper), drawn), encoding="utf-8")
        paths.append(path)
    return paths
