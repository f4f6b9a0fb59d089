"""Which tools of suppression work where they would be used, and at what cost: claims of ours, one for each tool."""

from __future__ import annotations

from collections.abc import Sequence

from netvitals_lab import Claims, Row, Verdict, fails, holds, not_judged
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import difference, means, paired
from netvitals_lab.engine.verdict import Fact
from netvitals_lab.papers.weight_drift.suppression_costs import TOOLS

LEFT = 0.25  # of the drift that may be left


claim = Claims("weight-drift", study="weight-drift-suppression", seeds=PAIRS)

for name in TOOLS[1:]:

    @claim(
        f"F24-{name.replace('_', '-')}",
        "less than a quarter is left, the score does not surely fall",
        statement=f"{name} removes the drift of hidden weights on real data, with Adam, at no cost",
        uses={"tool": ("none", name)},
        effect="hidden drift_z with the tool over without; score with minus without, paired by seed",
        choices=(
            "an MLP on photographs (digits where there are none), a GPT and Hugging Face's GPT-2 of two blocks on text",
            "Adam, 200 steps",
        ),
    )
    def worth(rows: Sequence[Row], tool: str = name) -> Verdict:
        """On every network: less than a quarter of the drift is left, and the score does not surely fall."""
        facts: dict[str, Fact] = {}
        left, costs, pairs = [], [], 0
        for network in dict.fromkeys(r["network"] for r in rows):
            drift, score, sunk = (
                [means(rows, column, "seed", network=network, tool=t) for t in ("none", tool)]
                for column in ("drift_z", "score", "sunk")
            )
            pairs = len(drift[1])
            if pairs < 2:
                return not_judged(f"{pairs} seed is no spread")
            cost, sinks = difference(paired(score[1], score[0])), difference(paired(sunk[1], sunk[0]))
            plain, held = (sum(d.values()) / len(d) for d in drift)
            bare = difference(drift[0].values())
            if bare.low * bare.high > 0:  # where the weights do not drift there is nothing to remove
                left.append(abs(held) / abs(plain))
            costs.append(cost)
            facts |= {
                f"{network}: hidden drift_z without, with": [plain, held],
                f"{network}: change of the inputs' mean in σ against none": str(sinks),
                f"{network}: score (accuracy, or minus the loss) against none": str(cost),
            }
        if not left:
            return not_judged("no network drifts surely without a tool", facts=facts, seeds=pairs)
        note = f"largest share of the drift that is left with {tool}, of the networks that surely drift"
        harmless = all(c.high >= 0 for c in costs)
        if max(left) <= LEFT and harmless:
            return holds(max(left), note=note, facts=facts, seeds=pairs)
        why = "drift is left" if max(left) > LEFT else "the score falls by more than its interval"
        return fails(max(left), note=f"{note}: {why}", facts=facts, seeds=pairs)
