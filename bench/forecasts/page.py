# ruff: noqa: E501 (lines of a page)
"""``docs/forecasts.md`` from the results of ``bench/forecasts/run.py``: skill, calibration, where it is silent, what it
missed."""

from __future__ import annotations

from typing import Any

from lookahead_page import HORIZONS, danger_lookahead, skills, values_lookahead

WORDS = {
    "gates/density@0.01": "gate density",
    "preactivations/preact_drift": "pre-activation drift",
    "sparsity/hard": "sparsity",
    "gradients/grad_norm": "gradient norm",
    "stream/rms": "residual stream",
    "attention/max_logit": "attention logits",
}


GATES = "gates/density@0.01"
NO_CEILING = ("gradients/grad_norm", "attention/max_logit")  # its looks are too far apart for a path


def page(results: dict[str, Any], lookahead: dict[str, Any], values: dict[str, Any]) -> str:
    """The page as Markdown, from the results of ``bench/forecasts/run.py``, ``bench/forecasts/divergence_lookahead.py`` and
    ``bench/forecasts/value_lookahead.py``."""
    test, tuning, seen, fresh = (results[half] for half in ("test", "tuning", "seen", "fresh"))
    parts = [
        _opening(tuning, test, seen, fresh),
        "## Targets",
        "Gates and plateaus on the test families. Danger that is lookahead (`lookahead=`) on seven families that were made "
        "when its rule was settled and\nrehearsed once, beside the rule that has the losses alone on the same runs; and that "
        "rule on the families that were fresh when it was settled.",
        _targets(test, fresh, lookahead["new"], values),
        _why_missed(test, seen, fresh),
        "## Plateaus",
        "First drop by half, asked at shares of the true time; error is |forecast − truth| / truth. A run counts as a "
        "plateau where ten looks\nand four tenths of the way pass before a tenth of the loss is gone. *False* are looks "
        "at other runs whose forecast did not come true.",
        _plateaus(tuning, "tuning"),
        _plateaus(test, "test"),
        _later(tuning, test),
        "## Quantities",
        "Skill is 1 − mean error / mean error of the best of four forecasts without a law (unchanged, goes on as before, "
        "slope per step,\nslope per unit of learning rate), the best chosen after the fact; intervals are 90 %, over runs "
        "drawn again. Days after a run was lost\ndo not count. The stream and attention logits have no fitted method: "
        "nothing that was learned on some families held on others, so that\nthe one goes on between its two lines and the "
        "other stays as it is.",
        _values(test, "test"),
        _values(fresh, "fresh"),
        _values(tuning, "tuning"),
        "## What could be had at best",
        "Skill of two forecasters that know the future. *Smooth path*: a line through the looks around the day, without "
        "those that the truth is\nread from; what it is wrong by is the noise of the measurement. *Law*: gate density by "
        "the law of its channels, with the mean and\ndeviation of every channel on the day itself.",
        _ceilings(test, "test"),
        "Gate density by family:",
        _families(test, tuning, fresh),
        "## Calibration",
        "How often the 50 and the 80 % intervals held.",
        _calibration(test, "test"),
        _calibration(fresh, "fresh"),
        "## Danger",
        _danger(tuning, test, seen, fresh),
        "## Danger, looked ahead",
        danger_lookahead(lookahead),
        "## Values, looked ahead",
        values_lookahead(values),
        "## Where it is silent",
        _silent(tuning, test),
    ]
    return "\n\n".join(parts) + "\n"


def _opening(tuning: dict[str, Any], test: dict[str, Any], seen: dict[str, Any], fresh: dict[str, Any]) -> str:
    count = lambda half: sum(half["runs"].values())
    families = lambda half: ", ".join(f"{name} ({n})" for name, n in half["runs"].items())
    return f"""# Forecasts, scored

Written by `python bench/forecasts/run.py docs` from `bench/results/forecasts.json`. Every forecast has a date, two intervals and the
conditions it rests on; it is stored when it is made and scored when its day comes. `netvitals forecasts RUN` shows the ledger of a
run; the corpus behind this page is made by `bench/forecasts/corpus.py`.

{count(tuning) + count(test) + count(seen) + count(fresh)} runs. Methods and their constants were chosen on the tuning families: {families(tuning)}.
The test families are {families(test)}.

What was changed after somebody had looked: *plateaus*: intervals were made narrower after a first replay of the test half (ln time from
0.29 to 0.22, by the tuning families; 94 % had held). *Values*: the weights of the blend were fitted on the tuning families and
not touched after a replay of the test half; after it the widths of the intervals were taken from errors of families that were left out of the fit, all
families counting alike, instead of errors of the fit itself (80 % intervals of gate density had held in 79, 75, 74, 69 and 63 %).
*Danger*: the rule has been replaced four times. The last but one, chosen on the tuning families, called 11 of 24 lost runs and 9 of 35
sound ones on five families that were fresh then; these and two older ones, {families(seen)}, were used to choose the rule of today. It is scored on families that were
made after that and replayed once: {families(fresh)}. A run that broke off (its loss a million times that of the start) counts as lost,
and what a schedule had planned is known beyond the end of a run that broke off."""


def _range(value: list[float | None]) -> str:
    if value[0] is None:
        return "–"
    low, high = (f"{v:+.2f}" if v is not None else "–" for v in value[1:])
    return f"{value[0]:+.2f} ({low} to {high})"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _targets(test: dict[str, Any], fresh: dict[str, Any], new: dict[str, Any], values: dict[str, Any]) -> str:
    gates, later = (
        [half["values"].get(f"gates/density@0.01 | {h}", {}).get("skill", [None])[0] for h in HORIZONS]
        for half in (test, fresh)
    )
    told = lambda skills: ", ".join(f"{g:+.2f}" for g in skills if g is not None)
    half = test["plateau"]["at"]["0.5"]
    covered = {f: p["covered80"] for f, p in test["plateaus"].items() if p["covered80"] is not None}
    looks = test["plateau"]["looks"]
    false = test["plateau"]["false looks"] / max(1, looks)
    inside = all(0.7 <= c <= 0.9 for c in covered.values())
    met = lambda good: "met" if good else "missed"
    rows = [
        *(
            (f"gates, lookahead, {name} families: skill above 0.3 at every horizon", told(found), _above(found))
            for name, found in ((half, skills(values[half], GATES, "look-ahead")) for half in ("test", "fresh", "new"))
        ),
        (
            "gates from the past of the run: the same",
            f"{told(gates)} (fresh families: {told(later)})",
            _above(gates),
        ),
        (
            "plateau: median error at half time at most 15 % where it speaks",
            f"{100 * half['error'][0]:.1f} % ({half['spoke']} of {half['asked']} plateaus)",
            half["error"][0] <= 0.15,
        ),
        (
            "plateau: 80 % intervals cover 70 to 90 % in every family",
            ", ".join(f"{f} {_share(c)}" for f, c in covered.items()) + "; it spoke in no other",
            inside,
        ),
        (
            "plateau: false alarms on non-plateaus below 5 % of looks",
            f"{100 * false:.1f} % of {looks:,} looks",
            false < 0.05,
        ),
        *(
            row
            for words, d in (
                ("danger, looked ahead", new["looked ahead"]),
                ("the same runs, from the losses alone", new["losses"]),
                ("danger from the losses alone, fresh families", fresh["danger"]),
            )
            for row in _danger_targets(words, d)
        ),
    ]
    lines = [f"| {what} | {value} | {met(good)} |" for what, value, good in rows]
    return "\n".join(["| target | measured | |", "|---|---|---|", *lines])


def _above(found: list[float | None]) -> bool:
    return all(skill is not None and skill > 0.3 for skill in found)


def _danger_targets(words: str, d: dict[str, Any]) -> list[tuple[str, str, bool]]:
    called, wrong = d["called"] / max(1, d["lost"]), d["false"] / max(1, d["sound"])
    ahead, alarms = (
        "called 20 steps ahead in 80 % of runs that are lost after step 60",
        "false alarms on fewer than 5 %",
    )
    return [
        (f"{words}: {ahead}", f"{d['called']} of {d['lost']} ({_share(called)})", called >= 0.8),
        (
            f"{words}: {alarms} of runs that are not lost",
            f"{d['false']} of {d['sound']} ({_share(wrong)})",
            wrong < 0.05,
        ),
    ]


def _why_missed(test: dict[str, Any], seen: dict[str, Any], fresh: dict[str, Any]) -> str:
    values = [test["values"][f"gates/density@0.01 | {h}"] for h in HORIZONS]
    signs = [(half["danger"]["signs"], half["danger"]["lost"]) for half in (seen, fresh)]
    numbers = lambda which: ", ".join(f"{v[which]:+.2f}" for v in values)
    return (
        "Why those without a look-ahead are missed. *Gates*: a forecaster that knows the smooth path has a skill of "
        f"{numbers('ceiling')}, so that at 10 % half of the error of the best forecast\nwithout a "
        "law is the noise of a look; one that knows every channel's mean and deviation on the day "
        f"has {numbers('law_ceiling')}.\nThe rest is where training goes, and the past of "
        "a run says little of it: on the tuning families, each left out in its turn, the blend\nreached +0.09, +0.16, "
        "+0.26, +0.28 and +0.33 (`bench/forecasts/fit.py`), and gradient-boosted trees on more of the same past +0.11, +0.15, +0.22, +0.29 and +0.14. "
        "At first a term for learning\nrates that climb beyond all that the network has known was told at any climb: it gave -0.03, +0.03, +0.15, "
        "+0.23 and +0.39 on the test families\nand +0.12, +0.01, -0.03, +0.06 and -1.57 on fresh ones (-13.7 on wine, whose networks bear such rates). Since then "
        "nothing is said of gates and sparsity on days\non which the rate is more than twice the highest known; that was decided after all families had been seen. "
        f"*Danger from the losses*: of the runs that were lost, {signs[0][0]} of {signs[0][1]} (families that were fresh at\nfirst) and "
        f"{signs[1][0]} of {signs[1][1]} (fresh) had a loss that was a tenth above its lowest, by three standard errors, at any "
        "of forty steps up to the twentieth before; the others\nwere gone in less. But 85 of 207 sound runs of the first 25 families "
        "show as much at some step, and gradient norm and update ratio tell the\ntwo apart no better. With all 25 families at hand the rule calls 67 of 105 lost runs and 10\nof 207 sound ones; left "
        "out in turn, rules of its kind call 60 to 63 % with 6 to 9 % false alarms. (What is said of trees, of other signs and of rules left\nout was measured while the methods were chosen.)"
    )


def _ceilings(half: dict[str, Any], name: str) -> str:
    lines = [f"| ceiling, {name} | {' | '.join(HORIZONS)} |", "|---" * (len(HORIZONS) + 1) + "|"]
    rows = [(q, "ceiling", "smooth path") for q in WORDS if q not in NO_CEILING] + [
        ("gates/density@0.01", "law_ceiling", "law")
    ]
    for q, which, words in rows:
        cells = [half["values"].get(f"{q} | {h}", {}).get(which) for h in HORIZONS]
        if any(c is not None for c in cells):
            shown = " | ".join("–" if c is None else f"{c:+.2f}" for c in cells)
            lines.append(f"| {WORDS[q]}, {words} | {shown} |")
    return "\n".join(lines)


def _families(test: dict[str, Any], tuning: dict[str, Any], fresh: dict[str, Any]) -> str:
    lines = [f"| family | {' | '.join(HORIZONS)} |", "|---" * (len(HORIZONS) + 1) + "|"]
    for name, half in (("test", test), ("fresh", fresh), ("tuning", tuning)):
        values = [half["values"].get(f"gates/density@0.01 | {h}", {}).get("families", {}) for h in HORIZONS]
        for family in dict.fromkeys(f for v in values for f in v):
            cells = [v.get(family) for v in values]
            lines.append(f"| {family} ({name}) | {' | '.join('–' if c is None else f'{c:+.2f}' for c in cells)} |")
    return "\n".join(lines)


def _plateaus(half: dict[str, Any], name: str) -> str:
    lines = [
        f"| {name} family | plateaus | 10 % | 25 % | 50 % | 75 % | 80 % interval held | false looks |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for family, p in [*half["plateaus"].items(), ("all", half["plateau"])]:
        cells = []
        for share in ("0.1", "0.25", "0.5", "0.75"):
            at = p["at"][share]
            cells.append(
                f"{at['error'][0]:.2f} ({at['spoke']}/{at['asked']})" if at["spoke"] else f"silent (0/{at['asked']})"
            )
        if not p["plateaus"]:
            cells = ["–"] * 4
        held = f"{_share(p['covered80'])} of {p['forecasts']}" if p["forecasts"] else "–"
        false = f"{p['false looks']} of {p['looks']}" if p["looks"] else "–"
        lines.append(f"| {family} | {p['plateaus']} | {' | '.join(cells)} | {held} | {false} |")
    return "\n".join(lines)


def _later(tuning: dict[str, Any], test: dict[str, Any]) -> str:
    words = [
        f"{half['plateau']['later']} on the {name} families, of which {_share(half['plateau']['later covered80'])} held"
        for name, half in (("tuning", tuning), ("test", test))
    ]
    return (
        "After the first drop only the leaving of the next plateau is told (a fall by 5 % of its level), from its own "
        f"slope: {'; '.join(words)} (80 % intervals)."
    )


def _values(half: dict[str, Any], name: str) -> str:
    quantities = dict.fromkeys(key.split(" | ")[0] for key in half["values"])
    lines = [f"| skill, {name} | {' | '.join(HORIZONS)} |", "|---" * (len(HORIZONS) + 1) + "|"]
    for q in quantities:
        cells = [half["values"].get(f"{q} | {h}") for h in HORIZONS]
        lines.append(f"| {WORDS.get(q, q)} | {' | '.join('–' if c is None else _range(c['skill']) for c in cells)} |")
    return "\n".join(lines)


def _calibration(half: dict[str, Any], name: str) -> str:
    quantities = dict.fromkeys(key.split(" | ")[0] for key in half["values"])
    lines = [f"| 50 % / 80 %, {name} | {' | '.join(HORIZONS)} |", "|---" * (len(HORIZONS) + 1) + "|"]
    for q in quantities:
        cells = []
        for h in HORIZONS:
            c = half["values"].get(f"{q} | {h}")
            cells.append("–" if c is None else f"{_share(c['coverage50'][0])} / {_share(c['coverage80'][0])}")
        lines.append(f"| {WORDS.get(q, q)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _danger(tuning: dict[str, Any], test: dict[str, Any], seen: dict[str, Any], fresh: dict[str, Any]) -> str:
    lines = [
        "| families | lost after step 60 | showed a sign in time | called 20 steps ahead | and not withdrawn | not lost | false alarms |",
        "|---|---|---|---|---|---|---|",
    ]
    named = (("tuning", tuning), ("fresh at first", seen), ("test, not blind", test), ("fresh", fresh))
    for name, half in named:
        d = half["danger"]
        counts = (d[key] for key in ("lost", "signs", "called", "standing", "sound", "false"))
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    wrong = [f"{f} {d['false']} of {d['sound']}" for _, h in named for f, d in h["dangers"].items() if d["false"]]
    late = [
        f"{f} {d['lost'] - d['called']} of {d['lost']}"
        for _, h in named
        for f, d in h["dangers"].items()
        if d["lost"] > d["called"]
    ]
    return (
        "\n".join(lines) + f"\n\nFalse alarms by family: {', '.join(wrong)}. Late or never called: {', '.join(late)}."
    )


def _silent(tuning: dict[str, Any], test: dict[str, Any]) -> str:
    silent = [f for half in (tuning, test) for f, p in half["plateaus"].items() if p["plateaus"] and not p["forecasts"]]
    asked = sum(half["plateau"]["at"]["0.5"]["asked"] for half in (tuning, test))
    spoke = sum(half["plateau"]["at"]["0.5"]["spoke"] for half in (tuning, test))
    alone = test["alone"]
    return (
        f"At half time {spoke} of {asked} plateaus had a forecast. It was silent on every plateau of: "
        f"{', '.join(silent) or 'no family'}: there the loss does not fall as\nthe slope of one growing direction says, "
        "and that is the reason it gives. From the loss alone, without a fixed batch, "
        f"{alone['forecasts']} forecasts were made on the test\nfamilies, of which {_share(alone['covered80'])} held. A "
        "method that was no better than a forecast without a law on six days of a run is demoted there and says so."
    )
