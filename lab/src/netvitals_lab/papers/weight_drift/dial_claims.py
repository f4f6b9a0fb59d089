"""What the dial does on real data: a claim of ours for each network, with the table of pushes, zeros and scores."""

from __future__ import annotations

from collections.abc import Sequence

from netvitals_lab import Claims, Plot, Row, Series, Verdict, not_judged
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import compared, difference, groups, means, paired
from netvitals_lab.engine.verdict import Fact

KINDS = {"mlp": "an MLP on photographs (digits where there are none)", "gpt2": "Hugging Face's GPT-2 on text"}


def turned_plot(rows: Sequence[Row]) -> Plot:
    aimed = [r for r in rows if r["target"] is not None]
    plain = [r for r in rows if r["target"] is None]
    return Plot(
        "⟨o, ∇ℓ⟩ at the start",
        "zeros after training",
        [
            Series("push set by the dial", [r["push"] for r in aimed], [r["sparsity"] for r in aimed]),
            Series("left as it is", [r["push"] for r in plain], [r["sparsity"] for r in plain]),
        ],
    )


claim = Claims("weight-drift", study="weight-drift-dial", seeds=PAIRS)

for network, words in KINDS.items():

    @claim(
        f"F23-{network}",
        "more zeros",
        statement=f"A larger ⟨o, ∇ℓ⟩ at the start leaves more zeros after training: {words}",
        uses={"network": network},
        plot=turned_plot,
        effect="zeros at the largest push minus those at the smallest, paired by seed",
        choices=("pushes of 0.15, 1.2 and 4.5", "ReLU, width 64, Adam at 0.001, 200 steps"),
    )
    def turned(rows: Sequence[Row]) -> Verdict:
        """Zeros at the largest push minus those at the smallest one, paired by seed; the facts have the table."""
        table = groups(rows, "target")
        plain = {column: means(table[None], column, "seed") for column in ("sparsity", "score")}
        facts: dict[str, Fact] = {}
        if len(plain["score"]) < 2:
            return not_judged(f"{len(plain['score'])} seed is no spread")
        for target, mine in table.items():
            zeros, drift, score, begin = (
                difference(means(mine, column, "seed").values()) for column in ("sparsity", "drift_z", "score", "push")
            )
            name = f"push left at {begin.value:.2g}" if target is None else f"push set to {target:g}"
            numbers = [f"{d.value:.4g} ± {d.stderr:.1g}" for d in (zeros, drift, score)]
            facts[f"{name}: zeros, hidden drift_z, score (accuracy, or minus the loss)"] = numbers
            if target is not None:
                cost = difference(paired(means(mine, "score", "seed"), plain["score"]))
                facts[f"{name}: score against left as it is"] = str(cost)
        targets = sorted(t for t in table if t is not None)
        low, high = (means(table[t], "sparsity", "seed") for t in (targets[0], targets[-1]))
        note = f"zeros at a push of {targets[-1]:g} minus those at {targets[0]:g}"
        return compared(paired(high, low), 1, note=note, facts=facts)
