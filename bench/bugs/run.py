"""The benchmark of reported bugs: which causes are named, and which scripts are accused without one.

python bench/bugs/run.py [--half development | --third] [--seeds 0,1,2] [--only NAME,NAME] [--rows rows.jsonl]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from netvitals_lab.bugs import cases, run_cases, table
from netvitals_lab.bugs.runner import PARTS
from netvitals_lab.bugs.scores import judged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=["development", "published"], default="development")
    parser.add_argument("--third", action="store_true", help="the third collection, on which no rule is developed")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--variants", default="bug,fixed,healthy")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--part", choices=list(PARTS), default="both")
    args = parser.parse_args()
    only = set(filter(None, args.only.split(",")))
    every = cases(collection="third") if args.third else cases(args.half)
    chosen = [case for case in every if not only or case.name in only]
    known = {case.name: case for case in chosen}
    outcomes = []
    seeds, variants = [int(s) for s in args.seeds.split(",")], args.variants.split(",")
    for outcome in run_cases(chosen, seeds, variants, args.jobs, args.part):
        outcomes.append(outcome)
        case = known[outcome.case]
        verdict = "error" if outcome.error else " ".join(k for k, v in judged(case, outcome).items() if v) or "quiet"
        said = ", ".join(f["rule"] for f in outcome.findings if f["severity"] in ("critical", "warning"))
        print(
            f"{outcome.case:45.45s} {outcome.variant:8s} {'learned' if outcome.learned else '-':8s} {verdict:18s} "
            f"{'/'.join(case.causes):30.30s} {said} {outcome.error.splitlines()[-1] if outcome.error else ''}",
            flush=True,
        )
        if args.rows:
            with args.rows.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
    for row, (count, total) in table(chosen, outcomes).items():
        print(f"{row:30s} {count} of {total} ({count / max(1, total):.0%})")


if __name__ == "__main__":
    main()
