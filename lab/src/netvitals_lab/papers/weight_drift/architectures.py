"""Does drift show in every architecture (E7, E15)? MLP, residual network, vision transformer, GPT, denoiser.

In pre-norm transformers the input of the up-projection is signed, so that the mean of its weights hardly moves while
pre-activations sink: both are read, the raw drift of the weights and ``preact_drift`` of the sites. Every network is
trained with two optimisers: Adam and momentum SGD, the GPT with Muon as in the paper and Adam.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netvitals_lab import Config, Resources, Row, Study, models
from netvitals_lab import data as datasets
from netvitals_lab.data import Dataset
from netvitals_lab.engine.judges import groups
from netvitals_lab.papers.weight_drift._networks import change_rows, site_rows, weight_rows, weights_of
from netvitals_lab.papers.weight_drift._text import EMBEDDED, source, text
from netvitals_lab.training import Recipe, train

NETWORKS: dict[str, str] = {
    "mlp": "mlp:64-64x3-10,bias=false,init=he",
    "resnet": "resnet-mini,width=8,norm=none",
    "resnet-bn": "resnet-mini,width=8,norm=batch",
    "vit": "vit-mini",
    "gpt": "gpt-micro,depth=3,width=64",
    "denoiser": "denoiser,width=8,heads=2,hidden=32",
}
RATES = {"adam": 2e-3, "sgd": 0.02, "muon": 5e-3}  # the squared error of the MLP takes a smaller one with SGD


@dataclass(frozen=True)
class Architectures:
    steps: int = 120
    seeds: int = 5
    activations: tuple[str, ...] = ("relu", "gelu", "silu")
    networks: tuple[str, ...] = tuple(NETWORKS)
    embedded: bool = False  # use the embedded text even where there is a file


def trials(p: Architectures) -> list[Config]:
    words = EMBEDDED if p.embedded else source()
    real = {n: {"gpt": words, "denoiser": "audio"}.get(n, "digits") for n in p.networks}
    cases = [(n, a, real[n]) for n in p.networks for a in p.activations]
    cases += [(n, "relu", "random") for n in p.networks if n != "denoiser"]
    return [
        {"network": n, "act": a, "data": d, "optimizer": o, "steps": p.steps, "seed": s}
        for n, a, d in cases
        for o in optimizers_of(n)
        for s in range(p.seeds)
    ]


def optimizers_of(network: str) -> tuple[str, str]:
    return ("muon", "adam") if network == "gpt" else ("sgd", "adam")


def trial(config: Config) -> list[Row]:
    data, recipe = _task(config["network"], config["data"], config["optimizer"])
    recipe = replace(recipe, steps=config["steps"], seed=config["seed"])
    net = models.build(NETWORKS[config["network"]], seed=config["seed"], data=data, act=config["act"])
    probe = data.test.x[:64]
    weights, sites = weights_of(net), site_rows(net, probe)
    history = train(net, data, recipe)
    rows = weight_rows(net, weights) + change_rows(sites, site_rows(net, probe))
    final = history.final
    rows.append(
        {
            "quantity": "run",
            "loss": final.loss if final else None,
            "accuracy": final.accuracy if final else None,
            "stopped": history.stopped,
        }
    )
    return rows


def _task(network: str, name: str, optimizer: str) -> tuple[Dataset, Recipe]:
    recipe = Recipe(
        batch=128,
        optimizer=optimizer,
        lr=RATES[optimizer],
        nesterov=False,
        weight_decay=0.0,
        schedule="constant",
        evaluate_on=256,
        fresh=name == "random",
    )
    if network == "gpt":
        tokens = datasets.load("random-tokens,context=32") if name == "random" else text(name, 32)
        return tokens, replace(recipe, batch=16, muon_lr=2e-3, betas=(0.9, 0.95))
    if network == "denoiser":
        return datasets.load("audio,samples=512,count=128,test=32"), replace(recipe, batch=16)
    if network == "mlp":  # as in the other studies: on digits the squared error, which learning does not reverse
        recipe = replace(recipe, loss="onehot-mse", lr=5e-3 if optimizer == "sgd" else recipe.lr)
    if name == "random":
        return datasets.load("noise,side=8,channels=1", count=1024), recipe
    return datasets.load("digits"), recipe


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for key, mine in groups(rows, "network", "act", "data", "optimizer").items():
        facts[" ".join(key)] = "preact_drift {:+.3f} → {:+.3f}, negative inputs {:.2f} → {:.2f}".format(
            *(mean(mine, k) for k in ("preact_drift_0", "preact_drift", "neg_preact_0", "neg_preact"))
        )
    return facts


def mean(rows: Sequence[Row], key: str) -> float:
    """Of one column over the sites in ``rows``."""
    values = [float(r[key]) for r in rows if r["quantity"] == "site"]
    return sum(values) / len(values)


STUDIES = (
    Study(
        name="weight-drift-architectures",
        reduced="small networks, 120 steps",
        paper="weight-drift",
        title="E7, E15: drift of weights and of pre-activations in five architectures with ReLU, GELU and SiLU",
        scales={
            "smoke": Architectures(steps=12, seeds=1, activations=("relu",), embedded=True),
            "small": Architectures(),
            "medium": Architectures(steps=1000),
            "paper": Architectures(steps=5000),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=16),
        trials=trials,
        trial=trial,
        summary=summary,
    ),
)
