"""Is it the coupling of decay that collapses variance, or its amount?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claims, Expected, Measured, Row
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import groups
from netvitals_lab.papers.gate_density import _pictures as pictures
from netvitals_lab.papers.gate_density._reading import poolings, shrinkage, some, span, split
from netvitals_lab.papers.gate_density._training import S
from netvitals_lab.papers.gate_density.table_claims import images
from netvitals_lab.papers.gate_density.trajectories import MATCHED

DECAY, IMAGES = "gate-density-decay", "gate-density-images"
HALF, STEADY = -0.5, 0.15


def _arms(rows: Sequence[Row], amount: float | None = None) -> dict[str, list[Row]]:
    """Runs by who decays them, without the ones whose norms are exempt."""
    runs = [r for r in some(rows) if not r.get("exempt") and amount in (None, r["S"])]
    arms = groups(runs, "optimizer", "coupling") if runs else {}
    return {f"{o} {'decoupled' if o == 'adamw' else c}": group for (o, c), group in arms.items()}


claim = Claims("gate-density", study=DECAY, seeds=PAIRS)


@claim(
    "X-decay",
    "below half at S = 2.44, within 15 % at S = 0.0024, under all",
    uses=lambda c: not c.get("exempt"),
    plot=pictures.collapse_by_decay,
)
def amount(rows: Sequence[Row]) -> Measured:
    """The integrated decay S decides how far σ collapses, coupled or not"""
    facts, ok = [], True
    for amount in sorted({r["S"] for r in some(rows)}, reverse=True):
        for name, runs in _arms(rows, amount).items():
            sigma = shrinkage(runs)
            felt = span([r["realised S"] for r in runs], ".3g")
            facts.append(f"S = {amount:g}, {name} (felt {felt}): σ {span(sigma, '+.0%')}")
            if amount == S:
                ok &= max(sigma) < HALF
            elif amount < 0.01:
                ok &= max(map(abs, sigma)) < STEADY
    coupled, decoupled = (
        np.mean(shrinkage(some(rows, optimizer="sgd", coupling=c, S=S, exempt=None))) for c in ("coupled", "decoupled")
    )
    return Measured(
        f"σ {coupled:+.0%} coupled, {decoupled:+.0%} decoupled",
        "SGD at S = 2.44, mean over activations and seeds. " + "; ".join(facts),
        ok=bool(ok),
    )


@claim(
    "X-decay-signs", "all arms", uses=lambda c: c["S"] == S and not c.get("exempt"), plot=pictures.sigma_by_optimizer
)
def signs(rows: Sequence[Row]) -> Measured:
    """At S = 2.44 ReLU falls and the smooth activations rise under coupled and decoupled decay alike

    The split of activations at S = 2.44 under every arm.
    """
    facts, good, arms = [], [], _arms(rows, S)
    for name, runs in arms.items():
        both = [split(runs, t, "element") for t in (0.01, 0.1)]
        good += [name] if all(ok for ok, _ in both) else []
        facts.append(f"{name}: {both[1][1]}")
    return Measured(
        f"{len(good)} of {len(arms)} arms",
        note="ReLU down and smooth up in every "
        "seed at θ = .01 and .10 (layers of one width: poolings coincide). At .10, in points: " + "; ".join(facts),
        ok=len(good) == len(arms),
    )


@claim(
    "X-exempt",
    Expected(0.0, tolerance=STEADY),
    uses=lambda c: (c["optimizer"], c["coupling"], c["S"]) == ("sgd", "coupled", S),
    plot=pictures.sigma_by_optimizer,
)
def exempt(rows: Sequence[Row]) -> Measured:
    """Without decay on the norms' scales and shifts σ does not collapse"""
    free, bound = some(rows, exempt=True), some(rows, optimizer="sgd", coupling="coupled", S=S, exempt=None)
    a, b = shrinkage(free), shrinkage(bound)
    return Measured(
        float(np.mean(a)),
        note=f"change of σ with decay on everything "
        f"but the norms {span(a, '+.0%')}, with decay on everything {span(b, '+.0%')}; density without: "
        f"{split(free, 0.1, 'element')[1]} points at θ = .10",
        ok=min(a) > -STEADY and max(b) < HALF,
    )


@claim(
    "X-decay-images",
    "below half under all",
    study=IMAGES,
    uses=lambda c: images()(c) and (c["optimizer"], c["S"]) in MATCHED,
    plot=pictures.sigma_by_optimizer,
)
def on_images(rows: Sequence[Row]) -> Measured:
    """At matched integrated decay σ collapses under SGD, AdamW and Adam (images)"""
    facts, ok = [], True
    for name, runs in _arms(rows).items():
        sigma = shrinkage(runs)
        ok &= max(sigma) < HALF
        felt = span([r["realised S"] for r in runs], ".3g")
        signs = "; ".join(
            f"by {p}{'' if k == 'all' else ' of ' + k}: {split(runs, 0.01, p, k)[1]}"
            for p, k in poolings(runs)
            if k == "all" or p == "channel"
        )
        facts.append(
            f"{name} (felt {felt}): σ {span(sigma, '+.0%')}, accuracy "
            f"{span([r['accuracy'] for r in runs], '.2f')}, {signs}"
        )
    return Measured("collapses under all" if ok else "does not collapse under all", ". ".join(facts), ok=bool(ok))
