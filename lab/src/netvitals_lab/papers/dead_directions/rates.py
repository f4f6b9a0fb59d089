"""The study of K-FAC rates: what theory predicts for an architecture against what a freeze probe measures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netvitals.singular.networks.ladders import freeze_probe
from netvitals.singular.orders.rates import RateFit
from netvitals_lab import Config, Row, Study
from netvitals_lab.papers.dead_directions import _factors
from netvitals_lab.papers.dead_directions._networks import configurations, network, predicted

LADDERS = ("ladder",)  # topics whose claims are about λ_min
CHECKS = (
    "schur constant",
    "off-diagonals",
    "lift",
    "two layers",
    "norm kernels",
    "finite t",
    "crossover",
    "quotient",
    "softmax head",
    "memorisation",
    "trained networks",
)


@dataclass(frozen=True)
class RateSettings:
    """Samples of a probe, and of the Schur constants."""

    samples: int = 2000
    schur: int = 100_000
    seed: int = 0


def trials(p: RateSettings) -> list[Config]:
    return [
        *configurations(p.samples),
        *({"check": c, "samples": p.schur if c == "schur constant" else p.samples, "seed": p.seed} for c in CHECKS),
    ]


def trial(config: Config) -> list[Row]:
    if config["check"] != "probe":
        return _factors.CHECKS[config["check"]](config["samples"], config["seed"])
    options = dict(config["probe"])
    ladder = freeze_probe(network(config), config["ts"], examples=options.pop("samples"), **options)
    text = predicted(config)
    found: dict[str, Mapping[str, RateFit]] = {
        "G": ladder.G,
        "A": ladder.A,
        "product": ladder.product,
        "stream": {f"X{i}": f for i, f in enumerate(ladder.stream)},
        "forward": {f"X{i}": f for i, f in enumerate(ladder.forward)},
    }
    rows = [
        {
            "readout": readout,
            "layer": layer,
            "predicted": value,
            "measured": None if math.isnan(found[readout][layer].slope) else found[readout][layer].slope,
            "zero": found[readout][layer].flags == ("identically zero",),
            "regime": ladder.regime,
            "estimator": ladder.estimator,
        }
        for readout, by_layer in text.items()
        for layer, value in by_layer.items()
    ]
    # Schur complements, which λ_min follows (Lemma 17): judged where a claim is about λ_min, elsewhere for the record
    smallest = config["topic"] in LADDERS
    rows += [
        {
            "readout": name,
            "layer": layer,
            "predicted": text[name[0]][layer] if smallest else None,
            "measured": None if math.isnan(f.slope) else f.slope,
            "zero": f.flags == ("identically zero",),
            "regime": ladder.regime,
            "estimator": ladder.estimator,
        }
        for name, fits in (("G_schur", ladder.G_schur), ("A_schur", ladder.A_schur))
        for layer, f in fits.items()
    ]
    return rows


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    probes = [r for r in rows if r["check"] == "probe" and r["predicted"] is not None and r["measured"] is not None]
    gaps = [abs(r["measured"] - r["predicted"]) for r in probes]
    return {
        "exponents predicted and measured": len(gaps),
        "within 0.05": sum(g <= 0.05 for g in gaps),
        "largest gap": max(gaps, default=0.0),
    }


STUDIES = (
    Study(
        "dead-directions-rates",
        "dead-directions",
        "K-FAC rates: predicted against measured, by architecture",
        trials=trials,
        settled="the exponents lie apart by far more than the sample of small leaves open",
        trial=trial,
        summary=summary,
        scales={
            "smoke": RateSettings(samples=300, schur=20_000),
            "small": RateSettings(),
            "paper": RateSettings(samples=20_000, schur=400_000),
        },
        unprinted="sizes of its trained networks, nor how far memorisation goes",
    ),
)
