"""Writes docs/bugs.md, and the table of README, from the rows of the published half and of the third collection.

python bench/bugs/run.py --half published --seeds 0,1,2 --rows both.jsonl
python bench/bugs/run.py --half published --part checks --rows checks.jsonl       # and --part "vital signs"
python bench/bugs/run.py --third --rows third.jsonl
python bench/bugs/page.py both.jsonl checks.jsonl vitals.jsonl third.jsonl
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from netvitals_lab.bugs import Outcome, cases, table
from netvitals_lab.bugs.scores import ALARMS, judged

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "bugs.md"
NOTES = Path(__file__).with_name("notes.md")  # what was run when, and what was changed after somebody had looked
FEW = 4  # scripts of a field that is told by itself


def outcomes(path: str) -> list[Outcome]:
    facts = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return [Outcome(**{**one, "findings": tuple(one["findings"])}) for one in facts]


def interval(count: int, total: int) -> str:
    """Wilson's 95 % interval."""
    z, p = 1.96, count / total
    middle = (p + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    return f"{100 * max(0.0, middle - half):.0f}–{100 * min(1.0, middle + half):.0f}"


def figures(chosen: list[Any], rows: list[Outcome], title: str) -> list[str]:
    lines = [f"| {title} | scripts | share | 95 % interval |", "| --- | --- | --- | --- |"]
    for name, (count, total) in table(chosen, rows).items():
        lines.append(f"| {name} | {count} of {total} | {count / total:.0%} | {interval(count, total)} % |")
    return lines


def tools(chosen: list[Any], rows: list[Outcome], notes: str) -> list[str]:
    """The table of README: the watch, and the tools that the notes have a row of."""
    found = table(chosen, rows)
    named, alarm, fixed, healthy = (
        found[row] for row in ("cause named", "any alarm", "fixed scripts quiet", "healthy scripts quiet")
    )
    false = (f"{total - quiet} of {total}" for quiet, total in (fixed, healthy))
    lines = [
        "| tool | cause named | any alarm | false alarms on fixed scripts | on healthy scripts |",
        "| --- | --- | --- | --- | --- |",
        f"| `nv.watch` | {named[0]} of {named[1]} | {alarm[0]} of {alarm[1]} | {' | '.join(false)} |",
    ]
    for row in re.findall(r"^\| .* of .* \|$", notes.split("## Before training")[1], re.M):
        name, _, named_by, _, alarmed, on_fixed, on_healthy, _ = row.strip("| ").split(" | ")
        lines.append(f"| {name} | {named_by} | {alarmed} | {on_fixed} | {on_healthy} |")
    return lines


def parts(chosen: list[Any], several: dict[str, list[Outcome]]) -> list[str]:
    """The ablation: each part of a watch by itself."""
    found = {name: table(chosen, [row for row in rows if row.seed == 0]) for name, rows in several.items()}
    lines = ["| seed 0 | " + " | ".join(found) + " |", "| --- |" + " --- |" * len(found)]
    for row in next(iter(found.values())):
        shares = (f"{count / total:.0%}" for count, total in (one[row] for one in found.values()))
        lines.append(f"| {row} | " + " | ".join(shares) + " |")
    return lines


def by_field(chosen: list[Any], rows: list[Outcome]) -> list[str]:
    """Scripts by field, those of small fields together."""
    known = {case.name: case for case in chosen}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    fields = {name: re.split(r"[(,:]", case.field)[0].strip().lower() for name, case in known.items()}
    sizes = Counter(fields[row.case] for row in rows)
    for row in rows:
        case = known[row.case]
        field = fields[row.case] if sizes[fields[row.case]] >= FEW * len({r.seed for r in rows}) else "other fields"
        verdict = judged(case, row)
        if row.variant != "bug":
            counts[field].update(healthy=1, quiet=int(not verdict["alarm"]))
        elif case.observable:
            counts[field].update(bugs=1, named=int(verdict["named"]))
    lines = ["| field | bugs named | fixed and healthy quiet |", "| --- | --- | --- |"]
    for field, c in sorted(counts.items(), key=lambda item: (item[0] == "other fields", item[0])):
        lines.append(f"| {field} | {c['named']} of {c['bugs']} | {c['quiet']} of {c['healthy']} |")
    return lines


def lists(chosen: list[Any], rows: list[Outcome]) -> dict[str, set[str]]:
    """Misses and false alarms as rows of tables, of the first seed."""
    known = {case.name: case for case in chosen}
    out: dict[str, set[str]] = {"missed": set(), "another cause named": set(), "false alarm": set()}
    for row in rows:
        case = known[row.case]
        alarms = [f for f in row.findings if f["severity"] in ALARMS]
        if row.variant != "bug" and alarms:
            out["false alarm"].add(f"| `{case.name}` ({row.variant}) | {alarms[0]['rule']} |")
        elif row.variant == "bug" and case.observable and not judged(case, row)["named"]:
            out["another cause named" if alarms else "missed"].add(f"| `{case.name}` | {' or '.join(case.causes)} |")
    return out


def listed(found: dict[str, set[str]]) -> list[str]:
    """A table for each list."""
    heads = {"missed": "true cause", "another cause named": "true cause", "false alarm": "finding"}
    return ["\n".join([f"| {name} | {heads[name]} |", "| --- | --- |", *sorted(rows)]) for name, rows in found.items()]


def confusion(chosen: list[Any], rows: list[Outcome]) -> list[str]:
    known = {case.name: case for case in chosen}
    pairs: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.variant == "bug" and known[row.case].observable:
            first = next((f["rule"] for f in row.findings if f["severity"] in ALARMS), "—")
            pairs[" or ".join(known[row.case].causes), first] += 1
    return [
        "| cause | first finding | scripts |",
        "| --- | --- | --- |",
        *(f"| {c} | {r} | {n} |" for (c, r), n in sorted(pairs.items())),
    ]


def main() -> None:
    chosen, third_cases, every = cases("published"), cases(collection="third"), cases()
    both, checks, vitals, third = map(outcomes, sys.argv[1:5])
    first = [row for row in both if row.seed == 0]
    bugs, healthy = (sum(c.kind == kind for c in every) for kind in ("bug", "healthy"))
    named, named3 = lists(chosen, first), lists(third_cases, third)
    notes = NOTES.read_text(encoding="utf-8").strip()
    main_table = figures(chosen, both, "published half")
    third_table = figures(third_cases, third, "third collection")
    several = {"checks and vital signs": both, "checks alone": checks, "the papers' vital signs alone": vitals}

    text = [
        "# Reported bugs",
        f"The benchmark has {bugs} scripts with a bug that people reported, each with its fix, and {healthy} unusual healthy scripts. "
        "Every script has its own training loop, and uses `nv.watch` as the README shows. The reports come from GitHub issues, forums, "
        "TrainCheck, DeepFD, AUTOTRAINER, defects4dl, gDefects4DL, the taxonomy of Humbatova et al., and the galleries of torchtest "
        "and others. The authors of the scripts had not read the rules of netvitals. `lab/src/netvitals_lab/bugs/cases/` has the "
        "scripts and lists the reports that were left out.",
        "A hash of the source code of each script decides to which of two halves the script belongs. Checks and thresholds were "
        "developed on one half. The table shows the other half, the *published half*, with three seeds. The cause of a bug counts as "
        "*named* if a warning or a critical finding is assigned to this cause in `causes.py`. A script is *quiet* if it has no "
        "warning and no critical finding.",
        "<!-- bugs -->\n" + "\n".join(main_table) + "\n<!-- /bugs -->",
        notes,
        "## What each part contributes",
        "The table shows the scores of all checks and vital signs together, of the checks alone, and of the papers' vital signs "
        "alone, for seed 0.",
        "\n".join(parts(chosen, several)),
        "## Fields on which no rule was developed",
        f"The third collection has {sum(c.kind == 'bug' for c in third_cases)} bugs and {sum(c.kind == 'healthy' for c in third_cases)} "
        "healthy scripts from fields that are rare in the other scripts of the benchmark. The scripts of the third collection were written later, "
        "from public reports. The table shows the first run on the third collection, with seed 0.",
        "\n".join(third_table),
        "\n".join(by_field(third_cases, third)),
        "## The published half by field",
        "\n".join(by_field(chosen, first)),
        "## Misses and false alarms of the published half",
        *listed(named),
        "## Misses and false alarms of the third collection",
        *listed(named3),
        "## First finding by true cause",
        "\n".join(confusion(chosen, first)),
        "The commands at the top of `bench/bugs/page.py` make this page again.",
    ]
    PAGE.write_text("\n\n".join(text) + "\n", encoding="utf-8")
    readme = ROOT / "README.md"
    words = readme.read_text(encoding="utf-8")
    block = "<!-- bugs -->\n" + "\n".join(tools(chosen, both, notes)) + "\n<!-- /bugs -->"
    readme.write_text(re.sub(r"<!-- bugs -->.*?<!-- /bugs -->", lambda _: block, words, flags=re.S), encoding="utf-8")
    print("\n".join([*main_table, *third_table]))


if __name__ == "__main__":
    main()
