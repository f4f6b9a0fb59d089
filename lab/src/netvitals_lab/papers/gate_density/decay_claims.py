"""Is it the coupling of decay that collapses variance, or its amount?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claim, Expected, Row, Verdict, decide
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


def _amount(rows: Sequence[Row]) -> Verdict:
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
    return decide(
        bool(ok),
        f"σ {coupled:+.0%} coupled, {decoupled:+.0%} decoupled",
        note="SGD at S = 2.44, mean over activations and seeds. " + "; ".join(facts),
    )


def _signs(rows: Sequence[Row]) -> Verdict:
    """The split of activations at S = 2.44 under every arm."""
    facts, good, arms = [], [], _arms(rows, S)
    for name, runs in arms.items():
        both = [split(runs, t, "element") for t in (0.01, 0.1)]
        good += [name] if all(ok for ok, _ in both) else []
        facts.append(f"{name}: {both[1][1]}")
    return decide(
        len(good) == len(arms),
        f"{len(good)} of {len(arms)} arms",
        note="ReLU down and smooth up in every "
        "seed at θ = .01 and .10 (layers of one width: poolings coincide). At .10, in points: " + "; ".join(facts),
    )


def _exempt(rows: Sequence[Row]) -> Verdict:
    free, bound = some(rows, exempt=True), some(rows, optimizer="sgd", coupling="coupled", S=S, exempt=None)
    a, b = shrinkage(free), shrinkage(bound)
    return decide(
        min(a) > -STEADY and max(b) < HALF,
        float(np.mean(a)),
        note=f"change of σ with decay on everything "
        f"but the norms {span(a, '+.0%')}, with decay on everything {span(b, '+.0%')}; density without: "
        f"{split(free, 0.1, 'element')[1]} points at θ = .10",
    )


def _images(rows: Sequence[Row]) -> Verdict:
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
    return decide(bool(ok), "collapses under all" if ok else "does not collapse under all", note=". ".join(facts))


CLAIMS = (
    Claim(
        id="gate-density/X-decay",
        study=DECAY,
        seeds=PAIRS,
        statement="The integrated decay S decides how far σ collapses, coupled or not",
        expected=Expected(direction="below half at S = 2.44, within 15 % at S = 0.0024, under all"),
        judge=_amount,
        plot=pictures.collapse_by_decay,
        uses=lambda c: not c.get("exempt"),
    ),
    Claim(
        id="gate-density/X-decay-signs",
        study=DECAY,
        seeds=PAIRS,
        statement="At S = 2.44 ReLU falls and the smooth activations rise under coupled and decoupled decay alike",
        expected=Expected(direction="all arms"),
        judge=_signs,
        plot=pictures.sigma_by_optimizer,
        uses=lambda c: c["S"] == S and not c.get("exempt"),
    ),
    Claim(
        id="gate-density/X-exempt",
        study=DECAY,
        seeds=PAIRS,
        statement="Without decay on the norms' scales and shifts σ does not collapse",
        expected=Expected(0.0, tolerance=STEADY),
        judge=_exempt,
        plot=pictures.sigma_by_optimizer,
        uses=lambda c: (c["optimizer"], c["coupling"], c["S"]) == ("sgd", "coupled", S),
    ),
    Claim(
        id="gate-density/X-decay-images",
        study=IMAGES,
        seeds=PAIRS,
        statement="At matched integrated decay σ collapses under SGD, AdamW and Adam (images)",
        expected=Expected(direction="below half under all"),
        judge=_images,
        plot=pictures.sigma_by_optimizer,
        uses=lambda c: images()(c) and (c["optimizer"], c["S"]) in MATCHED,
    ),
)
