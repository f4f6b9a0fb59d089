"""Table 1, cell by cell: how far σ of the channels falls under SGD and under AdamW at the paper's decay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claim, Expected, Row, Verdict, decide, not_judged
from netvitals_lab.papers.gate_density import _pictures as pictures
from netvitals_lab.papers.gate_density.trajectories import PAPERS_ADAM

STUDY = "gate-density-images"
# change of σ from the first to the last epoch; Table 1
PRINTED = {
    ("sgd", "relu"): -0.770,
    ("sgd", "gelu"): -0.675,
    ("sgd", "silu"): -0.662,
    ("sgd", "mish"): -0.669,
    ("adamw", "relu"): -0.009,
    ("adamw", "gelu"): 0.022,
    ("adamw", "silu"): 0.048,
    ("adamw", "mish"): 0.047,
}
NEAR = 0.10  # of σ at the start


def sigma_cells(rows: Sequence[Row]) -> Verdict:
    """The mean over seeds of every cell beside the printed one; AdamW only at the paper's own decay."""
    facts: dict[str, list[float]] = {}
    for (optimizer, act), printed in PRINTED.items():
        mine = [r for r in rows if r["quantity"] == "run" and (r["optimizer"], r["act"]) == (optimizer, act)]
        mine = [r for r in mine if optimizer == "sgd" or r["S"] == PAPERS_ADAM]
        if mine:
            change = float(np.mean([r["sigma last"] / r["sigma first"] - 1 for r in mine]))
            facts[f"{act}, {optimizer}: measured, printed"] = [change, printed]
    if not facts:
        return not_judged("no run has an optimizer of the table")
    worst = max(abs(measured - printed) for measured, printed in facts.values())
    note = f"largest distance of {len(facts)} of {len(PRINTED)} cells, as a share of σ at the start"
    return decide(worst <= NEAR, worst, note=note, facts=facts)


CLAIMS = (
    Claim(
        id="gate-density/T1",
        study=STUDY,
        statement="σ changes by −77.0, −67.5, −66.2, −66.9 % under SGD and by −0.9, +2.2, +4.8, +4.7 % under AdamW "
        "(ReLU, GELU, SiLU, Mish)",
        expected=Expected(direction="every cell within ten points"),
        judge=sigma_cells,
        plot=pictures.sigma_by_optimizer,
        uses=lambda c: (
            c["network"].startswith("resnet18") and c["data"].startswith("cifar10") and c["optimizer"] != "adam"
        ),
        effect="change of σ from the first to the last epoch, mean over channels",
    ),
)
