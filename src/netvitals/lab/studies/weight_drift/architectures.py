"""Does drift show in every architecture (E7, E15)? MLP, residual network, vision transformer, GPT, denoiser.

In pre-norm transformers the input of the up-projection is signed, so that the mean of its weights hardly moves while
pre-activations sink: both are read, the raw drift of the weights and ``preact_drift`` of the sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netvitals.lab import data as datasets
from netvitals.lab import models
from netvitals.lab.data import Dataset
from netvitals.lab.studies import Config, Resources, Row, Study
from netvitals.lab.studies.weight_drift._networks import change_rows, site_rows, weight_rows, weights_of
from netvitals.lab.studies.weight_drift._text import EMBEDDED, source, text
from netvitals.lab.training import Recipe, train

NETWORKS: dict[str, str] = {
    "mlp": "mlp:64-64x3-10,bias=false,init=he",
    "resnet": "resnet-mini,width=8,norm=none",
    "resnet-bn": "resnet-mini,width=8,norm=batch",
    "vit": "vit-mini",
    "gpt": "gpt-micro,depth=3,width=64",
    "denoiser": "denoiser,width=8,heads=2,hidden=32",
}


@dataclass(frozen=True)
class Architectures:
    steps: int = 120
    seeds: int = 2
    activations: tuple[str, ...] = ("relu", "gelu", "silu")
    networks: tuple[str, ...] = tuple(NETWORKS)
    embedded: bool = False  # use the embedded text even where there is a file


def trials(p: Architectures) -> list[Config]:
    words = EMBEDDED if p.embedded else source()
    real = {n: {"gpt": words, "denoiser": "audio"}.get(n, "digits") for n in p.networks}
    configs: list[Config] = [
        {"network": n, "act": a, "data": real[n], "steps": p.steps, "seed": s}
        for n in p.networks
        for a in p.activations
        for s in range(p.seeds)
    ]
    configs += [
        {"network": n, "act": "relu", "data": "random", "steps": p.steps, "seed": s}
        for n in p.networks
        if n != "denoiser"
        for s in range(p.seeds)
    ]
    return configs


def trial(config: Config) -> list[Row]:
    data, recipe = _task(config["network"], config["data"])
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


def _task(network: str, name: str) -> tuple[Dataset, Recipe]:
    plain = Recipe(batch=128, optimizer="adam", lr=2e-3, weight_decay=0.0, schedule="constant", evaluate_on=256)
    if network == "gpt":
        tokens = datasets.load("random-tokens,context=32") if name == "random" else text(name, 32)
        return tokens, replace(
            plain, batch=16, optimizer="muon", lr=5e-3, muon_lr=2e-3, betas=(0.9, 0.95), fresh=name == "random"
        )
    if network == "denoiser":
        return datasets.load("audio,samples=512,count=128,test=32"), replace(plain, batch=16)
    # the MLP as in the other studies: momentum SGD; on digits with the squared error, which learning does not reverse
    perceptron = replace(plain, optimizer="sgd", lr=5e-3, nesterov=False, loss="onehot-mse")
    if name == "random":
        noise = datasets.load("noise,side=8,channels=1", count=1024)
        return noise, replace(perceptron if network == "mlp" else plain, fresh=True)
    return datasets.load("digits"), perceptron if network == "mlp" else plain


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for key in dict.fromkeys((r["network"], r["act"], r["data"]) for r in rows):
        mine = [r for r in rows if (r["network"], r["act"], r["data"]) == key]
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
        paper="weight-drift",
        title="E7, E15: drift of weights and of pre-activations in five architectures with ReLU, GELU and SiLU",
        scales={
            "smoke": Architectures(steps=12, seeds=1, activations=("relu",), embedded=True),
            "small": Architectures(),
            "medium": Architectures(steps=1000, seeds=5),
            "paper": Architectures(steps=5000, seeds=5),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=8),
        trials=trials,
        trial=trial,
        summary=summary,
    ),
)
