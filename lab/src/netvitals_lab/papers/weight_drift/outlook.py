"""Does the drift law foretell? Its outlook by layer before a few steps, and what the active inputs did in them.

Where :attr:`~netvitals.drift.Euler.laws` speaks, ``persists`` says that descent pushes the active pre-activations of
the layer towards zero and ``reverses`` that it pushes them up. At a few steps of a training run the law is asked on a
probe, five steps are taken, and the mean active input of the same layer on the same probe is compared. The forecast
without a law is that a layer goes on as it moved in the five steps before. No threshold of the law was set on these
networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from netvitals import drift
from netvitals_lab import Config, Resources, Row, Study, models
from netvitals_lab import data as datasets
from netvitals_lab.data import Dataset
from netvitals_lab.papers.weight_drift._text import EMBEDDED, text
from netvitals_lab.training import Moment, Recipe, loss_named, train

NETWORKS = {
    "mlp": "mlp:64-64x3-10,bias=false,init=he",
    "bn": "resnet-mini,width=4,norm=batch",
    "vit": "vit-mini,act=relu",
    "gpt": "gpt-micro,depth=2,width=32,heads=2,act=relu",
}
OPTIMIZERS = {"sgd": 0.02, "adam": 1e-3}
AHEAD = 5  # steps


@dataclass(frozen=True)
class Outlooks:
    seeds: int = 5
    asked: tuple[int, ...] = (5, 15, 40, 80)  # steps; each also needs the five before it
    networks: tuple[str, ...] = tuple(NETWORKS)


def trials(p: Outlooks) -> list[Config]:
    return [
        {"network": n, "optimizer": o, "seed": s, "asked": list(p.asked)}
        for n in p.networks
        for o in OPTIMIZERS
        for s in range(p.seeds)
    ]


def trial(config: Config) -> list[Row]:
    language = config["network"] == "gpt"
    data: Dataset = text(EMBEDDED, 16) if language else datasets.load("digits")
    net = models.build(NETWORKS[config["network"]], seed=config["seed"], data=data)
    loss = loss_named("lm" if language else "ce")
    count = 16 if language else 128
    probe = data.train.x[:count], data.train.y[:count]
    laws_at: dict[int, dict[str, drift.LayerLaw]] = {}
    active: dict[int, dict[str, float]] = {}

    def on_step(moment: Moment) -> None:
        step = moment.step
        if any(step in (a - AHEAD, a, a + AHEAD) for a in config["asked"]):
            active[step] = active_inputs(moment.model, probe[0])
        if step in config["asked"]:
            laws_at[step] = drift.euler(moment.model, loss, probe, mode="eval").laws

    active[0] = active_inputs(net, probe[0])
    recipe = Recipe(
        steps=max(config["asked"]) + AHEAD,
        batch=count,
        optimizer=config["optimizer"],
        lr=OPTIMIZERS[config["optimizer"]],
        nesterov=False,
        weight_decay=0.0,
        schedule="constant",
        seed=config["seed"],
        evaluate_on=0,
        loss="auto",
    )
    train(net, data, replace(recipe, batch=min(recipe.batch, len(data.train))), on_step=on_step)
    return [
        {
            "step": step,
            "layer": name,
            "outlook": law.outlook,
            "why": law.why,
            "defect": law.defect,
            "before": active[step][name] - active[step - AHEAD][name],
            "after": active[step + AHEAD][name] - active[step][name],
        }
        for step, laws in laws_at.items()
        for name, law in laws.items()
        if name in active[step]
    ]


@torch.no_grad()
def active_inputs(net: nn.Module, x: Tensor) -> dict[str, float]:
    """Mean of max(p, 0) at every ReLU module, in eval mode; the network is left as it was."""
    found: dict[str, float] = {}

    def hook(name: str) -> Any:
        return lambda module, inputs: found.__setitem__(name, float(inputs[0].clamp_min(0).double().mean()))

    hooks = [m.register_forward_pre_hook(hook(n)) for n, m in net.named_modules() if isinstance(m, nn.ReLU)]
    mode = net.training
    try:
        net.eval()(x)
    finally:
        net.train(mode)
        for h in hooks:
            h.remove()
    return found


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for network in dict.fromkeys(r["network"] for r in rows):
        mine = [r for r in rows if r["network"] == network]
        spoken = [r for r in mine if r["outlook"]]
        hits = sum((r["outlook"] == "persists") == (r["after"] < 0) for r in spoken)
        facts[network] = f"speaks {len(spoken)} times of {len(mine)}, right {hits} times"
    return facts


STUDIES = (
    Study(
        name="weight-drift-outlook",
        paper="weight-drift",
        title="does the drift law foretell where active inputs go? MLP, BatchNorm, ViT and GPT, two optimizers",
        scales={
            "smoke": Outlooks(seeds=1, asked=(5, 15), networks=("mlp", "gpt")),
            "small": Outlooks(),
            "medium": Outlooks(seeds=20, asked=(5, 15, 40, 80, 160, 320)),
            "paper": Outlooks(seeds=20, asked=(5, 15, 40, 80, 160, 320, 640, 1280)),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=1),
        trials=trials,
        trial=trial,
        summary=summary,
        hypothesis="Where the law speaks, the sign of a layer's push foretells whether its mean active input falls or "
        "rises over the next five steps, more often than going on as before does.",
    ),
)
