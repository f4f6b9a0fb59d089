"""The shared drift of means and what it says of the direction, on images (C9, C10): Table 4."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from netvitals import activations
from netvitals_lab import Claims, Config, Measured, Plot, Row, Series, stats
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import matches
from netvitals_lab.engine.judges.setups import Setup
from netvitals_lab.papers.gate_density._reading import acts, changes, some
from netvitals_lab.papers.gate_density._recorder import key
from netvitals_lab.papers.gate_density.trajectories import NINE

STUDY = "gate-density-cnn"
THETA = 0.1  # of the paper's tables of z_low
# the paper's Table 4: μ after training and the direction it reports
TABLE_4 = dict(
    zip(
        NINE,
        (
            (-0.0458, -1),
            (-0.0478, -1),
            (-0.0476, -1),
            (-0.0568, 1),
            (-0.0635, 1),
            (-0.0586, 1),
            (-0.0508, 1),
            (-0.0413, 1),
            (-0.0655, 1),
        ),
    )
)


def alone(uses: Callable[[Config], bool]) -> Callable[[Config], bool]:
    """Of one network and one set of images, as the tables are: at the size of the paper ResNet-18 and CIFAR-10."""
    return lambda c: uses(c) and c["network"] != "vgg11" and not c["data"].startswith("cifar100")


def z_low(act: str, theta: float = THETA) -> float:
    return activations.crossings(act, theta).z_low


def by_pooling(rows: Sequence[Row]) -> dict[Setup, list[Row]]:
    """Runs with μ at the end and the change of density pooled alike: the paper says pooled, and not how."""
    last: dict[tuple[str, int], Row] = {}
    for r in some(rows, "epoch"):
        last[r["act"], r["seed"]] = max(r, last.get((r["act"], r["seed"]), r), key=lambda x: x["epoch"])
    behind: dict[tuple[str, int], list[float]] = {(r["act"], r["seed"]): [] for r in some(rows)}
    for r in some(rows, "site", when="last", theta=THETA, follows="bn_direct"):
        behind[r["act"], r["seed"]].append(r["mu"])
    found: dict[Setup, list[Row]] = {("by element",): [], ("by channel",): [], ("by site behind a norm",): []}
    for r in some(rows):
        at = r["act"], r["seed"]
        poolings = (
            (r["mu last"], key(THETA)),
            (last[at]["mu channel"], key(THETA, "channel")),
            (float(np.mean(behind[at])), key(THETA, "site", "bn_direct")),
        )
        for mine, (mu, name) in zip(found.values(), poolings):
            mine.append({**r, "mu last": mu, f"{key(THETA)} change": r[f"{name} change"]})
    return found


def drawn(rows: Sequence[Row]) -> Plot:
    runs = some(rows)
    pairs = [(r["act"], z_low(r["act"]), r["mu last"]) for r in runs]
    ends = [min(p[1] for p in pairs), 0.0]
    return Plot(
        "z_low at θ = 0.10",
        "mean of the inputs at the end, by element",
        [
            *(Series(a, [z for b, z, _ in pairs if b == a], [m for b, _, m in pairs if b == a]) for a in acts(runs)),
            Series("μ = z_low", ends, ends, line=True, dashed=True),
        ],
    )


_USES = alone(matches(act=NINE, norm="batch", optimizer="sgd"))
_OPEN = ("means and densities by element, by channel, and by site behind a norm",)


claim = Claims("gate-density", study=STUDY, seeds=PAIRS)


@claim("C9", "9 negative, spread small against z_low", setups=by_pooling, uses=_USES, plot=drawn, choices=_OPEN)
def drift(rows: Sequence[Row]) -> Measured:
    """Means drift negative, nearly alike for nine activations

    All means negative at the end, and their spread small against that of z_low.
    """
    ends = {a: [r["mu last"] for r in some(rows, act=a)] for a in acts(rows)}
    means = {a: float(np.mean(v)) for a, v in ends.items()}
    low = [z_low(a) for a in means]
    spread, reach = (max(v) - min(v) for v in (list(means.values()), low))
    down = sum(m < 0 for m in means.values())
    varied = all(len(v) > 1 and np.ptp(v) > 0 for v in ends.values())
    return Measured(
        down / len(means),
        "share of the activations whose mean of the inputs is negative at the end",
        facts={
            **means,
            "spread of μ, of z_low": [spread, reach],
            "by activation": str(stats.anova(*ends.values())) if varied else "no spread within groups",
            "with z_low": f"{stats.pearson(low, list(means.values()))}, {stats.spearman(low, list(means.values()))}",
        },
        ok=down == len(means) and spread < 0.1 * reach,
    )


@claim("C10", "9 of 9", setups=by_pooling, uses=_USES, plot=drawn, choices=_OPEN)
def direction(rows: Sequence[Row]) -> Measured:
    """The sign of μ − z_low gives the direction for nine activations

    The sign of μ − z_low beside that of the change of density.
    """
    margin = {a: float(np.mean([r["mu last"] for r in some(rows, act=a)])) - z_low(a) for a in acts(rows)}
    change = {a: 100 * float(np.mean(changes(some(rows, act=a), THETA))) for a in margin}
    right = [a for a in margin if margin[a] * change[a] > 0]
    table = sum(np.sign(mu - z_low(a)) == way for a, (mu, way) in TABLE_4.items())
    shaky = min(margin, key=lambda a: abs(margin[a]))
    return Measured(
        len(right) / len(margin),
        note=f"share of the activations whose density moved as μ − z_low says, θ = .10; smallest margin {shaky}; the "
        f"paper's own table gives {table} of {len(TABLE_4)}",
        facts={f"{a}: margin, change in points": [margin[a], change[a]] for a in margin},
        ok=len(right) == len(margin),
    )
