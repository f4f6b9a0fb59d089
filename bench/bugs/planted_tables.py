"""What the clinic publishes: ``docs/clinic.md``, its picture, and the record that findings print."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from planted_history import CHANGED

from netvitals_lab import clinic

Row = dict[str, Any]
TARGETS = {"sensitivity": 0.95, "specificity": 0.98, "place": 0.90, "cause": 0.85}
BLUE, RED, GREY = "#2f6fb0", "#c2452d", "#8a8f98"


def write(rows: list[Row], root: Path) -> None:
    """Write everything from the rows of ``bench/bugs/planted.py``.

    Args:
        rows: trials, cures and runs of rivals.
        root: of the repository.
    """
    trials = [r for r in rows if r["key"].startswith("trial|") and "failed" not in r]
    cures = [r for r in rows if r["key"].startswith("cure|") and "failed" not in r]
    rivals = [r for r in rows if r["key"].startswith("rival|") and "failed" not in r]
    every, trials, cures = (
        trials,
        _newest(trials),
        _newest(cures),
    )  # other tools may have been run beside an earlier set
    found = clinic.scores(trials, [c for c in cures if c["set"] == "disease"])
    found["harm_on_false_alarms"] = clinic.rate([c for c in cures if c["set"] == "control"], "harmed")
    found["rivals"] = _rivals(rivals, every)
    record = {k: found[k] for k in ("overall", "rules", "advice", "cures", "grades", "rivals")}
    target = root / "src" / "netvitals" / "findings" / "clinic.json"
    target.write_text(json.dumps(_rounded(record), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    (root / "docs" / "images" / "clinic.svg").write_text(picture(found), encoding="utf-8")
    (root / "docs" / "clinic.md").write_text(page(found, trials, cures), encoding="utf-8")
    readme = root / "README.md"
    text = readme.read_text(encoding="utf-8")
    begin, end = (text.index(mark) for mark in ("<!-- clinic -->", "<!-- /clinic -->"))
    readme.write_text(f"{text[:begin]}<!-- clinic -->\n{short(found)}\n{text[end:]}", encoding="utf-8")


def _newest(rows: list[Row]) -> list[Row]:
    """The rows of the last test set: sets differ in the hundreds of their seeds."""
    last = max((int(r["key"].split("|")[-1]) // 100 for r in rows), default=0)
    return [r for r in rows if int(r["key"].split("|")[-1]) // 100 == last]


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, float):
        return None if not math.isfinite(value) else round(value, 3)
    return value


def _rivals(rivals: list[Row], trials: list[Row]) -> dict[str, dict[str, Any]]:
    """Alarms of each tool on the sick and on the healthy, and ours on the very same runs."""
    out: dict[str, dict[str, Any]] = {}
    ours = {(r["name"], r["grade"], r["seed"]): r for r in trials}
    for name in dict.fromkeys(r["rival"] for r in rivals):
        mine = [r for r in rivals if r["rival"] == name]
        keys = [(*r["key"].split("|")[2:4], int(r["key"].split("|")[4])) for r in mine]
        same = [ours[k] for k in keys if k in ours]
        out[name] = {
            "sick": clinic.rate([r for r in mine if r["set"] == "disease"], "alarm"),
            "healthy": clinic.rate([r for r in mine if r["set"] == "control"], "alarm"),
            "our_sick": clinic.rate([r for r in same if r["set"] == "disease"], "alarm"),
            "our_healthy": clinic.rate([r for r in same if r["set"] == "control"], "alarm"),
        }
    return out


def _share(r: dict[str, float], digits: int = 0) -> str:
    if not r["n"]:
        return "–"
    return f"{100 * r['share']:.{digits}f} % ({100 * r['low']:.0f}–{100 * r['high']:.0f}), {r['k']} of {r['n']}"


def _target(words: str, r: dict[str, float], want: float, *, least: bool = True) -> str:
    """A target, marked where it is missed."""
    held = not r["n"] or (r["share"] >= want if least else r["share"] <= want)
    return words if held else f"{words}, **missed**"


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(["| " + " | ".join(r) + " |" for r in (head, ["---"] * len(head), *rows)])


def page(found: dict[str, Any], trials: list[Row], cures: list[Row]) -> str:
    """The page as Markdown.

    Args:
        found: the scores.
        trials: for what was missed and what was a false alarm.
        cures: for what advice did.

    Returns:
        The text.
    """
    over = found["overall"]
    rows = []
    for key, words in (
        ("sensitivity", "sick runs (moderate grade) in which an expected finding was given"),
        ("specificity", "healthy runs without a warning at the end"),
        ("specificity_live", "healthy runs without a warning at any time they were asked"),
        ("place", "caught runs in which the finding names where the disease sits"),
        ("cause", "sick runs whose first finding names the cause"),
    ):
        want = TARGETS.get(key)
        rows.append(
            [words, _share(over[key], 1), "" if want is None else _target(f"≥ {100 * want:.0f} %", over[key], want)]
        )
    delay = over["delay"]
    rows.append(
        [
            "measured steps from the onset to the finding",
            f"median {delay['median']:.0f} (quartiles {delay['low']:.0f}–{delay['high']:.0f})",
            "≤ 20" if delay["median"] <= 20 else "≤ 20, **missed**",
        ]
    )
    cure, harm = found["cures"]["cure"], found["cures"]["harm"]
    words = "runs mended by the first advice, of those that had harm to undo"
    rows.append([words, _share(cure, 1), _target("≥ 70 %", cure, 0.70)])
    words = "treated runs that ended worse than their untreated twin"
    rows.append([words, _share(harm, 1), _target("≤ 5 %", harm, 0.05, least=False)])
    seeds = sorted({r["seed"] for r in trials if r["grade"] == "moderate"})
    parts = [
        "# The clinic",
        "Written by `bench/bugs/planted.py --write` from its own runs. A diagnosis is worth its error rates: "
        f"{len(clinic.DISEASES)} diseases are planted in\nsmall networks at three grades, {len(clinic.CONTROLS)} "
        f"healthy "
        "controls are trained beside them, and every finding is judged. Thresholds were set on a\n"
        f"tuning set; what stands here is the test set: other seeds ({seeds[0]} to {seeds[-1]}), other widths, depths "
        f"and "
        "activations. Shares have Wilson's\nintervals of 95 %. A run is 100 to 160 steps long and measured on every "
        "second "
        "one; the vital signs that look seldom (rank, drift) look\nevery 25 steps.",
        "![What was caught and what was not](images/clinic.svg)",
        "## All in all",
        _table(["what", "test set", "target"], rows),
    ]
    if found["rivals"]:
        parts += ["## Beside other tools, on the same runs", _rival_table(found["rivals"])]
        parts.append(
            "An alarm is a warning or worse in the tool's own report at the end (for trainscope: a spike it "
            "detected). A tool "
            "that alarms\non sick and healthy alike says nothing; none of the others names a cause that could be "
            "scored."
        )
    parts += ["## By family and grade", _family_table(found)]
    parts += ["## By disease", _disease_table(found)]
    parts += ["## Controls", _control_table(found)]
    parts += ["## What advice did", _advice_table(found)]
    parts.append(
        "From the step of the finding on the first advice is applied to the run, which goes on for as long as the "
        "whole run "
        "was; its twin goes\non untreated. Mended: at least half of the gap between the untreated twin and a healthy "
        "one, in "
        "held-out loss, is closed. Diseases\nthat did no harm in this time are not counted."
    )
    missed = [r for r in trials if r["set"] == "disease" and r["grade"] == "moderate" and not r["caught"]]
    false = [r for r in trials if r["set"] == "control" and r["alarm"]]
    other = [r for r in trials if r["set"] == "disease" and r["grade"] == "moderate" and r["caught"] and not r["cause"]]
    parts.append("## What was missed, what was a false alarm, and where the cause was not first")
    parts.append(
        "\n".join(
            [
                f"- missed: {r['name']}, seed {r['seed']}" + (f" (said: {', '.join(r['rules'])})" if r["rules"] else "")
                for r in missed
            ]
            + [f"- false: {r['name']}, seed {r['seed']}: {', '.join(r['rules'])}" for r in false]
            + [f"- not the cause: {r['name']}, seed {r['seed']}: {r['first'] or 'nothing'} stood first" for r in other]
        )
        or "Nothing."
    )
    parts += ["## What was changed between test sets", CHANGED]
    return "\n\n".join(parts) + "\n"


def short(found: dict[str, Any]) -> str:
    """The README's table.

    Args:
        found: the scores.

    Returns:
        Markdown.
    """
    over, cured = found["overall"], found["cures"]
    rows = [
        [
            "**netvitals**",
            _share(over["sensitivity"]),
            f"{100 * (1 - over['specificity']['share']):.1f} %, "
            f"{over['specificity']['n'] - over['specificity']['k']} of {over['specificity']['n']}",
            f"{100 * over['cause']['share']:.0f} %",
            f"{over['delay']['median']:.0f}",
            f"{100 * cured['cure']['share']:.0f} % of {cured['cure']['n']}" if cured["cure"]["n"] else "–",
        ]
    ]
    for name, r in found["rivals"].items():
        healthy = r["healthy"]
        alarms = f"{100 * healthy['share']:.0f} %, {healthy['k']} of {healthy['n']}" if healthy["n"] else "–"
        rows.append([name, f"alarms on {_share(r['sick'])}", alarms, "–", "–", "–"])
    head = [
        "tool",
        "sick runs caught",
        "false alarms on healthy runs",
        "cause named first",
        "delay",
        "mended by the advice",
    ]
    return _table(head, rows)


def _rival_table(rivals: dict[str, Any]) -> str:
    rows = []
    for name, r in rivals.items():
        rows.append([name, _share(r["sick"]), _share(r["healthy"]), _share(r["our_sick"]), _share(r["our_healthy"])])
    head = [
        "tool",
        "alarms on sick runs",
        "alarms on healthy runs",
        "netvitals on the same sick",
        "netvitals on the same healthy",
    ]
    return _table(head, rows)


def _family_table(found: dict[str, Any]) -> str:
    rows = [[f, *(_share(by[g]) for g in clinic.GRADES)] for f, by in found["families"].items()]
    rows.append(["all", *(_share(found["grades"][g]) for g in clinic.GRADES)])
    return _table(["family", *clinic.GRADES], rows)


def _disease_table(found: dict[str, Any]) -> str:
    rows = []
    for name, d in found["diseases"].items():
        delay = "–" if not d["delay"]["n"] else f"{d['delay']['median']:.0f}"
        cure = "–" if not d["cure"]["n"] else f"{d['cure']['k']} of {d['cure']['n']}"
        caught = f"{d['moderate']['k']} of {d['moderate']['n']}"
        rows.append([name, d["family"], caught, f"{d['cause']['k']} of {d['cause']['n']}", d["first"], delay, cure])
    return _table(["disease", "family", "caught", "cause first", "first finding", "delay", "mended"], rows)


def _control_table(found: dict[str, Any]) -> str:
    return _table(["control", "quiet"], [[n, f"{r['k']} of {r['n']}"] for n, r in found["controls"].items()])


def _advice_table(found: dict[str, Any]) -> str:
    rows = []
    for rule, kinds in sorted(found["advice"].items()):
        for kind, t in kinds.items():
            rows.append([rule, kind, f"{t['mended']} of {t['tried']}", str(t["harmed"])])
    return _table(["finding", "remedy", "mended", "harmed"], rows) if rows else "Not tried yet."


def picture(found: dict[str, Any]) -> str:
    """Bars of what was caught by family, and alarms of each tool on the sick and on the healthy.

    Args:
        found: the scores.

    Returns:
        An SVG.
    """
    bars = [
        (f, by["moderate"]["share"], by["moderate"]["low"], by["moderate"]["high"], BLUE)
        for f, by in found["families"].items()
    ]
    over = found["overall"]
    tools = [("netvitals", over["sensitivity"], 1 - over["specificity"]["share"])]
    tools += [(name, r["sick"], r["healthy"]["share"]) for name, r in found["rivals"].items()]
    height = 40 + 26 * (len(bars) + 2 * len(tools) + 3)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" font-size="13" '
        'font-family="system-ui, sans-serif">',
        f'<rect width="760" height="{height}" fill="#ffffff"/>',
        '<text x="16" y="26" font-weight="700" fill="#20242a">Caught at moderate grade, by family</text>',
    ]
    y = 40
    for name, share, low, high, tone in bars:
        out += _bar(y, name, share, tone, (low, high))
        y += 26
    y += 26
    out.append(
        f'<text x="16" y="{y}" font-weight="700" fill="#20242a">'
        "Alarms on the sick (blue) and on the healthy (red)</text>"
    )
    y += 14
    for name, sick, healthy in tools:
        out += _bar(y, name, sick["share"], BLUE, (sick["low"], sick["high"]))
        out += _bar(y + 22, "", healthy, RED, None)
        y += 52
    return "\n".join([*out, "</svg>", ""])


def _bar(y: int, name: str, share: float, tone: str, interval: tuple[float, float] | None) -> list[str]:
    wide = 440
    share = 0.0 if math.isnan(share) else share
    out = [
        f'<text x="190" y="{y + 15}" text-anchor="end" fill="#20242a">{name}</text>',
        f'<rect x="200" y="{y + 3}" width="{wide}" height="16" fill="#eef0f3" rx="3"/>',
        f'<rect x="200" y="{y + 3}" width="{max(1.0, wide * share):.1f}" height="16" fill="{tone}" rx="3"/>',
        f'<text x="{200 + wide + 8}" y="{y + 15}" fill="#20242a">{100 * share:.0f} %</text>',
    ]
    if interval is not None and not math.isnan(interval[0]):
        a, b = (200 + wide * v for v in interval)
        out.append(f'<line x1="{a:.1f}" x2="{b:.1f}" y1="{y + 11}" y2="{y + 11}" stroke="#20242a" stroke-width="1.5"/>')
    return out
