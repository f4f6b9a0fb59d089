"""The networks of the drift studies, and what is read off them: weights against their start, sites on a probe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from netvitals import activations
from netvitals.capture import observe
from netvitals.drift import role, weight_drift
from netvitals.vitals import Preactivations, Sparsity
from netvitals_lab import Row, models

ALTERNATING = ("relu", "neg_relu")


def perceptron(
    act: str = "relu",
    *,
    seed: int,
    width: int = 128,
    depth: int = 4,
    norm: str = "none",
    init: str = "he",
    readout: float = 1.0,
    inputs: int = 64,
    classes: int = 10,
) -> nn.Module:
    """A bias-free MLP; ``act="alternating"`` puts ReLU and −ReLU(−x) in turn."""
    plain = ALTERNATING[0] if act == "alternating" else act
    net = models.build(
        f"mlp:{inputs}-{width}x{depth}-{classes}",
        seed=seed,
        act=plain,
        norm=norm,
        init=init,
        bias=False,
        readout=readout,
    )
    if act == "alternating":
        blocks: Any = net.blocks
        for i, block in enumerate(blocks):
            block.act = activations.get(ALTERNATING[i % 2])
    return net


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters: the start that drift is measured from."""
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def weight_rows(model: nn.Module, initial: Mapping[str, Tensor]) -> list[Row]:
    """Drift of every weight matrix (place: first, hidden, readout, tied) and of every norm's shift and gain."""
    modules = dict(model.named_modules())
    named = dict(model.named_parameters())
    kinds = {name: role(name, p, modules) for name, p in named.items()}
    matrices = [n for n in named if kinds[n] == "weight"]
    rows: list[Row] = []
    for name, p in named.items():
        if kinds[name] == "weight":
            place = "first" if name == matrices[0] else "readout" if name == matrices[-1] else "hidden"
        elif kinds[name] in ("norm_gain", "norm_shift"):
            place = kinds[name]
        else:
            continue
        moved = p.detach().double() - initial[name].double()
        row: Row = {
            "quantity": "weights",
            "name": name,
            "place": place,
            "moved": float(moved.mean()),
            "weight_mean": float(p.detach().double().mean()),
        }
        if place not in ("norm_gain", "norm_shift"):
            drift = weight_drift(p, initial[name])
            row |= {"drift_z": drift.drift_z, "neg_fraction": drift.neg_fraction, "weight_std": drift.weight_std}
        rows.append(row)
    return rows


def site_rows(model: nn.Module, x: Tensor) -> list[Row]:
    """Every activation on a probe, in eval mode: mean over spread of its input, negative share, exact zeros."""
    seen = observe(model, None, x, vitals=[Preactivations(), Sparsity()], mode="eval")
    found = {(r.vital, r.site, r.metric): r.value for r in seen.measurements}
    sites = [s.name for s in seen.sites if s.kind == "activation"]
    return [
        {
            "quantity": "site",
            "name": name,
            "layer": i + 1,
            "preact_drift": found["preactivations", name, "preact_drift"],
            "neg_preact": found["preactivations", name, "neg_preact"],
            "hard": found["sparsity", name, "hard"],
        }
        for i, name in enumerate(sites)
        if ("sparsity", name, "hard") in found
    ]


def change_rows(before: Sequence[Row], after: Sequence[Row]) -> list[Row]:
    """Sites after training, with what they were before under ``..._0``."""
    start = {r["name"]: r for r in before}
    return [
        {**r, **{f"{k}_0": start[r["name"]][k] for k in ("preact_drift", "neg_preact", "hard")}}
        for r in after
        if r["name"] in start
    ]


def hidden_drift(rows: Sequence[Row]) -> dict[int, float]:
    """Mean drift_z of the hidden matrices, by seed."""
    by_seed: dict[int, list[float]] = {}
    for r in rows:
        if r.get("quantity") == "weights" and r.get("place") == "hidden":
            by_seed.setdefault(r["seed"], []).append(r["drift_z"])
    return {seed: sum(v) / len(v) for seed, v in by_seed.items()}
