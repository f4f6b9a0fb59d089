"""Which function works on which kind of model. ``python bench/papers/architectures.py`` prints the table."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import reader_models
from netvitals import curvature, drift, gates, layers, saddle

TITLES = {"mlp": "MLP", "cnn": "CNN, BatchNorm", "gpt": "GPT", "llama": "Llama (HF)", "vit": "ViT (HF)", "tied": "tied"}


def fresh(name: str) -> Any:
    return reader_models.make(name, int(torch.initial_seed()))[0]


def adamw(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), weight_decay=0.1)


def spoken(model: Any, batch: Any) -> None:
    found = gates.measure(model, batch).forecast()
    if not found.sites:
        raise ValueError("silent: " + next(iter(found.skipped.values())))


def decayed(model: Any) -> None:
    found = gates.will_collapse(adamw(model), None, 10, model=model)
    if "model" in found.skipped:
        raise ValueError("no norm with a scale")


def inserted(model: Any, batch: Any) -> None:
    found = layers.insert_norm(model, batch)
    if not found:
        raise ValueError(next(iter(found.skipped.values())))


CALLS = {
    "gates.measure": ("1 forward", lambda n, m, f, b: gates.measure(m, b)),
    "report.forecast": ("none", lambda n, m, f, b: spoken(m, b)),
    "gates.will_collapse": ("none", lambda n, m, f, b: decayed(m)),
    "gates.channels": ("none", lambda n, m, f, b: gates.channels(gates.measure(m, b))),
    "gates.channel_scores": ("2 forward", lambda n, m, f, b: gates.channel_scores(m, b)),
    "drift.signs": ("`inits` gradients", lambda n, m, f, b: drift.signs(lambda: fresh(n), f, b, inits=2)),
    "drift.random_data_control": (
        "2 · `inits` · `steps` gradients",
        lambda n, m, f, b: drift.random_data_control(lambda: fresh(n), f, b, inits=2, steps=2),
    ),
    "drift.euler": ("1 gradient", lambda n, m, f, b: drift.euler(m, f, b)),
    "drift.sparsity": ("1 forward a batch", lambda n, m, f, b: drift.sparsity(m, b)),
    "drift.spikes": ("1 forward a batch", lambda n, m, f, b: drift.spikes(m, b)),
    "layers.insert_norm": ("1 forward", lambda n, m, f, b: inserted(m, b)),
    "saddle.imbalance": ("2 gradients", lambda n, m, f, b: saddle.imbalance(m, f, b)),
    "saddle.conserved": ("2 gradients", lambda n, m, f, b: saddle.conserved(m, f, b)),
    "saddle.signal_energy": ("3 gradients", lambda n, m, f, b: saddle.signal_energy(m, b)),
    "curvature.between_layers": (
        "about 2 · `probes` · layers gradients",
        lambda n, m, f, b: curvature.between_layers(m, f or "cross_entropy", b, mode="eval", probes=2),
    ),
    "curvature.graph": (
        "about 4 · `probes` gradients, more where paths are few",
        lambda n, m, f, b: curvature.graph(m, f or "cross_entropy", b, mode="eval", probes=2),
    ),
    "curvature.graph(weights=True)": (
        "about 18 · `probes` gradients more",
        lambda n, m, f, b: curvature.graph(m, f or "cross_entropy", b, mode="eval", probes=2, weights=True),
    ),
    "curvature.report": (
        "about 4 · `probes` · layers gradients",
        lambda n, m, f, b: curvature.report(m, f or "cross_entropy", b, mode="eval", probes=4),
    ),
}


def main() -> None:
    warnings.simplefilter("ignore")
    reasons: list[str] = []
    print("| function | " + " | ".join(TITLES.values()) + " | cost |")
    print("|" + " --- |" * (len(TITLES) + 2))
    for call, (cost, run) in CALLS.items():
        cells = []
        for name in TITLES:
            model, loss_fn, batch = reader_models.make(name)
            torch.manual_seed(0)
            try:
                run(name, model, loss_fn, batch)
                cells.append("works")
            except (ValueError, TypeError) as error:
                text = str(error).split("(netvitals")[0].strip()
                if text not in reasons:
                    reasons.append(text)
                cells.append(f"refused ({reasons.index(text) + 1})")
        print(f"| `{call}` | " + " | ".join(cells) + f" | {cost} |")
    for i, text in enumerate(reasons):
        print(f"\n{i + 1}. {text[:300]}")


if __name__ == "__main__":
    main()
