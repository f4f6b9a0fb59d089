"""Does one rank or one micro-batch push in another way than the rest?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.rules import Context, rule
from netvitals.findings.series import Measurements, Series
from netvitals.runs import Finding, Severity

# Null: the gradient of b examples drawn alike is a mean of b vectors; for its length to be k times the median, one of
# the examples must have k·√b times the usual gradient. Ten is a choice of this project on top of it.
LONG = 10.0
OFTEN = 3  # the same rank on so many measured steps is a trouble of the rank, not of a batch


@rule(
    "ranks",
    "Do all ranks and micro-batches give similar gradients?",
    "ranks",
    ("ranks", "grad_over_median"),
    ("ranks", "not_finite"),
    optional=True,
)
def outliers(context: Context) -> Iterator[Finding]:
    """A gradient that is not finite, or far longer than the others, with the rank and the micro-batch it came from."""
    table = context.table
    found = {m: table.get("ranks", "model", m) for m in ("grad_over_median", "grad_rank", "grad_micro_batch")}
    ratio, rank, batch = found.values()
    lost = table.get("ranks", "model", "not_finite")
    if ratio is None or rank is None or batch is None:
        return
    broken = [] if lost is None else [int(s) for s, v in zip(lost.steps, lost.values) if v > 0]
    long = [int(s) for s, v in zip(ratio.steps, ratio.values) if v > LONG and int(s) not in broken]
    if broken:
        yield _finding(table, "critical", broken, ratio, rank, batch, "The gradient is infinite or NaN.")
    if long:
        worst = float(np.max(ratio.values[np.isin(ratio.steps, long)]))
        yield _finding(
            table, "warning", long, ratio, rank, batch, f"The gradient is up to {worst:.0f} times the median."
        )


def _finding(
    table: Measurements, severity: Severity, steps: list[int], ratio: Series, rank: Series, batch: Series, how: str
) -> Finding:
    at = np.isin(rank.steps, steps)
    ranks, batches = rank.values[at].astype(int), batch.values[at].astype(int)
    first = f"rank {ranks[0]}, micro-batch {batches[0]} on step {steps[0]}"
    usual, times = int(np.bincount(ranks).argmax()), len(steps)
    same = int((ranks == usual).sum())
    again = f" Such gradients occur on {times / len(ratio.steps):.0%} of the measured steps." if times > 1 else ""
    lengths = table.array("ranks", "model", "grad_norm")
    several = lengths is not None and len(lengths) > 1
    whole = same == times and times >= OFTEN and several
    return Finding(
        severity,
        "",
        f"One micro-batch has an outlier gradient: {first}.{again} {how}",
        why="The optimizer averages over ranks and micro-batches, so one large gradient decides the whole step.",
        advice=(
            f"Rank {usual} has the outlier every time: compare its data shard, seed and hardware with those of other "
            f"ranks."
            if whole
            else "Look at the examples of this micro-batch, and clip gradients before they are added up."
        ),
        evidence=tuple(
            curve.evidence(value=float(curve.values[np.isin(curve.steps, steps)][0]), step=steps[0])
            for curve in (ratio, rank, batch)
        ),
    )


RULES = (outliers,)
