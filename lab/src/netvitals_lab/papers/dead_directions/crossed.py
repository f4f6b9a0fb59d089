"""The study of crossed blocks: cross-attention and skips with a learned projection, predicted against measured.

One trial is one network at one seed of its inputs: every exponent of G, A and the stream's amplitude.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netvitals.singular import predict_rates
from netvitals.singular.networks.crossed import SIDES, CrossAttentionChain, ProjectedChain
from netvitals.singular.networks.ladders import freeze_probe
from netvitals.singular.orders.rates import RateFit
from netvitals_lab import Config, Row, Study

NAME = "dead-directions-crossed"
TS = [1e-4, 2e-4, 4e-4, 1e-3]
SKIPS = {  # depth, learned skips
    "over a pair": (4, [[1, 3]]),
    "over two halves": (6, [[0, 3], [3, 6]]),
    "over most": (6, [[1, 5]]),
    "beside every layer": (4, [[0, 1], [1, 2], [2, 3], [3, 4]]),
    "nested": (6, [[0, 6], [1, 4]]),
}
SIGNALS = {"both": (0, 0), "memory": (None, 0), "stream": (0, None), "weak memory": (0, 1), "weak stream": (2, 0)}


@dataclass(frozen=True)
class Crossed:
    """Examples of a probe, blocks and widths of the attention chains, activations of the others, seeds."""

    examples: int = 2000
    blocks: tuple[int, ...] = (1, 2, 3)
    widths: tuple[int, ...] = (8,)
    activations: tuple[str, ...] = ("linear", "relu", "gelu", "tanh")
    seeds: int = 3


def trials(p: Crossed) -> list[Config]:
    out: list[Config] = []
    for seed in range(p.seeds):
        probe = {"examples": p.examples, "seed": seed}
        for width in p.widths:
            out += [
                {"kind": "projection", "skips": name, "activation": act, "width": width, **probe}
                for name in SKIPS
                for act in p.activations
            ]
            out += [
                {"kind": "cross", "sides": sides, "signal": "both", "blocks": b, "width": width, **probe}
                for sides in SIDES
                for b in p.blocks
            ]
            out += [
                {"kind": "cross", "sides": "both", "signal": signal, "blocks": b, "width": width, **probe}
                for signal in SIGNALS
                if signal != "both"
                for b in p.blocks
            ]
    return out


def network(config: Config) -> ProjectedChain | CrossAttentionChain:
    """The network of a configuration."""
    if config["kind"] == "projection":
        depth, skips = SKIPS[config["skips"]]
        return ProjectedChain(depth, config["width"], config["activation"], tuple((a, b) for a, b in skips))
    stream, memory = (math.inf if order is None else order for order in SIGNALS[config["signal"]])
    return CrossAttentionChain(
        blocks=config["blocks"],
        width=config["width"],
        sides=config["sides"],
        stream_order=stream,
        memory_order=memory,
    )


def trial(config: Config) -> list[Row]:
    net = network(config)
    text = predict_rates(net)
    found = freeze_probe(net, TS, examples=config["examples"], seed=config["seed"])
    forward = {f"X{i}": f for i, f in enumerate(found.forward)}
    tables: list[tuple[str, Mapping[str, float | None], Mapping[str, RateFit]]] = [
        ("G", text.G, found.G),
        ("A", text.A, found.A),
        ("forward", {f"X{i}": v for i, v in enumerate(text.stream)}, forward),
    ]
    return [
        {
            "readout": readout,
            "layer": layer,
            "predicted": None if value == math.inf else value,
            "absent": value == math.inf,
            "zero": fits[layer].flags == ("identically zero",),
            "measured": None if math.isnan(fits[layer].slope) else fits[layer].slope,
        }
        for readout, wanted, fits in tables
        for layer, value in wanted.items()
    ]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    gaps = [abs(r["measured"] - r["predicted"]) for r in rows if None not in (r["predicted"], r["measured"])]
    return {
        "exponents predicted and measured": len(gaps),
        "largest gap": max(gaps, default=0.0),
        "entries predicted to be zero that are": f"{sum(r['zero'] for r in rows if r['absent'])} of "
        f"{sum(r['absent'] for r in rows)}",
    }


STUDIES = (
    Study(
        NAME,
        "dead-directions",
        "cross-attention and learned skips: where does the dead signal come from?",
        trials=trials,
        settled="the paper names no sizes; exponents are integers and the probe is exact",
        trial=trial,
        summary=summary,
        scales={
            "smoke": Crossed(examples=300, blocks=(1, 3), activations=("linear", "gelu"), seeds=1),
            "small": Crossed(),
            "paper": Crossed(examples=20_000, blocks=(1, 2, 3, 4, 6), widths=(8, 16, 32)),
        },
    ),
)
