"""Write ``src/netvitals/forecasts/skill.json`` and the table of ``docs/forecasts.md`` from the results.

python bench/forecasts/skill.py
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from plateaus import NAIVE, SHARES, summary
from results import load, plain

ROOT = Path(__file__).parents[2]
SKILLS, PAGE = ROOT / "src/netvitals/forecasts/skill.json", ROOT / "docs/forecasts.md"
BEGIN, END = "<!-- scores -->", "<!-- /scores -->"


def call_skill(counts: dict[str, int]) -> float:
    """1 − wrong answers over those of the better of "never" and "always"; NaN where all runs end alike."""
    best = min(counts["lost"], counts["sound"])
    wrong = counts["lost"] - counts["called"] + counts["false"]
    return 1 - wrong / best if best else math.nan


def table(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Method → kind of run → skill and runs."""
    plateaus = found["plateaus"]
    out: dict[str, dict[str, Any]] = {"plateau": {}, "losses": {}, "look-ahead": {}}
    for kind in sorted({r["kind"] for r in plateaus}):
        runs = [r for r in plateaus if r["kind"] == kind]
        s = summary(runs)
        out["plateau"][kind] = {"skill": s["skill"], "runs": s["plateaus"]}
    for kind, by in found["divergence"]["kinds"].items():
        for method, counts in by.items():
            out[method][kind] = {"skill": call_skill(counts), "runs": counts["lost"] + counts["sound"]}
    return plain(out)  # type: ignore[no-any-return]


def rows(found: dict[str, Any]) -> list[str]:
    """The table of the page."""
    runs, d = found["plateaus"], found["divergence"]
    s = summary(runs)
    held, said = sum(a["held"] for a in s["at"].values()), s["forecasts"]
    half = s["at"]["0.5"]
    families = dict.fromkeys(r["family"] for r in runs)
    parts = {f: summary([r for r in runs if r["family"] == f]) for f in families}
    met = [
        f for f, p in parts.items()
        if p["at"]["0.5"]["spoke"] >= 0.5 * p["plateaus"] > 0 and p["at"]["0.5"]["median error"] <= 0.06
    ]  # fmt: skip
    by_share = ", ".join(f"{100 * a['held'] / max(1, a['spoke']):.0f}" for a in s["at"].values())
    spoke = ", ".join(f"{100 * a['spoke'] / s['plateaus']:.0f}" for a in s["at"].values())
    call = lambda c: f"{c['called']} of {c['lost']} ({100 * c['called'] / c['lost']:.0f} %)"
    false = lambda c: f"{c['false']} of {c['sound']} ({100 * c['false'] / c['sound']:.0f} %)"
    held_out = d["held out"]
    shares = ", ".join(f"{100 * share:.0f}" for share in SHARES)
    lines = [
        "| forecast, held-out families | wanted | measured |",
        "|---|---|---|",
        f"| plateau: it speaks at {shares} % of the way | ≥ 50 % at half time | {spoke} % of {s['plateaus']} |",
        f"| plateau: 80 % intervals that held there | 72–88 % each | {by_share} % ({held} of {said}) |",
        f"| plateau: median error at half time | ≤ 0.06 in three families | {half['median error']:.3f}; ≤ 0.06 in "
        f"{len(met)} of {len(parts)} |",
        f"| plateau: skill over the best of {len(NAIVE)} baselines | ≥ 0.2 | {s['skill']:.2f} |",
    ]
    for name, counts in held_out.items():
        lines.append(
            f"| divergence from {NAMES[name]}: called 20 steps ahead; false alarms | ≥ 70 %; ≤ 2 % | {call(counts)}; "
            f"{false(counts)} |"
        )
    return lines


NAMES = {
    "signs": "ratios, sharpness and norms",
    "losses": "the losses and the schedule (default)",
    "look-ahead": "a copy that trains ahead (`lookahead=`)",
}


def main() -> None:
    found = load()
    SKILLS.write_text(json.dumps(table(found), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + "\n".join([BEGIN, *rows(found), END]) + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
