"""Byte-level GPT with Muon and AdamW (E12–E14, P8, P9): sparsity growth, spikes by layer, squares, clips, ReLUfication.

A trial trains one GPT and follows, at a few steps, every layer's sparsity and largest activation on a fixed probe; at
the end spikes and sparsity are measured over the held-out text. Trained GELU networks are then given ReLU and looked at
again, before and after fine-tuning for a twentieth of the steps; a copy that keeps GELU is trained on equally long, as
the control. Activations that are compared have the same five seeds; ReLU and ReLU² also run with AdamW alone, since
spikes and sparsity depend on the recipe.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.capture import ActivationView, Recorder, Vital, observe
from netvitals.drift import sparsity, spikes
from netvitals.layers import relufy
from netvitals_lab import Config, Resources, Row, Study, models
from netvitals_lab.data import Dataset
from netvitals_lab.papers.weight_drift._networks import site_rows, weight_rows, weights_of
from netvitals_lab.papers.weight_drift._text import EMBEDDED, FILE, needed, text
from netvitals_lab.training import History, Moment, Recipe, evaluate, recipe_named, train

# those of E14 and of the clip study that the claims compare, with paired seeds; the rest of the list once
COMPARED = ("relu", "relu2", "relu2:15", "gelu2", "gelu")
CLIPS = ("relu2:50", "relu2:6")
ONCE = ("gelu2:15", "noisy_relu", "sugar_b_silu")
BY_RECIPE = ("relu", "relu2")  # with AdamW too
FINE_TUNING = 0.05  # of the steps, after ReLU was put in
ADAMW_LR = 1e-3
TOKENS = 8192  # of the held-out text at once


@dataclass(frozen=True)
class LanguageTask:
    file: str = FILE
    network: str = "gpt-micro,depth=4,width=64"
    context: int = 64
    steps: int = 200
    observations: int = 2  # besides the one before the first step
    seeds: int = 5
    clips: tuple[str, ...] = CLIPS  # thresholds besides 15
    once: tuple[str, ...] = ()
    test: int = 64  # held-out windows
    recipe: str = "gpt-micro"  # its steps, warm-up and warm-down are scaled to ``steps``; gpt-nano is taken as printed
    adamw: bool = True  # ReLU and ReLU² also with AdamW alone


def trials(p: LanguageTask) -> list[Config]:
    runs = [(a, s, "muon") for s in range(p.seeds) for a in (*COMPARED, *p.clips)] + [(a, 0, "muon") for a in p.once]
    runs += [(a, s, "adamw") for s in range(p.seeds) for a in BY_RECIPE if p.adamw]
    own = {} if p.recipe == "gpt-micro" else {"recipe": p.recipe}
    return [
        {
            "act": act,
            "seed": seed,
            "optimizer": optimizer,
            "data": p.file,
            "network": p.network,
            "context": p.context,
            "steps": p.steps,
            "looks": p.observations,
            "test": p.test,
            **own,
        }
        for act, seed, optimizer in runs
    ]


def trial(config: Config) -> list[Row]:
    data = text(config["data"], config["context"])
    net = models.build(config["network"], seed=config["seed"], data=data, act=config["act"])
    return follow(
        net,
        data,
        steps=config["steps"],
        observations=config["looks"],
        test=config["test"],
        seed=config["seed"],
        swap=config["act"] in ("gelu", "silu"),
        optimizer=config["optimizer"],
        recipe=config.get("recipe", "gpt-micro"),
    )


def follow(
    net: nn.Module,
    data: Dataset,
    *,
    steps: int,
    observations: int = 5,
    test: int = 256,
    seed: int = 0,
    swap: bool = False,
    optimizer: str = "muon",
    recipe: str = "gpt-micro",
) -> list[Row]:
    """Train a language model on any text and tell its sparsity, its spikes and its losses, layer by layer."""
    how = training_of(recipe, steps=steps, observations=observations, test=test, seed=seed, optimizer=optimizer)
    probe = data.test.x[: windows(data)]
    weights = weights_of(net)
    rows: list[Row] = _layers(net, probe, 0)

    def on_step(moment: Moment) -> None:
        if moment.step % max(1, steps // observations) == 0 or moment.step == steps:
            rows.extend(_layers(moment.model, probe, moment.step))

    history = train(net, data, how, on_step=on_step)
    rows += [{"quantity": "loss", "step": e.step, "val_loss": e.loss} for e in history.evaluations]
    rows.append(_ending(history))
    if history.stopped is None:
        rows += [
            {"quantity": "drift", **{k: v for k, v in r.items() if k != "quantity"}} for r in weight_rows(net, weights)
        ]
        rows += _final(net, data, test)
        if swap:
            rows += _relufied(net, data, replace(how, evaluate_on=0, evaluate_every=None), steps, test)
    return rows


def training_of(recipe: str, *, steps: int, observations: int, test: int, seed: int, optimizer: str) -> Recipe:
    """How :func:`follow` trains.

    >>> nano = training_of("gpt-nano", steps=7168, observations=7, test=512, seed=0, optimizer="muon")
    >>> nano.accumulate, nano.muon_lr, nano.warmup, nano.autocast
    (16, 0.0005, 2000, 'bfloat16')
    """
    plain: dict[str, Any] = {} if optimizer == "muon" else {"optimizer": optimizer, "lr": ADAMW_LR}
    if recipe == "gpt-micro":
        plain |= {"warmup": max(1, steps // 10), "warmdown": max(1, round(0.28 * steps))}
    every = max(1, steps // observations)
    return recipe_named(recipe, steps=steps, seed=seed, evaluate_on=test, evaluate_every=every, **plain)


def windows(data: Dataset) -> int:
    """Held-out windows that go through a network at once: 32, fewer where a window is long."""
    return min(32, max(1, TOKENS // data.test.x.shape[1]))


def _layers(net: nn.Module, probe: Tensor, step: int) -> list[Row]:
    """Sparsity and height of every layer on the probe: one column of the layer × step maps."""
    heights = {name: s.max_abs for name, s in spikes(net, probe, mode="eval").sites.items() if s.kind == "activation"}
    return [{**r, "quantity": "layer", "step": step, "max_abs": heights[r["name"]]} for r in site_rows(net, probe)]


def _ending(history: History) -> Row:
    final = history.final
    return {
        "quantity": "run",
        "val_loss": final.loss if final else math.nan,
        "train_loss": sum(history.loss[-10:]) / max(1, len(history.loss[-10:])),
        "stopped": history.stopped or "",
    }


def _final(net: nn.Module, data: Dataset, test: int) -> list[Row]:
    """Over the held-out windows: spikes, sparsity and clipped shares of every layer."""
    batches = data.test.x[:test].split(windows(data))
    high = spikes(net, iter(batches), mode="eval")
    zero = sparsity(net, iter(batches), mode="eval")
    shares = clipped_shares(net, data.test.x[: windows(data)])
    rows: list[Row] = []
    for i, (name, s) in enumerate((n, s) for n, s in high.sites.items() if s.kind == "activation"):
        here = zero.sites[name]
        rows.append(
            {
                "quantity": "final",
                "layer": i + 1,
                "name": name,
                "max_abs": s.max_abs,
                "p999": s.p999,
                "max_over_mean": s.max_over_mean,
                "max_over_median": s.max_over_median,
                "kurtosis": s.kurtosis,
                "spikes": s.spike_count,
                "token": s.token,
                "channel": s.channel,
                "hard": here.hard,
                "soft": here.soft,
                "neg_preact": here.neg_preact,
                **shares.get(name, {}),
            }
        )
    saved = 1 - zero.flops_sparse / zero.flops_dense if zero.flops_dense else 0.0
    rows.append(
        {"quantity": "model", "ffn": zero.ffn, "mean": zero.mean, "all_layers": zero.all_layers, "saved": saved}
    )
    return rows


def clipped_shares(net: nn.Module, x: Tensor) -> dict[str, dict[str, float]]:
    """By site of a clipped square: share of entries at the clip, and share through which no gradient passes (P9)."""
    seen = observe(net, None, x, vitals=[_Clips(net)], mode="eval")
    shares: dict[str, dict[str, float]] = {}
    for r in seen.measurements:
        shares.setdefault(r.site, {})[r.metric] = r.value
    return shares


class _Clips(Vital):
    name = "clips"

    def __init__(self, net: nn.Module) -> None:
        self.modules = dict(net.named_modules())

    def activation(self, recorder: Recorder, view: ActivationView) -> None:
        clip = getattr(self.modules.get(view.site.module), "clip", None)
        at_clip = (view.a >= clip).float().mean() if clip is not None else view.a.new_zeros(())
        recorder.write(view.site, ("clipped", "blocked"), torch.stack([at_clip, (view.derivative == 0).float().mean()]))


def _relufied(net: nn.Module, data: Dataset, recipe: Recipe, steps: int, test: int) -> list[Row]:
    """P8 (ii): ReLU in the place of the trained network's activation, at once and after a little fine-tuning.

    The control keeps its activation and is trained on with the same batches and rates.
    """
    few = max(1, round(FINE_TUNING * steps))
    more = replace(recipe, steps=few, lr=recipe.lr * 0.3, muon_lr=recipe.hidden_lr * 0.3, warmup=0, warmdown=few)

    def measured(model: nn.Module, stage: str) -> Row:
        seen = sparsity(model, iter(data.test.x[:test].split(windows(data))), mode="eval")
        loss = evaluate(model, data.test, "lm", examples=test).loss
        return {"quantity": "relufied", "stage": stage, "hard": seen.mean, "val_loss": loss}

    control = copy.deepcopy(net)
    rows = [measured(net, "trained")]
    train(control, data, more)
    rows.append(measured(control, "control"))
    relufy(net)
    rows.append(measured(net, "swapped"))
    train(net, data, more)
    return [*rows, measured(net, "tuned")]


def layer_map(
    rows: Sequence[Row], act: str, key: str = "max_abs", seed: int = 0
) -> tuple[list[int], list[list[float]]]:
    """(steps, values by layer and step) of one run: the heat map of its spikes, or with ``key="hard"`` of its zeros."""
    mine = [r for r in rows if r["quantity"] == "layer" and r["act"] == act and r["seed"] == seed]
    mine = [r for r in mine if r["optimizer"] == mine[0]["optimizer"]]
    steps = sorted({r["step"] for r in mine})
    layers = sorted({r["layer"] for r in mine})
    at = {(r["layer"], r["step"]): float(r[key]) for r in mine}
    return steps, [[at[layer, step] for step in steps] for layer in layers]


def ready(p: LanguageTask) -> str:
    return needed(p.file)


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for act, optimizer in dict.fromkeys((r["act"], r["optimizer"]) for r in rows):
        mine = [r for r in rows if (r["act"], r["optimizer"]) == (act, optimizer)]
        losses = ", ".join(f"{r['val_loss']:.3f}" for r in mine if r["quantity"] == "run")
        final = [r for r in mine if r["quantity"] == "final"]
        if final:
            height, negative = (sum(r[k] for r in final) / len(final) for k in ("max_abs", "neg_preact"))
            facts[f"{act}, {optimizer}"] = (
                f"val loss {losses}; mean layer max {height:.1f}; negative inputs {negative:.2f}"
            )
    return facts


STUDIES = (
    Study(
        name="weight-drift-gpt",
        reduced="a GPT of width 64 and 200 steps on one book instead of 124 million parameters on FineWeb",
        paper="weight-drift",
        title="E12–E14, P8, P9: sparsity growth, spikes, squares and clips in a byte-level GPT",
        scales={
            "smoke": LanguageTask(
                file=EMBEDDED,
                network="gpt-micro,depth=2,width=32,heads=2",
                context=16,
                steps=20,
                observations=2,
                seeds=1,
                clips=(),
                test=32,
            ),
            "small": LanguageTask(),
            "medium": LanguageTask(network="gpt-micro", steps=2000, observations=5, once=ONCE, test=256),
            # one run of each activation of E14, as in the paper; the top-k and quantile rows are of weight-drift-cliff
            "paper": LanguageTask(
                file="shards:fineweb",
                network="gpt-nano",
                context=2048,
                steps=7168,
                observations=7,
                seeds=1,
                clips=("relu2:50",),
                once=("noisy_relu", "sugar_b_silu"),
                test=512,
                recipe="gpt-nano",
                adamw=False,
            ),
        },
        resources=Resources(cpus=2, memory_gb=4, core_hours=40),
        trials=trials,
        trial=trial,
        summary=summary,
        ready=ready,
    ),
)
