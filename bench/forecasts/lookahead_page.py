# ruff: noqa: E501 (lines of a page)
"""The sections of ``docs/forecasts.md`` on copies that train ahead: danger, and values on coming days."""

from __future__ import annotations

from typing import Any

from scipy.stats import binomtest

HORIZONS = ("10 %", "25 %", "50 %", "100 %", "end")
WORDS = {"gates/density@0.01": "gate density", "sparsity/hard": "sparsity", "stream/rms": "residual stream"}


def danger_lookahead(halves: dict[str, Any]) -> str:
    """What came of training copies ahead, by half and by family of the new ones."""
    named = {"tuning": "tuning", "seen": "fresh at first", "test": "test", "fresh": "fresh", "new": "**new**"}
    lines = [
        "| families | lost after step 60 | called 20 steps ahead: looked ahead | from the losses | not lost | false alarms: looked ahead | from the losses | median lead | looked ahead steps over the run's: all runs | those not lost | date held |",
        "|---" * 11 + "|",
    ]
    for half in (h for h in named if h in halves):
        h = halves[half]
        r, plain = h["looked ahead"], h["losses"]
        held = f"{h['dates held']} of {h['dates']}"
        cost = f"{h['cost']:.2f} | {h['cost of sound runs']:.2f}"
        lines.append(
            f"| {named[half]} | {r['lost']} | {r['called']} | {plain['called']} | {r['sound']} | {r['false']} | {plain['false']} | {r['lead']:.0f} | {cost} | {held} |"
        )
    families = [
        f"{name} {f['looked ahead']['called']} of {f['looked ahead']['lost']} ({f['losses']['called']}), "
        f"{f['looked ahead']['false']} of {f['looked ahead']['sound']} ({f['losses']['false']})"
        for name, f in halves["new"]["families"].items()
    ]
    top = max(h["highest cost"] for h in halves.values())
    return (
        "With `nv.watch(..., lookahead=)` a copy of model and optimizer trains 100 steps ahead, at the learning rates that "
        "are planned and on the last 32 batches\n(all of them where a step takes the whole set), wherever the loss is a tenth above its lowest by three standard errors "
        "or the schedule leads a fifth above all\nrates that the run has known. A run is called if the copy is lost in two orders of the batches. Looks were 10 steps "
        "apart. The rule and its constants\nwere chosen on the tuning families and those that were fresh at first (offline, on 117 of their runs); the others "
        "were looked ahead\nonce after that. Families that neither rule was chosen on, fresh and new together: "
        f"{_both(halves['fresh'], halves['new'])}; intervals are 90 %, as if runs were independent, which three seeds of one set-up are not quite.\n\n"
        + "\n".join(lines)
        + "\n\nNew families, called of lost and false of not lost (from the losses): "
        + "; ".join(families)
        + f". *Date held*: lost within the 80 % interval of the first call.\n\nThe cost is high where rates rise for long, as they do on purpose in "
        f"many of these runs (at most {top:.1f} steps for one of the run), and nothing at a steady rate with a loss that falls; so it is off "
        "unless asked for.\nRehearsals may take as many steps as the run has made, and 400 besides (`budget=`). With a fifth instead, 18 of 41 runs were called in time "
        "offline\nwhere 35 were with all; runs of some hundred steps have no time to spare. Every run was trained with and without "
        "look-aheads, and the losses were the same bit for bit."
    )


def _both(*halves: dict[str, Any]) -> str:
    """Counts over several halves, with 90 % intervals by Wilson's score."""
    words = []
    for rule, name in (("looked ahead", "looked ahead"), ("losses", "from the losses")):
        d = {key: sum(h[rule][key] for h in halves) for key in ("lost", "called", "sound", "false")}
        spans = (
            binomtest(d[a], d[b]).proportion_ci(0.9, "wilson") for a, b in (("called", "lost"), ("false", "sound"))
        )
        ahead, wrong = (f"({100 * s.low:.0f} to {100 * s.high:.0f} %)" for s in spans)
        words.append(
            f"{name} {d['called']} of {d['lost']} called {ahead}, {d['false']} of {d['sound']} false alarms {wrong}"
        )
    return "; ".join(words)


def skills(half: dict[str, Any], quantity: str, method: str, kind: str = "all") -> list[float | None]:
    """Skill by horizon."""
    found = (half["values"].get(f"{quantity} | {h} | {method} | {kind}") for h in HORIZONS)
    return [row["skill"][0] if row else None for row in found]


def values_lookahead(halves: dict[str, Any]) -> str:
    """How far copies were from what came, by half, quantity and horizon; beside them what the past said."""
    cell = lambda v: "–" if v is None else f"{v:+.2f}"
    lines = [f"| skill | {' | '.join(HORIZONS)} |", "|---" * (len(HORIZONS) + 1) + "|"]
    held = [f"| 50 % / 80 % intervals held | {' | '.join(HORIZONS)} |", "|---" * (len(HORIZONS) + 1) + "|"]
    for half in ("test", "fresh", "new", "tuning"):
        for quantity, word in WORDS.items():
            rows = [
                ("looked ahead", skills(halves[half], quantity, "look-ahead")),
                ("looked ahead, minibatches only", skills(halves[half], quantity, "look-ahead", "minibatches")),
                ("from the past, same days", skills(halves[half], quantity, "past")),
            ]
            for name, found in rows if any(v is not None for v in rows[0][1]) else ():
                lines.append(f"| {word}, {half}: {name} | {' | '.join(map(cell, found))} |")
            each = [halves[half]["values"].get(f"{quantity} | {h} | look-ahead | minibatches") for h in HORIZONS]
            if any(each):
                told = [f"{100 * e['coverage50']:.0f} % / {100 * e['coverage80']:.0f} %" if e else "–" for e in each]
                held.append(f"| {word}, {half}, minibatches | {' | '.join(told)} |")
    few = "; ".join(f"{n} batches {', '.join(map(cell, map(by.get, HORIZONS)))}" for n, by in halves["batches"].items())
    costs = ", ".join(f"{halves[h]['cost']:.2f} ({h})" for h in ("test", "fresh", "new", "tuning"))
    families = halves["test"]["values"]["gates/density@0.01 | 100 % | look-ahead | all"]["families"]
    by_family = ", ".join(f"{f} {v:+.2f}" for f, v in families.items() if v is not None)
    return (
        "What the past does not say, a copy finds out. With `Lookahead(..., horizon=1.0)` it trains on the last 32 batches at the planned rates, each "
        "time that the run\nhas doubled, for as many steps as have passed, and is measured on the days that forecasts are made for; its reading on the fixed batch is the "
        "forecast. Nothing was\nfitted but the widths of intervals, on the first seed of the tuning families (there they are shown as they were before); the other halves were run once after that. The end is looked ahead from the\n"
        "second half of a run on. Where every step takes the whole set a look-ahead is the future itself, so runs on minibatches are shown apart too.\n\n"
        + "\n".join(lines)
        + "\n\n"
        + "\n".join(held)
        + f"\n\nRehearsed steps over the run's: {costs}; with `horizon=0.1` a tenth of that, for days at 10 %. Gate density at 100 %, test families: {by_family}.\n\n"
        f"A copy learns few batches by heart. Gate density of CNNs and MLPs on images (first seed) by the number of batches of 64 it may train on: {few}. With fewer than 16 no value is "
        "told.\nIn most runs of this corpus 32 batches hold a large part of the set, or all of it; on larger sets give more of them."
    )
