"""The study: where gates open, by autograd, and the class of every activation that the papers name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netvitals.activations import classify, crossings
from netvitals_lab import Config, Row, Study

GATED = ("relu", "leaky_relu:0.01", "softplus:50", "softplus:20", "softplus:10", "softplus:5", "gelu", "silu", "mish")
CLASSED = ("identity", "relu", "tanh", "erf", "sin", "gelu", "silu", "sigmoid", "softplus", "poly:0:1:0:0:1")


@dataclass(frozen=True)
class PaperTables:
    """The threshold of Table 3."""

    theta: float = 0.1


def trials(p: PaperTables) -> list[Config]:
    tables: list[Config] = [{"table": "crossings", "activation": a, "theta": p.theta} for a in GATED]
    return tables + [{"table": "class", "activation": a} for a in CLASSED]


def trial(config: Config) -> list[Row]:
    name = config["activation"]
    if config["table"] == "crossings":
        found = crossings(name, config["theta"])
        return [{"quantity": "signed", "value": found.z_low}, {"quantity": "literal", "value": found.z_low_literal}]
    kind = classify(name)
    return [{"quantity": "class", "text": kind.label, "almost everywhere": kind.almost_everywhere, "why": kind.why}]


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    return {"activations": len({r["activation"] for r in rows}), "numbers": len(rows)}


STUDIES = (
    Study(
        name="activations",
        paper="activations",
        title="crossings and classes of activations by autograd",
        scales={"smoke": PaperTables(), "small": PaperTables(), "paper": PaperTables()},
        trials=trials,
        settled="roots of closed forms to rounding: more points change no digit",
        trial=trial,
        summary=summary,
    ),
)
