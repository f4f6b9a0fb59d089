"""The corpus that forecasts are tuned and tested on: small runs of many families, each kept look by look.

A family belongs to the tuning half or to the test half, never to both. Every run is one pickle in a folder outside of
the repository; a run that is there is not made again, so the corpus can be made in pieces:

    python bench/forecasts/corpus.py make FOLDER [--only FAMILY]
"""

from __future__ import annotations

import ast
import gzip
import math
import pickle
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from families_1 import ACTS, TASKS, drawn
from families_2 import MORE
from families_3 import NEW, SHAPES
from families_3 import ROWS as FRESH_ROWS
from families_4 import LAST
from families_4 import ROWS as LAST_ROWS
from torch import nn

import netvitals as nv
from netvitals import vitals as signs

TUNING = (
    "parity", "deep linear", "teacher", "mlp digits", "random labels", "gpt text",
    "runaway mlp", "runaway labels", "runaway teacher",
    "edge of stability", "wrong labels", "denoiser", "warm-up peak", "runaway residual", "runaway recurrent",
    "normed residual", "digit cnn", "too high a rate",
)  # fmt: skip
TEST = (
    "modular addition", "factorisation", "autoencoder", "cnn images", "floor", "mlp images",
    "runaway cnn", "runaway autoencoder",
)  # fmt: skip
SEEN = (  # fresh at first; the rule for danger was made anew after they had been replayed
    "runaway gpt", "noisy digits", "gated table", "diabetes", "waves", "attending digits", "letters",
)  # fmt: skip
FRESH = ("wine", "friedman", "sets", "byte cnn", "towers")  # replayed once, when all was settled
SEEDS = 3
WATCHED = ("gates", "preactivations", "drift", "sparsity", "stream", "gradients", "optimizer", "plateau")


@dataclass(frozen=True)
class Trial:
    """One run: how it is built and how it is trained."""

    family: str
    seed: int
    build: Callable[[], tuple[nn.Module, Any, Any, Callable[..., torch.Tensor]]]
    optimizer: str = "sgd"
    lr: float = 0.1
    decay: float = 0.0
    schedule: str = "constant"
    steps: int = 600
    looks: int = 80
    batch: int = 0  # 0: the whole set
    note: str = ""
    extra: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        parts = (self.family, self.note, self.optimizer, f"{self.lr:g}", f"{self.decay:g}", self.schedule, self.seed)
        return "-".join(str(p).replace(" ", "_") for p in parts if p != "")


def optimizer_of(trial: Trial, net: nn.Module) -> torch.optim.Optimizer:
    p, lr, wd = net.parameters(), trial.lr, trial.decay
    made = {
        "sgd": lambda: torch.optim.SGD(p, lr=lr, weight_decay=wd),
        "momentum": lambda: torch.optim.SGD(p, lr=lr, momentum=0.9, weight_decay=wd),
        "adam": lambda: torch.optim.Adam(p, lr=lr, weight_decay=wd),
        "adamw": lambda: torch.optim.AdamW(p, lr=lr, weight_decay=wd),
    }
    return made[trial.optimizer]()


def shape_of(schedule: str, n: int) -> Callable[[int], float]:
    """The learning rate of a step as a multiple of the first one's, by the name of the schedule."""
    if schedule in SHAPES:
        return lambda t: SHAPES[schedule](t, n)
    cosine = lambda part: 0.5 * (1 + math.cos(math.pi * min(part, 1.0)))
    return {
        "constant": lambda t: 1.0,
        "cosine": lambda t: cosine(t / n),
        "warm-up": lambda t: min(1.0, (t + 1) / (0.15 * n)),
        "warm-up cosine": lambda t: min(1.0, (t + 1) / (0.1 * n)) * cosine(max(0.0, t / n - 0.1) / 0.9),
        "step": lambda t: 1.0 if t < 0.5 * n else 0.1 if t < 0.8 * n else 0.01,
        "ramp": lambda t: 200.0 ** (t / n),  # towards a rate that no network stands
        "slow ramp": lambda t: 20.0 ** (t / n),  # that some do
        "jump": lambda t: 1.0 if t < 0.5 * n else 25.0,
        "pulse": lambda t: 12.0 if 0.4 * n <= t < 0.44 * n else 1.0,
    }[schedule]


def scheduler_of(trial: Trial, opt: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.LambdaLR(opt, shape_of(trial.schedule, trial.steps))


def planned_rates(trial: Trial) -> np.ndarray:
    """Learning rates of the whole run as they were planned, also of steps that it did not live to see."""
    return trial.lr * np.array([[shape_of(trial.schedule, trial.steps)(t)] for t in range(trial.steps)])


# ---------------------------------------------------------------- families

# family | task | optimizer | learning rate | decay | schedule | steps | looks | batch (0: all) | note
ROWS = """
    parity | parity(k=2,width=48) | sgd | 0.06 | 0 | constant | 1500 | 120 | 0 | k2
    parity | parity(k=2,width=48) | adam | 0.0006 | 0 | constant | 900 | 120 | 0 | k2
    parity | parity(k=3,width=48) | sgd | 0.06 | 0 | constant | 1500 | 120 | 0 | k3
    parity | parity(k=3,width=48) | adam | 0.0006 | 0 | constant | 900 | 120 | 0 | k3
    parity | parity(k=2,width=32,act=Tanh,scale=0.3) | momentum | 0.01 | 0 | warm-up | 1500 | 120 | 0 | tanh
    deep linear | linear_chain(depth=2,scale=0.02) | sgd | 0.04 | 0 | constant | 1500 | 120 | 0 | L2
    deep linear | linear_chain(depth=3,scale=0.15) | sgd | 0.04 | 0 | constant | 1500 | 120 | 0 | L3
    deep linear | linear_chain(depth=4,scale=0.3) | sgd | 0.03 | 0 | constant | 1500 | 120 | 0 | L4
    deep linear | linear_chain(depth=2,scale=0.02) | momentum | 0.005 | 0.001 | warm-up | 1200 | 120 | 0 | L2
    deep linear | linear_chain(depth=3,scale=0.1) | adam | 0.0005 | 0 | constant | 800 | 120 | 0 | L3
    teacher | student(depth=3,scale=0.15,act=Tanh) | sgd | 0.02 | 0 | constant | 1000 | 120 | 0 | L3Tanh
    teacher | student(depth=3,scale=0.2,act=GELU) | sgd | 0.02 | 0 | constant | 1000 | 120 | 0 | L3GELU
    teacher | student(depth=4,scale=0.3,act=Tanh) | sgd | 0.02 | 0 | constant | 1000 | 120 | 0 | L4Tanh
    teacher | student(depth=3,scale=0.1,act=Tanh) | adam | 0.0005 | 0 | warm-up | 800 | 120 | 0 | L3Tanh
    teacher | student(depth=3,scale=0.41,act=Tanh) | sgd | 0.02 | 0 | constant | 800 | 120 | 0 | default
    mlp digits | digit_mlp(act=ReLU,norm=True) | momentum | 0.05 | 0.02 | cosine | 600 | 60 | 128 | ReLUBN
    mlp digits | digit_mlp(act=GELU,norm=True) | momentum | 0.05 | 0.02 | cosine | 600 | 60 | 128 | GELUBN
    mlp digits | digit_mlp(act=ReLU,norm=False) | momentum | 0.05 | 0.002 | cosine | 600 | 60 | 128 | ReLU
    mlp digits | digit_mlp(act=SiLU,norm=True) | momentum | 0.05 | 0.02 | cosine | 600 | 60 | 128 | SiLUBN
    mlp digits | digit_mlp(act=ReLU,norm=True) | adamw | 0.003 | 3 | warm-up cosine | 600 | 60 | 128 | ReLUBN
    mlp digits | digit_mlp(act=Tanh,norm=False) | sgd | 0.1 | 0.01 | step | 600 | 60 | 128 | Tanh
    mlp digits | digit_mlp(act=ReLU,norm=True,depth=4) | sgd | 0.1 | 0.03 | constant | 600 | 60 | 128 | ReLUBN4
    random labels | digit_mlp(act=ReLU,norm=False,labels="random") | adam | 0.001 | 0 | constant | 600 | 60 | 128 |
    random labels | digit_mlp(act=GELU,norm=True,labels="random") | momentum | 0.05 | 0.02 | cosine | 600 | 60 | 128 |
    random labels | digit_mlp(act=ReLU,norm=False,labels="random") | sgd | 0.01 | 0 | constant | 600 | 60 | 128 |
    gpt text | text_gpt(act="relu") | adamw | 0.003 | 0.1 | warm-up cosine | 240 | 40 | 32 |
    gpt text | text_gpt(act="gelu") | adamw | 0.01 | 0.3 | cosine | 240 | 40 | 32 |
    gpt text | text_gpt(act="relu") | momentum | 0.1 | 0.001 | constant | 240 | 40 | 32 |
    runaway mlp | digit_mlp(act=ReLU,norm=False,depth=4) | sgd | 0.1 | 0 | ramp | 500 | 125 | 64 | ReLU
    runaway mlp | digit_mlp(act=ReLU,norm=False,depth=4) | momentum | 0.02 | 0 | ramp | 500 | 125 | 64 | ReLU
    runaway mlp | digit_mlp(act=Tanh,norm=False,depth=4) | sgd | 0.1 | 0 | ramp | 500 | 125 | 64 | Tanh
    runaway mlp | digit_mlp(act=GELU,norm=False,depth=4) | momentum | 0.02 | 0 | ramp | 500 | 125 | 64 | GELU
    runaway mlp | digit_mlp(act=ReLU,norm=False,depth=4) | adam | 0.003 | 0 | ramp | 500 | 125 | 64 | ReLU
    runaway labels | digit_mlp(act=ReLU,norm=False,labels="random") | sgd | 0.1 | 0 | ramp | 500 | 100 | 64 | ReLU
    runaway labels | digit_mlp(act=GELU,norm=False,labels="random") | momentum | 0.02 | 0 | ramp | 500 | 100 | 64 | GELU
    runaway labels | digit_mlp(act=ReLU,norm=False,labels="random") | adam | 0.002 | 0 | ramp | 500 | 100 | 64 | ReLU
    runaway labels | digit_mlp(act=SiLU,norm=False,labels="random") | momentum | 0.01 | 0 | ramp | 500 | 100 | 64 | SiLU
    runaway teacher | student(depth=3,scale=0.7,act=ReLU) | sgd | 0.1 | 0 | ramp | 500 | 100 | 32 | ReLU
    runaway teacher | student(depth=3,scale=0.7,act=GELU) | momentum | 0.01 | 0 | ramp | 500 | 100 | 32 | GELU
    runaway teacher | student(depth=3,scale=0.7,act=SiLU) | adam | 0.005 | 0 | ramp | 500 | 100 | 32 | SiLU
    runaway teacher | student(depth=3,scale=0.7,act=SiLU) | sgd | 0.05 | 0 | ramp | 500 | 100 | 32 | SiLU
    runaway autoencoder | autoencoder(act=ReLU,scale=1.0) | sgd | 0.2 | 0 | ramp | 500 | 100 | 64 | ReLU
    runaway autoencoder | autoencoder(act=GELU,scale=1.0) | momentum | 0.02 | 0 | ramp | 500 | 100 | 64 | GELU
    runaway autoencoder | autoencoder(act=ReLU,scale=1.0) | adam | 0.003 | 0 | ramp | 500 | 100 | 64 | ReLU
    runaway autoencoder | autoencoder(act=SiLU,scale=1.0) | momentum | 0.01 | 0 | ramp | 500 | 100 | 64 | SiLU
    runaway autoencoder | autoencoder(act=GELU,scale=1.0) | sgd | 0.1 | 0 | ramp | 500 | 100 | 64 | GELU
    modular addition | modular(width=64) | adamw | 0.003 | 0.1 | constant | 800 | 80 | 0 |
    modular addition | modular(width=48) | adamw | 0.01 | 0.5 | constant | 800 | 80 | 0 |
    modular addition | modular(width=64) | adamw | 0.01 | 0 | constant | 800 | 80 | 0 |
    modular addition | modular(width=64) | momentum | 0.5 | 0.0001 | constant | 1500 | 100 | 0 |
    modular addition | modular(width=64) | adam | 0.005 | 0 | warm-up cosine | 800 | 80 | 0 |
    factorisation | factors(scale=0.01,depth=2) | sgd | 0.02 | 0 | constant | 1000 | 120 | 0 | L2s0.01
    factorisation | factors(scale=0.001,depth=2) | sgd | 0.04 | 0 | constant | 1000 | 120 | 0 | L2s0.001
    factorisation | factors(scale=0.1,depth=3) | sgd | 0.03 | 0 | constant | 1000 | 120 | 0 | L3s0.1
    factorisation | factors(scale=0.01,depth=2) | adam | 0.0004 | 0 | constant | 1000 | 120 | 0 | L2s0.01
    factorisation | factors(scale=0.02,depth=2) | momentum | 0.002 | 0 | warm-up | 1000 | 120 | 0 | L2s0.02
    autoencoder | autoencoder(act=Tanh,scale=1.0) | adam | 0.002 | 0 | constant | 800 | 70 | 0 | Tanh1
    autoencoder | autoencoder(act=ReLU,scale=1.0) | momentum | 0.05 | 0.0001 | cosine | 800 | 70 | 0 | ReLU1
    autoencoder | autoencoder(act=GELU,scale=0.5) | sgd | 0.2 | 0 | constant | 800 | 70 | 0 | GELU0.5
    autoencoder | autoencoder(act=Tanh,scale=0.3) | sgd | 0.3 | 0 | constant | 800 | 70 | 0 | Tanh0.3
    autoencoder | autoencoder(act=ReLU,scale=1.0) | adamw | 0.003 | 0.3 | cosine | 800 | 70 | 0 | ReLU1
    cnn images | cnn(act=ReLU) | momentum | 0.05 | 0.03 | cosine | 320 | 40 | 64 | ReLU
    cnn images | cnn(act=GELU) | momentum | 0.05 | 0.03 | step | 320 | 40 | 64 | GELU
    cnn images | cnn(act=SiLU) | adamw | 0.003 | 5 | warm-up cosine | 320 | 40 | 64 | SiLU
    cnn images | cnn(act=ReLU) | adam | 0.003 | 0 | constant | 320 | 40 | 64 | ReLU
    cnn images | cnn(act=ReLU) | sgd | 0.1 | 0.05 | constant | 320 | 40 | 64 | ReLU
    floor | floor(kind="noise",scale=1.0) | sgd | 0.05 | 0 | constant | 600 | 60 | 64 | noise1
    floor | floor(kind="noise",scale=0.3) | adam | 0.001 | 0 | constant | 600 | 60 | 64 | noise0.3
    floor | floor(kind="line",scale=1.0) | sgd | 0.1 | 0 | constant | 600 | 60 | 64 | line1
    floor | floor(kind="line",scale=0.1) | momentum | 0.01 | 0 | constant | 600 | 60 | 64 | line0.1
    mlp images | image_mlp(act=ReLU,norm=True) | momentum | 0.05 | 0.02 | cosine | 600 | 60 | 64 | ReLUBN
    mlp images | image_mlp(act=GELU,norm=True) | adamw | 0.003 | 3 | cosine | 600 | 60 | 64 | GELUBN
    mlp images | image_mlp(act=ReLU,norm=False) | momentum | 0.03 | 0.001 | step | 600 | 60 | 64 | ReLU
    mlp images | image_mlp(act=Tanh,norm=False) | sgd | 0.1 | 0.001 | warm-up | 600 | 60 | 64 | Tanh
    mlp images | image_mlp(act=SiLU,norm=True) | sgd | 0.1 | 0.04 | warm-up cosine | 600 | 60 | 64 | SiLUBN
    runaway cnn | cnn(act=ReLU,norm=False) | sgd | 0.05 | 0 | ramp | 400 | 100 | 48 | ReLU
    runaway cnn | cnn(act=ReLU,norm=False) | momentum | 0.01 | 0 | ramp | 400 | 100 | 48 | ReLU
    runaway cnn | cnn(act=GELU,norm=False) | sgd | 0.05 | 0 | ramp | 400 | 100 | 48 | GELU
    runaway cnn | cnn(act=Tanh,norm=False) | adam | 0.002 | 0 | ramp | 400 | 100 | 48 | Tanh
    runaway cnn | cnn(act=SiLU,norm=False) | momentum | 0.005 | 0 | ramp | 400 | 100 | 48 | SiLU
    runaway gpt | text_gpt(act="relu") | adamw | 0.003 | 0 | ramp | 240 | 60 | 16 | relu
    runaway gpt | text_gpt(act="gelu") | momentum | 0.05 | 0 | ramp | 240 | 60 | 16 | gelu
    noisy digits | digit_mlp(act=ReLU,norm=False) | sgd | 0.1 | 0 | constant | 500 | 50 | 8 | ReLU
    noisy digits | digit_mlp(act=GELU,norm=True) | adam | 0.002 | 0 | cosine | 500 | 50 | 16 | GELUBN
    noisy digits | digit_mlp(act=Tanh,norm=False,labels="random") | momentum | 0.02 | 0 | constant | 500 | 50 | 8 | Tanh
    edge of stability | one_hot_digits(act=Tanh) | sgd | 1.0 | 0 | constant | 500 | 100 | 0 | Tanh1
    edge of stability | one_hot_digits(act=ReLU) | sgd | 2.0 | 0 | constant | 500 | 100 | 0 | ReLU2
    edge of stability | one_hot_digits(act=GELU) | momentum | 0.3 | 0 | constant | 500 | 100 | 0 | GELU
    edge of stability | one_hot_digits(act=ReLU) | sgd | 4.0 | 0 | cosine | 500 | 100 | 0 | ReLU4
    wrong labels | wrong_labels(act=ReLU,share=0.3) | sgd | 0.2 | 0 | constant | 500 | 50 | 8 | ReLU
    wrong labels | wrong_labels(act=GELU,share=0.5,norm=True) | adam | 0.01 | 0 | constant | 500 | 50 | 16 | GELUBN
    wrong labels | wrong_labels(act=Tanh,share=0.2) | momentum | 0.05 | 0.001 | step | 500 | 50 | 8 | Tanh
    wrong labels | wrong_labels(act=SiLU,share=0.4) | adamw | 0.02 | 0.1 | constant | 500 | 50 | 32 | SiLU
    denoiser | denoiser(act=ReLU) | sgd | 0.3 | 0 | slow ramp | 500 | 100 | 48 | ReLU
    denoiser | denoiser(act=GELU) | momentum | 0.05 | 0 | ramp | 500 | 100 | 48 | GELU
    denoiser | denoiser(act=SiLU) | adam | 0.003 | 0 | slow ramp | 500 | 100 | 48 | SiLU
    denoiser | denoiser(act=Tanh) | adam | 0.003 | 0 | ramp | 500 | 100 | 48 | Tanh
    denoiser | denoiser(act=ReLU) | momentum | 0.05 | 0.0001 | pulse | 500 | 100 | 24 | ReLUpulse
    warm-up peak | digit_mlp(act=ReLU,norm=False,depth=6) | momentum | 0.2 | 0 | warm-up cosine | 500 | 100 | 64 | ReLU
    warm-up peak | digit_mlp(act=GELU,norm=True,depth=5) | adamw | 0.05 | 0.1 | warm-up cosine | 500 | 100 | 64 | GELUBN
    warm-up peak | digit_mlp(act=Tanh,norm=False,depth=5) | adam | 0.02 | 0 | warm-up cosine | 500 | 100 | 64 | Tanh
    warm-up peak | digit_mlp(act=ReLU,norm=False,depth=4) | sgd | 0.3 | 0 | pulse | 500 | 100 | 32 | ReLUpulse
    runaway residual | residual(act=ReLU,norm=False) | sgd | 0.02 | 0 | ramp | 500 | 100 | 48 | ReLU
    runaway residual | residual(act=GELU,norm=False) | momentum | 0.003 | 0 | ramp | 500 | 100 | 48 | GELU
    runaway residual | residual(act=Tanh,norm=True) | adam | 0.001 | 0 | jump | 500 | 100 | 48 | TanhLN
    runaway residual | residual(act=ReLU,norm=False) | momentum | 0.01 | 0 | jump | 500 | 100 | 48 | ReLUjump
    runaway recurrent | recurrent(gated=False) | sgd | 0.05 | 0 | ramp | 500 | 100 | 32 | plain
    runaway recurrent | recurrent(gated=True) | adam | 0.003 | 0 | ramp | 500 | 100 | 32 | gated
    runaway recurrent | recurrent(gated=False) | adam | 0.005 | 0 | slow ramp | 500 | 100 | 32 | slow
    runaway recurrent | recurrent(gated=True) | momentum | 0.05 | 0 | ramp | 500 | 100 | 32 | gated
    normed residual | residual(act=ReLU,norm=True) | adamw | 0.002 | 0.1 | warm-up cosine | 500 | 60 | 96 | ReLULN
    normed residual | residual(act=GELU,norm=True) | adamw | 0.005 | 3 | cosine | 500 | 60 | 96 | GELULN
    normed residual | residual(act=ReLU,norm=True,blocks=4) | momentum | 0.02 | 0.01 | step | 500 | 60 | 96 | ReLULN4
    normed residual | residual(act=SiLU,norm=True) | sgd | 0.1 | 0.02 | constant | 500 | 60 | 96 | SiLULN
    too high a rate | least_squares(noise=0.1) | sgd | 2.02 | 0 | constant | 500 | 100 | 0 | over
    too high a rate | least_squares(noise=0.1) | sgd | 2.04 | 0 | constant | 500 | 100 | 0 | over
    too high a rate | least_squares(noise=0.1) | sgd | 1.9 | 0 | constant | 500 | 100 | 0 | under
    too high a rate | least_squares(noise=0.5) | sgd | 1.6 | 0 | constant | 500 | 100 | 50 | under
    too high a rate | least_squares(noise=0.1) | momentum | 3.806 | 0 | constant | 500 | 100 | 0 | over
    digit cnn | digit_cnn(act=ReLU) | momentum | 0.03 | 0.02 | cosine | 300 | 50 | 64 | ReLUBN
    digit cnn | digit_cnn(act=GELU) | adamw | 0.003 | 3 | warm-up cosine | 300 | 50 | 64 | GELUBN
    digit cnn | digit_cnn(act=ReLU) | sgd | 0.1 | 0.03 | constant | 300 | 50 | 64 | ReLUBN
    digit cnn | digit_cnn(act=SiLU,norm=False) | adam | 0.002 | 0 | constant | 300 | 50 | 64 | SiLU
    digit cnn | digit_cnn(act=ReLU,norm=False) | momentum | 0.03 | 0.002 | step | 300 | 50 | 64 | ReLU
"""


def trials(rows: str = ROWS.strip() + FRESH_ROWS.rstrip() + LAST_ROWS, more: Mapping[str, Any] = {}) -> Iterator[Trial]:
    """Every run of the corpus, or those of other rows with the tasks that they need."""
    for seed in range(SEEDS):
        for row in rows.strip().splitlines():
            family, task, optimizer, lr, decay, schedule, steps, looks, batch, note = (
                c.strip() for c in row.split("|")
            )
            name, _, given = task.rstrip(")").partition("(")
            pairs = [pair.split("=") for pair in given.split(",")]
            values = {k: ACTS[v] if v in ACTS else ast.literal_eval(v) for k, v in pairs}
            yield Trial(
                family=family,
                seed=seed,
                build=partial({**TASKS, **MORE, **NEW, **LAST, **more}[name], seed, **values),
                optimizer=optimizer,
                lr=float(lr),
                decay=float(decay),
                schedule=schedule,
                steps=int(steps),
                looks=int(looks),
                batch=int(batch),
                note=note,
                extra=("attention",) if "gpt" in family else (),
            )


# ---------------------------------------------------------------- making


def made(trial: Trial) -> dict[str, Any]:
    """Train one run under watch and keep every look."""
    net, x, y, loss_fn = trial.build()
    opt = optimizer_of(trial, net)
    sched = scheduler_of(trial, opt)
    every = max(1, trial.steps // trial.looks)
    plateau, settings = signs.get("plateau"), signs.get("optimizer")
    names = [n for n in (*WATCHED, *trial.extra) if n not in ("plateau", "optimizer")]
    probe = (x[:256], y[:256], loss_fn)
    pages, plans, losses, rates = [], [], [], []
    g = drawn(trial.seed)
    with nv.watch(
        net,
        opt,
        every=every,
        probe=probe,
        vitals=[*names, plateau, settings],
        scheduler=sched,
        total_steps=trial.steps,
        forecasts=False,
    ) as seen:
        seen._buffer.finished.append(pages.append)
        for t in range(trial.steps):
            rows = slice(None) if not trial.batch else torch.randint(0, len(x), (trial.batch,), generator=g)
            loss = loss_fn(net(x[rows]), y[rows])
            opt.zero_grad()
            loss.backward()
            rates.append([group["lr"] for group in opt.param_groups])
            opt.step()
            if t % every == 0:
                plans.append((t, settings.plan.gain, settings.plan.decay))
            seen.step(loss)
            sched.step()
            losses.append(float(loss.detach()))
            if not math.isfinite(losses[-1]) or losses[-1] > 1e6 * max(losses[0], 1e-3):
                break
    return {
        "family": trial.family,
        "name": trial.name,
        "every": every,
        "total": trial.steps,
        "pages": pages,
        "losses": np.array(losses),
        "rates": np.array(rates),
        "plans": plans,
        "snapshots": list(plateau.observations),
        "meta": {
            "sites": [s.__dict__ for s in seen.sites],
            "activations": dict(seen.activations),
            "skipped": dict(seen.skipped),
            "optimizer": [{"name": type(opt).__name__}],
        },
    }


def make(folder: Path, only: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for trial in trials():
        file = folder / f"{trial.name}.pkl.gz"
        if file.exists() or (only and trial.family != only):
            continue
        begun = time.time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = made(trial)
        draft = file.with_suffix(".new")
        with gzip.open(draft, "wb", compresslevel=2) as out:
            pickle.dump(found, out)
        draft.rename(file)
        print(trial.name, len(found["pages"]), f"{time.time() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    make(Path(sys.argv[2]), sys.argv[4] if len(sys.argv) > 4 else "")
