"""E7 and E15 with the networks as the paper has them: ResNet-18, a transformer on patches, the GPT of 124 million
parameters and a two-branch speech network with its phase; at small scale narrow ones, on the real subsets there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from netvitals_lab import Claims, Config, Resources, Row, Study, Verdict, models
from netvitals_lab import data as datasets
from netvitals_lab.data import Dataset, Split
from netvitals_lab.data.audio import Audio
from netvitals_lab.data.dataset import probe_of
from netvitals_lab.data.folder import root
from netvitals_lab.data.speech import Speech, waveform
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import groups
from netvitals_lab.models.two_branch import TwoBranchSpec, spectra
from netvitals_lab.papers.weight_drift import drift_claims
from netvitals_lab.papers.weight_drift._networks import change_rows, site_rows, weight_rows, weights_of
from netvitals_lab.papers.weight_drift._text import EMBEDDED, present, source, text
from netvitals_lab.papers.weight_drift.cliff import FULL_DATA, FULL_STEPS, IMAGES
from netvitals_lab.papers.weight_drift.language import training_of
from netvitals_lab.training import Recipe, train

NAME = "weight-drift-real-sizes"
SMALL = {
    "mlp": "mlp:3072-64x3-10,bias=false,init=he",
    "resnet": "resnet-mini,width=4,norm=none",
    "resnet-bn": "resnet-mini,width=4,norm=batch",
    "vit": "vit-mini,patch=8",
    "gpt": "gpt-micro,depth=2,width=64,heads=2",
}
FULL = {
    "mlp": "mlp:3072-512x3-10,bias=false,init=he",
    "resnet": "resnet18,norm=none",
    "resnet-bn": "resnet18",
    "vit": "encoder",
    "gpt": "gpt-nano",
}
SPEECH = {False: TwoBranchSpec(8, 1, 2, 32, (1, 2)), True: TwoBranchSpec()}  # narrow, and MP-SENet's size
NETWORKS = (*FULL, "speech")
RATES = {"sgd": 0.02, "adam": 1e-3, "muon": 5e-3}


@dataclass(frozen=True)
class RealSizes:
    steps: int = 60
    seeds: int = 5
    activations: tuple[str, ...] = ("relu",)
    full: bool = False
    embedded: bool = False  # digits and made-up sentences even where there are real data


def trials(p: RealSizes) -> list[Config]:
    photographs = p.full or (present(IMAGES) and not p.embedded)
    words = "shards:fineweb" if p.full else EMBEDDED if p.embedded else source()
    known = {"gpt": words, "speech": "speech" if p.full else "audio"}
    like = {"resnet-bn": "resnet", "speech": "denoiser"}
    steps = {n: FULL_STEPS[like.get(n, n)] if p.full else p.steps for n in NETWORKS}
    out: list[Config] = []
    for n in NETWORKS:
        data = known.get(n, "cifar10" if photographs else "digits")
        for act in p.activations:
            for kind in ("muon", "adam") if n == "gpt" else ("sgd", "adam"):
                base: Config = {"network": n, "act": act, "data": data, "optimizer": kind, "steps": steps[n]}
                out += [{**base, "full": p.full, "seed": s} for s in range(p.seeds)]
    return out


def trial(config: Config) -> list[Row]:
    data, recipe = _task(config)
    net = build(config["network"], data, act=config["act"], seed=config["seed"], full=config["full"])
    probe = data.test.x[:32]
    weights, sites = weights_of(net), site_rows(net, probe)
    history = train(net, data, recipe)
    rows = weight_rows(net, weights) + change_rows(sites, site_rows(net, probe))
    final = history.final
    rows.append({"quantity": "run", "loss": final.loss if final else None, "stopped": history.stopped})
    return rows


def build(network: str, data: Dataset, *, act: str, seed: int, full: bool) -> nn.Module:
    """One of ``NETWORKS`` for this data, its weights drawn by ``seed``."""
    if network == "speech":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return replace(SPEECH[full], act=act).build()
    spec = (FULL if full else SMALL)[network]
    if network == "vit" and not full and data.name == "digits":
        spec = "vit-mini"  # patches of eight are for photographs
    sizes = {"inputs": data.sizes["inputs"]} if network == "mlp" else {}
    return models.build(spec, seed=seed, data=data, act=act, **sizes)


def _task(config: Mapping[str, Any]) -> tuple[Dataset, Recipe]:
    kind = config["optimizer"]
    recipe = Recipe(
        steps=config["steps"],
        batch=128 if config["full"] else 32,
        optimizer=kind,
        lr=RATES[kind],
        nesterov=False,
        weight_decay=0.0,
        schedule="constant",
        seed=config["seed"],
        evaluate_on=64,
    )
    if config["network"] == "speech":
        return phased(config["data"]), replace(recipe, batch=16)
    if config["network"] != "gpt":
        return datasets.load(config["data"]), recipe
    if config["full"]:
        how = {"observations": 1, "test": 512, "seed": config["seed"], "optimizer": kind}
        return text(config["data"], 2048), training_of("gpt-nano", steps=config["steps"], **how)
    return text(config["data"], 32), replace(recipe, batch=16, muon_lr=2e-3, betas=(0.9, 0.95))


def phased(name: str) -> Dataset:
    """Sounds with noise as magnitude and phase, and clean as complex spectra: tones, or the folders of ``speech``."""
    if name == "speech":
        return _Phased().load(root(None))
    form = Audio(samples=512, count=128, test=32)

    def split(count: int, seed: int) -> Split:
        noisy, clean = form.sounds(count, torch.Generator().manual_seed(seed))
        shape: dict[str, Any] = {"window": form.window, "hop": form.hop, "compression": form.compression}
        return Split(spectra(noisy, **shape)[0], spectra(clean, **shape)[1])

    train, test = split(form.count, 0), split(form.test, 1)
    return Dataset(name="audio", train=train, test=test, probe=probe_of(test), task="values")


class _Phased(Speech):
    """The folders of recorded speech, with phase."""

    def _pairs(self, noisy: Path, clean: Path, count: int | None) -> Split:
        names = sorted(p.name for p in noisy.glob("*.wav") if (clean / p.name).is_file())[:count]
        if not names:
            raise ValueError(f"{noisy} and {clean} must hold wave files of the same names, and there are none")
        shape: dict[str, Any] = {"window": self.window, "hop": self.hop, "compression": self.compression}
        cut = lambda folder: torch.cat([self._cut(waveform(folder / n, self.rate)) for n in names])
        return Split(spectra(cut(noisy), **shape)[0], spectra(cut(clean), **shape)[1])


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for (network, data, kind), mine in groups(rows, "network", "data", "optimizer").items():
        sites = [r for r in mine if r["quantity"] == "site"]
        sunk = sum(r["preact_drift"] - r["preact_drift_0"] for r in sites) / len(sites)
        facts[f"{network} on {data}, {kind}"] = f"mean input of activations {sunk:+.3f} σ"
    return facts


def _obstacle(p: RealSizes) -> str:
    return "; ".join(filter(None, map(datasets.missing, dict.fromkeys(FULL_DATA.values())))) if p.full else ""


STUDIES = (
    Study(
        name=NAME,
        paper="weight-drift",
        title="E7, E15: drift on real images and text, and in a two-branch speech network; at the paper's sizes",
        scales={
            "smoke": RealSizes(steps=6, seeds=1, embedded=True),
            "small": RealSizes(),
            "medium": RealSizes(steps=1000, activations=("relu", "gelu", "silu")),
            "paper": RealSizes(activations=("relu", "gelu", "silu"), full=True),
        },
        resources=Resources(cpus=1, memory_gb=3, core_hours=1),
        trials=trials,
        trial=trial,
        reduced="narrow networks and sixty steps, on the subsets that there are and synthetic tones",
        summary=summary,
        ready=_obstacle,
    ),
)


claim = Claims("weight-drift", study=NAME, seeds=PAIRS)

for tag, what, chosen, more in (
    ("real", "networks on images and text", tuple(n for n in NETWORKS if n != "speech"), ()),
    ("speech", "a speech network with magnitude and phase", ("speech",), ("synthetic tones at small scale",)),
):

    @claim(
        f"C11-{tag}",
        "pre-activations sink",
        statement=f"Inputs of activations sink in {what}",
        uses={"network": chosen},
        obstacle=drift_claims.too_short,
        effect="change of the mean input of activations, in its standard deviations",
        choices=("constant rate, no decay", "two optimisers each", *more),
    )
    def sinks(rows: Sequence[Row]) -> Verdict:
        return drift_claims.sunk(rows)
