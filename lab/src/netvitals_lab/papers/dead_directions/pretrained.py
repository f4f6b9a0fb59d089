"""The study of norms in trained transformers: kernels of LayerNorm and RMSNorm, and the Schur ratio at the kernel.

Small vision transformers of both norms are trained here. A pretrained encoder is measured where ``NETVITALS_MODELS``
names a folder with one, beside the same encoder with weights drawn anew, on English text that comes with scikit-learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from netvitals.singular.checkpoint.layernorm import ln_kernel_test
from netvitals.singular.checkpoint.norm_inputs import kernel_shares
from netvitals_lab import Config, Resources, Row, Study, data, models
from netvitals_lab.models import pretrained
from netvitals_lab.training import Recipe, train

NAME = "dead-directions-pretrained"
LENGTH = 64
TEXTS = ("digits", "iris", "wine", "breast_cancer", "diabetes")


@dataclass(frozen=True)
class Pretrained:
    """Steps and seeds of the transformers trained here; names of pretrained ones, None for those that are there."""

    steps: int = 300
    seeds: int = 5
    names: tuple[str, ...] | None = None


def trials(p: Pretrained) -> list[Config]:
    out: list[Config] = [
        {"kind": "trained here", "norm": norm, "steps": p.steps, "seed": seed}
        for norm in ("layer", "rms")
        for seed in range(p.seeds)
    ]
    names = pretrained.folders() if p.names is None else p.names
    return out + [{"kind": "pretrained", "name": n, "seed": s} for n in names for s in range(p.seeds)]


def ready(p: Pretrained) -> str:
    """Whether the named models are there."""
    for name in p.names or ():
        try:
            pretrained.folder(name)
        except FileNotFoundError as error:
            return str(error)
    return ""


def trial(config: Config) -> list[Row]:
    if config["kind"] == "pretrained":
        return from_folder(config["name"], config["seed"])
    digits = data.load("digits")
    model = models.build(f"vit-mini,depth=4,norm={config['norm']}", data=digits, seed=config["seed"])
    before = looked_at(model, digits.test.x, "drawn")
    recipe = Recipe(steps=config["steps"], batch=64, optimizer="adamw", lr=1e-3, evaluate_on=0, seed=config["seed"])
    train(model, digits, recipe)
    with torch.no_grad():
        right = float((model(digits.test.x).argmax(1) == digits.test.y).float().mean())
    after = looked_at(model, digits.test.x, "trained")
    return [{**row, "accuracy": right} for row in (*before, *after)]


def from_folder(name: str, seed: int) -> list[Row]:
    """A pretrained encoder, and one of the same shape drawn anew."""
    from sklearn import datasets

    text = " ".join(getattr(datasets, f"load_{t}")().DESCR for t in TEXTS)
    model, words = pretrained.load(name)
    ids = pretrained.windows(text, words, LENGTH)
    drawn, _ = pretrained.load(name, drawn=seed)
    return [*looked_at(model, ids, "trained"), *looked_at(drawn, ids, "drawn")]


def looked_at(model: nn.Module, x: Any, when: str) -> list[Row]:
    """Every norm: whether it passes the kernel test, and the Schur ratio of its inputs at the kernel's direction."""
    shares = {s.norm: s for s in kernel_shares(model, x)}
    return [
        {
            "when": when,
            "site": t.norm,
            "class": t.kind,
            "passes": t.passes,
            "variance": t.variance,
            "ratio": shares[t.norm].ratio if t.norm in shares else None,
            "rows": t.row_count,
        }
        for t in ln_kernel_test(model, x)
    ]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for kind in dict.fromkeys(r["kind"] for r in rows):
        for when in ("drawn", "trained"):
            ratios = [r["ratio"] for r in rows if (r["kind"], r["when"]) == (kind, when) and r["ratio"] is not None]
            out[f"{kind}, {when}: Schur ratio at the kernel, median"] = float(np.median(ratios))
    return out | {"models in the folder": ", ".join(pretrained.folders()) or f"none: {pretrained.VARIABLE} is not set"}


STUDIES = (
    Study(
        NAME,
        "dead-directions",
        "norms of trained transformers: do their kernels and Schur ratios follow the theory?",
        trials=trials,
        resources=Resources(cpus=1, memory_gb=4, core_hours=2),
        trial=trial,
        summary=summary,
        ready=ready,
        scales={
            "smoke": Pretrained(steps=10, seeds=1, names=()),
            "small": Pretrained(),
            "medium": Pretrained(steps=2000, seeds=10),
            "paper": Pretrained(steps=20_000, seeds=10, names=("all-MiniLM-L6-v2",)),
        },
        reduced="a small vision transformer on digits and one pretrained encoder; the paper names no model",
    ),
)
