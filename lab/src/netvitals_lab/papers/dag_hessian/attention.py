"""Experiment 5: one head of attention against a position-wise relu net."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from netvitals import curvature
from netvitals_lab import Config, Row, Study, data
from netvitals_lab.papers.dag_hessian._measuring import SEEDS, moments, table

NAME = "dag-hessian-attention"
NODES = {"toy-attention": ("query", "key", "value"), "position-mlp": ("blocks.0", "blocks.1", "blocks.2")}


@dataclass(frozen=True)
class HeadNet:
    """Sequences of ``length`` vectors of ``width`` numbers; both nets learn a teacher."""

    width: int = 16
    length: int = 8
    count: int = 2048
    samples: int = 64
    epochs: int = 30
    seeds: tuple[int, ...] = SEEDS


def trials(p: HeadNet) -> list[Config]:
    return [
        {
            "net": n,
            "width": p.width,
            "length": p.length,
            "count": p.count,
            "samples": p.samples,
            "epochs": p.epochs,
            "seed": s,
        }
        for s in p.seeds
        for n in NODES
    ]


def trial(config: Config) -> list[Row]:
    loaded = data.load(
        "sequence-teacher",
        width=config["width"],
        length=config["length"],
        count=config["count"],
        test=max(64, config["count"] // 4),
    )
    nodes = NODES[config["net"]]

    def measured(net: nn.Module, batch: tuple[Tensor, Tensor], phase: str) -> Row:
        found = curvature.between_layers(net, F.mse_loss, batch, nodes=list(nodes), method="exact")
        single = curvature.between_layers(net, F.mse_loss, batch, nodes=list(nodes[:2]), probes=30)
        pair = found.at(*nodes[:2])
        norms = {f"t_{a[0]}{b[0]}": found.at(a, b)["tensor"] for i, a in enumerate(nodes) for b in nodes[i:]}
        return {
            "resonance": pair["resonance"],
            "gauss_newton": pair["gauss_newton"],
            "tensor": pair["tensor"],
            "gap": pair["gn_gap"],
            "gap32": single.at(*nodes[:2])["gn_gap"],
            **(norms if config["net"] == "toy-attention" else {}),
        }

    return moments(
        config,
        config["net"],
        loaded,
        measured,
        samples=config["samples"],
        recipe="dag-hessian-attention",
        loss="mse",
        width=config["width"],
    )


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    return table(rows, ("net", "phase"), "gap")


STUDIES = (
    Study(
        name=NAME,
        unprinted="the scale of the teacher's weights, nor the optimiser's decay and clipping",
        paper="dag-hessian",
        title="Is the curvature between query and key outside Gauss–Newton?",
        scales={
            "smoke": HeadNet(width=6, length=4, count=128, samples=16, epochs=2, seeds=SEEDS[:1]),
            "small": HeadNet(),
            "paper": HeadNet(),
        },
        trials=trials,
        settled="small is the paper's own size",
        trial=trial,
        summary=summary,
    ),
)
