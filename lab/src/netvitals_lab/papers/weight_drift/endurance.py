"""E3 where it was promised: does the sign of the gradient persist in a residual network on images and a GPT on text?

At ``paper`` scale ResNet-18 on CIFAR-10 and the GPT of 124 million parameters on tokens, for ten epochs (of the GPT,
the printed 7168 steps in ten parts).

At small scale narrow networks and their first steps, on the subsets that there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netvitals_lab import Claims, Config, Measured, Plot, Resources, Row, Series, Study, models
from netvitals_lab import data as datasets
from netvitals_lab.data import Dataset
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import groups, some
from netvitals_lab.papers.weight_drift._networks import weight_rows, weights_of
from netvitals_lab.papers.weight_drift._text import EMBEDDED, needed, present, source, text
from netvitals_lab.papers.weight_drift.cliff import IMAGES
from netvitals_lab.papers.weight_drift.language import training_of
from netvitals_lab.papers.weight_drift.persistence import PersistenceTracker
from netvitals_lab.training import Moment, Recipe, loss_named, steps_of, train

NAME = "weight-drift-endurance"
SMALL = {"resnet": "resnet-mini,width=8,norm=none", "gpt": "gpt-micro,depth=2,width=64,heads=2"}
FULL = {"resnet": "resnet18", "gpt": "gpt-nano"}
LOSS = {"resnet": "ce", "gpt": "lm"}
RATE = {"sgd": 0.02, "adam": 1e-3}
PARTS = 10  # that a run without epochs is told in


@dataclass(frozen=True)
class Endurance:
    """``epochs`` of the images; ``steps`` of the text; looks at ``probe`` examples."""

    epochs: int = 2
    steps: int = 60
    seeds: int = 5
    probe: int = 64
    context: int = 32
    full: bool = False
    embedded: bool = False  # digits and made-up sentences even where there are real data


def trials(p: Endurance) -> list[Config]:
    photographs = p.full or (present(IMAGES) and not p.embedded)
    images: Config = {"network": "resnet", "data": "cifar10" if photographs else "digits", "epochs": p.epochs}
    words = "shards:fineweb" if p.full else EMBEDDED if p.embedded else source()
    writing: Config = {"network": "gpt", "data": words, "steps": p.steps, "context": p.context}
    cases = [({**images, "optimizer": "sgd"}), ({**writing, "optimizer": "muon" if p.full else "adam"})]
    return [{**case, "probe": p.probe, "full": p.full, "seed": s} for case in cases for s in range(p.seeds)]


def trial(config: Config) -> list[Row]:
    data, recipe = _task(config)
    net = models.build(
        (FULL if config["full"] else SMALL)[config["network"]], seed=config["seed"], data=data, act="relu"
    )
    total, per_epoch = steps_of(recipe, data)
    per_epoch = max(1, total // PARTS) if config["network"] == "gpt" else per_epoch
    tracker = PersistenceTracker(
        net, loss_named(LOSS[config["network"]]), per_epoch=per_epoch, epochs=-(-total // per_epoch)
    )
    probe, weights = (data.train.x[: config["probe"]], data.train.y[: config["probe"]]), weights_of(net)
    tracker.observe(0, probe)

    def on_step(moment: Moment) -> None:
        if moment.step < total and tracker.wants(moment.step):
            tracker.observe(moment.step, probe)

    history = train(net, data, recipe, on_step=on_step)
    seen = tracker.report()
    rows: list[Row] = [
        {
            "quantity": "layer",
            "layer": i + 1,
            "name": name,
            "t_flip": seen.t_flip[name],
            "agreement": seen.agreement[name],
            "positive": seen.positive_share()[name],
        }
        for i, name in enumerate(seen.g_pos)
    ]
    rows.append(
        {
            "quantity": "run",
            "steps": list(seen.steps),
            "push": list(seen.push),
            "losses": list(seen.loss),
            "push_flip": seen.push_flip,
            "per_epoch": per_epoch,
            "stopped": history.stopped,
        }
    )
    return rows + weight_rows(net, weights)


def _task(config: Mapping[str, Any]) -> tuple[Dataset, Recipe]:
    """What is learned, and how: plain steps without decay at small scale, the usual recipes at the paper's size."""
    plain = Recipe(
        batch=128,
        optimizer=config["optimizer"],
        lr=RATE.get(config["optimizer"], 0.0),
        nesterov=False,
        weight_decay=0.0,
        schedule="constant",
        seed=config["seed"],
        evaluate_on=0,
    )
    if config["network"] == "resnet":
        return datasets.load(config["data"]), replace(plain, epochs=config["epochs"], loss="ce")
    tokens = text(config["data"], config["context"])
    if config["full"]:
        how = {"observations": PARTS, "test": 512, "seed": config["seed"], "optimizer": config["optimizer"]}
        return tokens, training_of("gpt-nano", steps=config["steps"], **how)
    return tokens, replace(plain, steps=config["steps"], batch=16, loss="lm")


def pushes(rows: Sequence[Row]) -> Plot:
    series = [
        Series(f"{r['network']}, {r['data']}", r["steps"], [v / abs(r["push"][0]) for v in r["push"]], line=True)
        for r in some(rows, quantity="run", seed=0)
    ]
    return Plot("training step", "⟨o, ∇ℓ⟩ over its start", series)


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for (network, data), mine in groups(rows, "network", "data").items():
        layers = some(mine, quantity="layer")
        share = sum(r["positive"] for r in layers) / len(layers)
        facts[f"{network} on {data}"] = f"g_pos positive on {share:.0%} of looks, {len(layers)} layers and seeds"
    return facts


def _obstacle(p: Endurance) -> str:
    return "; ".join(filter(None, (datasets.missing("cifar10"), needed("shards:fineweb")))) if p.full else ""


STUDIES = (
    Study(
        name=NAME,
        paper="weight-drift",
        title="E3: the sign of the gradient in a residual network on images and in a GPT on text",
        scales={
            "smoke": Endurance(epochs=1, steps=20, seeds=1, probe=16, embedded=True),
            "small": Endurance(),
            "medium": Endurance(epochs=10, steps=2000),
            "paper": Endurance(epochs=10, steps=7168, seeds=5, probe=256, context=2048, full=True),
        },
        resources=Resources(cpus=1, memory_gb=3, core_hours=1),
        trials=trials,
        trial=trial,
        reduced="narrow networks and their first steps, on the subsets that there are",
        summary=summary,
        ready=_obstacle,
    ),
)


claim = Claims("weight-drift", study=NAME, seeds=PAIRS)

for network, what in (("resnet", "a residual network on images"), ("gpt", "a GPT on text")):

    @claim(
        f"C23-{network}",
        "g_pos > 0",
        statement=f"The sign of the gradient persists over the first ten epochs in {what}",
        uses={"network": network},
        plot=pushes,
        effect="share of measured steps at which g_pos is positive",
        choices=("ReLU, constant rate, no decay",),
    )
    def persists(rows: Sequence[Row]) -> Measured:
        """g_pos of every layer of every run, and what ⟨o, ∇ℓ⟩ says of it."""
        layers, runs = some(rows, quantity="layer"), some(rows, quantity="run")
        flips = [r["t_flip"] for r in layers]
        known = sorted(t for t in flips if t is not None)
        drift = [r["drift_z"] for r in some(rows, quantity="weights", place="hidden")]
        return Measured(
            sum(r["positive"] for r in layers) / len(layers),
            note="share of measured steps at which g_pos is positive, mean over layers and seeds; the sign persists "
            "where it never stops being positive",
            facts={
                "layers that flip": f"{len(known)} of {len(flips)}",
                "first flip at step": known[0] if known else "never",
                "median flip": known[len(known) // 2] if known else "never",
                "⟨o, ∇ℓ⟩ flips at": ", ".join(str(r["push_flip"]) for r in runs),
                "sign as ⟨o, ∇ℓ⟩": sum(r["agreement"] for r in layers) / len(layers),
                "hidden drift_z": sum(drift) / len(drift),
                "steps": runs[0]["steps"][-1],
                "data": runs[0]["data"],
            },
            ok=not known,
        )
