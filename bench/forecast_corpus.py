"""The corpus that forecasts are tuned and tested on: small runs of many families, each kept look by look.

A family belongs to the tuning half or to the test half, never to both. Every run is one pickle in a folder outside of
the repository; a run that is there is not made again, so the corpus can be made in pieces:

    python bench/forecast_corpus.py make FOLDER [--only FAMILY]
"""

from __future__ import annotations

import gzip
import itertools
import math
import pickle
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals import vitals as signs
from netvitals.lab import data, models

TUNING = (
    "parity",
    "deep linear",
    "teacher",
    "mlp digits",
    "random labels",
    "gpt text",
    "runaway mlp",
    "runaway labels",
    "runaway teacher",
)
TEST = (
    "modular addition",
    "factorisation",
    "autoencoder",
    "cnn images",
    "floor",
    "mlp images",
    "runaway cnn",
    "runaway autoencoder",
)
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


def scheduler_of(trial: Trial, opt: torch.optim.Optimizer) -> Any:
    n = trial.steps
    shape = {
        "constant": lambda t: 1.0,
        "cosine": lambda t: 0.5 * (1 + math.cos(math.pi * min(t / n, 1.0))),
        "warm-up": lambda t: min(1.0, (t + 1) / (0.15 * n)),
        "warm-up cosine": lambda t: (
            min(1.0, (t + 1) / (0.1 * n)) * 0.5 * (1 + math.cos(math.pi * min(max(0.0, t / n - 0.1) / 0.9, 1.0)))
        ),
        "step": lambda t: 1.0 if t < 0.5 * n else 0.1 if t < 0.8 * n else 0.01,
        "ramp": lambda t: 200.0 ** (t / n),  # towards a rate that no network stands
    }[trial.schedule]
    return torch.optim.lr_scheduler.LambdaLR(opt, shape)


# ---------------------------------------------------------------- tasks


def mlp(
    widths: list[int], act: type[nn.Module], *, norm: bool = False, scale: float = 1.0, bias: bool = True
) -> nn.Module:
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(itertools.pairwise(widths)):
        linear = nn.Linear(a, b, bias=bias)
        linear.weight.data.mul_(scale)
        layers.append(linear)
        if i < len(widths) - 2:
            layers += [nn.BatchNorm1d(b)] if norm else []
            layers += [act()]
    return nn.Sequential(*layers)


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed + 1000)


def parity(seed: int, k: int, width: int, act: type[nn.Module] = nn.ReLU, scale: float = 1.0) -> Any:
    torch.manual_seed(seed)
    x = torch.randint(0, 2, (512, 12), generator=drawn(seed)).float() * 2 - 1
    y = x[:, :k].prod(1, keepdim=True)
    return mlp([12, width, 1], act, scale=scale), x, y, F.mse_loss


def linear_chain(seed: int, depth: int, scale: float, rank: int = 3) -> Any:
    torch.manual_seed(seed)
    g = drawn(seed)
    x = torch.randn(256, 10, generator=g)
    u, v = (torch.linalg.qr(torch.randn(10, rank, generator=g))[0] for _ in range(2))
    target = x @ v @ torch.diag(torch.tensor([2.0, 1.0, 0.5][:rank])) @ u.T
    net = nn.Sequential(*(nn.Linear(10, 10, bias=False) for _ in range(depth)))
    for layer in net:
        nn.init.normal_(layer.weight, std=scale / math.sqrt(10))
    return net, x, target, F.mse_loss


def student(seed: int, depth: int, scale: float, act: type[nn.Module]) -> Any:
    torch.manual_seed(seed)
    g = drawn(seed)
    x = torch.randn(512, 8, generator=g)
    y = torch.tanh(x[:, :1] + 0.3 * x[:, 1:2])
    net = mlp([8] + [24] * (depth - 1) + [1], act, bias=False)
    for m in net:
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, std=scale * math.sqrt(2 / m.in_features))
    return net, x, y, F.mse_loss


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.tensor(found.data, dtype=torch.float32)
    return (x - x.mean()) / x.std(), torch.tensor(found.target)


def images(count: int = 2000) -> tuple[torch.Tensor, torch.Tensor]:
    found = data.load("cifar10")
    split = found.train
    x = torch.as_tensor(np.asarray(split.x))[:count].float()
    x = (x - x.mean()) / x.std()
    return F.avg_pool2d(x, 2), torch.as_tensor(np.asarray(split.y))[:count].long()


def digit_mlp(seed: int, act: type[nn.Module], norm: bool, depth: int = 3, labels: str = "true") -> Any:
    torch.manual_seed(seed)
    x, y = digits()
    if labels == "random":
        x, y = x[:512], torch.randint(0, 10, (512,), generator=drawn(seed))
    return mlp([64] + [64] * (depth - 1) + [10], act, norm=norm), x, y, F.cross_entropy


def text_gpt(seed: int, act: str) -> Any:
    spec = f"gpt-micro,depth=2,width=32,heads=2,context=32,act={act},vocab=128"
    net = models.build(spec, seed=seed)
    text = Path(str(data_folder()), "tinyshakespeare.txt").read_bytes()[:60_000]
    ids = torch.tensor([min(c, 127) for c in text])
    rows = ids[: len(ids) // 33 * 33].reshape(-1, 33)
    loss = lambda out, target: F.cross_entropy(out.flatten(0, -2), target.flatten())
    return net, rows[:, :-1].contiguous(), rows[:, 1:].contiguous(), loss


def data_folder() -> Path:
    import os

    return Path(os.environ.get("NETVITALS_DATA", "data"))


def modular(seed: int, width: int, p: int = 23) -> Any:
    torch.manual_seed(seed)
    a, b = torch.meshgrid(torch.arange(p), torch.arange(p), indexing="ij")
    x = torch.cat([F.one_hot(a.reshape(-1), p), F.one_hot(b.reshape(-1), p)], 1).float()
    return mlp([2 * p, width, p], nn.ReLU), x, ((a + b) % p).reshape(-1), F.cross_entropy


class Factors(nn.Module):
    """A matrix as a product of two or three small ones."""

    def __init__(self, n: int, depth: int, scale: float) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(n, n, bias=False) for _ in range(depth))
        for part in self.parts:
            nn.init.normal_(part.weight, std=scale / math.sqrt(n))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return x


def factors(seed: int, scale: float, depth: int = 2, n: int = 16) -> Any:
    torch.manual_seed(seed)
    g = drawn(seed)
    a, b = torch.randn(n, 2, generator=g), torch.randn(2, n, generator=g)
    return Factors(n, depth, scale), torch.eye(n), (a @ b) / math.sqrt(n), lambda o, y: (o - y).square().sum() / len(y)


def autoencoder(seed: int, act: type[nn.Module], scale: float) -> Any:
    torch.manual_seed(seed)
    x, _ = digits()
    return mlp([64, 24, 8, 24, 64], act, scale=scale), x[:800], x[:800], F.mse_loss


def cnn(seed: int, act: type[nn.Module], norm: bool = True, width: int = 12) -> Any:
    torch.manual_seed(seed)
    bn = (lambda c: [nn.BatchNorm2d(c)]) if norm else (lambda c: [])
    net = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), *bn(width), act(), nn.MaxPool2d(2),
        nn.Conv2d(width, width, 3, padding=1), *bn(width), act(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(width * 16, 32), *([nn.BatchNorm1d(32)] if norm else []), act(), nn.Linear(32, 10),
    )  # fmt: skip
    x, y = images(1000)
    return net, x, y, F.cross_entropy


def image_mlp(seed: int, act: type[nn.Module], norm: bool) -> Any:
    torch.manual_seed(seed)
    x, y = images(1000)
    x = F.avg_pool2d(x, 2).flatten(1)
    return mlp([x.shape[1], 64, 64, 64, 10], act, norm=norm), x, y, F.cross_entropy


def floor(seed: int, kind: str, scale: float) -> Any:
    torch.manual_seed(seed)
    g = drawn(seed)
    x = torch.randn(256, 8, generator=g)
    y = torch.randn(256, 1, generator=g) if kind == "noise" else x[:, :1] + torch.randn(256, 1, generator=g)
    return mlp([8, 16, 16, 1] if kind == "noise" else [8, 1], nn.Tanh, scale=scale), x, y, F.mse_loss


# ---------------------------------------------------------------- families


def trials() -> Iterator[Trial]:
    """Every run of the corpus."""
    for s in range(3):
        for k, width in ((2, 48), (3, 48)):
            yield Trial(
                "parity", s, lambda s=s, k=k, w=width: parity(s, k, w), "sgd", 0.06, steps=1500, note=f"k{k}", looks=120
            )
            yield Trial(
                "parity",
                s,
                lambda s=s, k=k, w=width: parity(s, k, w),
                "adam",
                0.0006,
                steps=900,
                note=f"k{k}",
                looks=120,
            )
        yield Trial(
            "parity",
            s,
            lambda s=s: parity(s, 2, 32, nn.Tanh, 0.3),
            "momentum",
            0.01,
            schedule="warm-up",
            steps=1500,
            note="tanh",
            looks=120,
        )
        for depth, scale, lr in ((2, 0.02, 0.04), (3, 0.15, 0.04), (4, 0.3, 0.03)):
            yield Trial(
                "deep linear",
                s,
                lambda s=s, d=depth, c=scale: linear_chain(s, d, c),
                "sgd",
                lr,
                steps=1500,
                note=f"L{depth}",
                looks=120,
            )
        yield Trial(
            "deep linear",
            s,
            lambda s=s: linear_chain(s, 2, 0.02),
            "momentum",
            0.005,
            1e-3,
            "warm-up",
            1200,
            note="L2",
            looks=120,
        )
        yield Trial(
            "deep linear", s, lambda s=s: linear_chain(s, 3, 0.1), "adam", 0.0005, steps=800, note="L3", looks=120
        )
        for depth, scale, act in ((3, 0.15, nn.Tanh), (3, 0.2, nn.GELU), (4, 0.3, nn.Tanh)):
            yield Trial(
                "teacher",
                s,
                lambda s=s, d=depth, c=scale, a=act: student(s, d, c, a),
                "sgd",
                0.02,
                steps=1000,
                note=f"L{depth}{act.__name__}",
                looks=120,
            )
        yield Trial(
            "teacher",
            s,
            lambda s=s: student(s, 3, 0.1, nn.Tanh),
            "adam",
            0.0005,
            schedule="warm-up",
            steps=800,
            note="L3Tanh",
            looks=120,
        )
        yield Trial(
            "teacher", s, lambda s=s: student(s, 3, 0.41, nn.Tanh), "sgd", 0.02, steps=800, note="default", looks=120
        )
        for act, norm in ((nn.ReLU, True), (nn.GELU, True), (nn.ReLU, False), (nn.SiLU, True)):
            yield Trial(
                "mlp digits",
                s,
                lambda s=s, a=act, n=norm: digit_mlp(s, a, n),
                "momentum",
                0.05,
                2e-2 if norm else 2e-3,
                "cosine",
                600,
                60,
                128,
                f"{act.__name__}{'BN' if norm else ''}",
            )
        yield Trial(
            "mlp digits",
            s,
            lambda s=s: digit_mlp(s, nn.ReLU, True),
            "adamw",
            3e-3,
            3.0,
            "warm-up cosine",
            600,
            60,
            128,
            "ReLUBN",
        )
        yield Trial(
            "mlp digits", s, lambda s=s: digit_mlp(s, nn.Tanh, False), "sgd", 0.1, 1e-2, "step", 600, 60, 128, "Tanh"
        )
        yield Trial(
            "mlp digits",
            s,
            lambda s=s: digit_mlp(s, nn.ReLU, True, 4),
            "sgd",
            0.1,
            3e-2,
            "constant",
            600,
            60,
            128,
            "ReLUBN4",
        )
        yield Trial(
            "random labels",
            s,
            lambda s=s: digit_mlp(s, nn.ReLU, False, labels="random"),
            "adam",
            1e-3,
            steps=600,
            looks=60,
            batch=128,
        )
        yield Trial(
            "random labels",
            s,
            lambda s=s: digit_mlp(s, nn.GELU, True, labels="random"),
            "momentum",
            0.05,
            2e-2,
            "cosine",
            600,
            60,
            128,
        )
        yield Trial(
            "random labels",
            s,
            lambda s=s: digit_mlp(s, nn.ReLU, False, labels="random"),
            "sgd",
            0.01,
            steps=600,
            looks=60,
            batch=128,
        )
        yield Trial(
            "gpt text",
            s,
            lambda s=s: text_gpt(s, "relu"),
            "adamw",
            3e-3,
            0.1,
            "warm-up cosine",
            240,
            40,
            32,
            extra=("attention",),
        )
        yield Trial(
            "gpt text",
            s,
            lambda s=s: text_gpt(s, "gelu"),
            "adamw",
            1e-2,
            0.3,
            "cosine",
            240,
            40,
            32,
            extra=("attention",),
        )
        yield Trial(
            "gpt text",
            s,
            lambda s=s: text_gpt(s, "relu"),
            "momentum",
            0.1,
            1e-3,
            "constant",
            240,
            40,
            32,
            extra=("attention",),
        )
        for opt, lr, act in (
            ("sgd", 0.1, nn.ReLU),
            ("momentum", 0.02, nn.ReLU),
            ("sgd", 0.1, nn.Tanh),
            ("momentum", 0.02, nn.GELU),
            ("adam", 3e-3, nn.ReLU),
        ):
            yield Trial(
                "runaway mlp",
                s,
                lambda s=s, a=act: digit_mlp(s, a, False, 4),
                opt,
                lr,
                schedule="ramp",
                steps=500,
                looks=125,
                batch=64,
                note=act.__name__,
            )
        for opt, lr, act in (
            ("sgd", 0.1, nn.ReLU),
            ("momentum", 0.02, nn.GELU),
            ("adam", 2e-3, nn.ReLU),
            ("momentum", 0.01, nn.SiLU),
        ):
            yield Trial(
                "runaway labels",
                s,
                lambda s=s, a=act: digit_mlp(s, a, False, 3, "random"),
                opt,
                lr,
                schedule="ramp",
                steps=500,
                looks=100,
                batch=64,
                note=act.__name__,
            )
        for opt, lr, act in (
            ("sgd", 0.1, nn.ReLU),
            ("momentum", 0.01, nn.GELU),
            ("adam", 5e-3, nn.SiLU),
            ("sgd", 0.05, nn.SiLU),
        ):
            yield Trial(
                "runaway teacher",
                s,
                lambda s=s, a=act: student(s, 3, 0.7, a),
                opt,
                lr,
                schedule="ramp",
                steps=500,
                looks=100,
                batch=32,
                note=act.__name__,
            )
        # ---- test families
        for opt, lr, act in (
            ("sgd", 0.2, nn.ReLU),
            ("momentum", 0.02, nn.GELU),
            ("adam", 3e-3, nn.ReLU),
            ("momentum", 0.01, nn.SiLU),
            ("sgd", 0.1, nn.GELU),
        ):
            yield Trial(
                "runaway autoencoder",
                s,
                lambda s=s, a=act: autoencoder(s, a, 1.0),
                opt,
                lr,
                schedule="ramp",
                steps=500,
                looks=100,
                batch=64,
                note=act.__name__,
            )
        for width, lr, wd in ((64, 3e-3, 0.1), (48, 1e-2, 0.5), (64, 1e-2, 0.0)):
            yield Trial(
                "modular addition", s, lambda s=s, w=width: modular(s, w), "adamw", lr, wd, "constant", 800, 80, 0
            )
        yield Trial("modular addition", s, lambda s=s: modular(s, 64), "momentum", 0.5, 1e-4, "constant", 1500, 100, 0)
        yield Trial("modular addition", s, lambda s=s: modular(s, 64), "adam", 5e-3, 0.0, "warm-up cosine", 800, 80, 0)
        for scale, depth, opt, lr in (
            (0.01, 2, "sgd", 0.02),
            (0.001, 2, "sgd", 0.04),
            (0.1, 3, "sgd", 0.03),
            (0.01, 2, "adam", 4e-4),
            (0.02, 2, "momentum", 0.002),
        ):
            yield Trial(
                "factorisation",
                s,
                lambda s=s, c=scale, d=depth: factors(s, c, d),
                opt,
                lr,
                schedule="warm-up" if opt == "momentum" else "constant",
                steps=1000,
                note=f"L{depth}s{scale:g}",
                looks=120,
            )
        for act, scale, opt, lr, wd, plan in (
            (nn.Tanh, 1.0, "adam", 2e-3, 0.0, "constant"),
            (nn.ReLU, 1.0, "momentum", 0.05, 1e-4, "cosine"),
            (nn.GELU, 0.5, "sgd", 0.2, 0.0, "constant"),
            (nn.Tanh, 0.3, "sgd", 0.3, 0.0, "constant"),
            (nn.ReLU, 1.0, "adamw", 3e-3, 0.3, "cosine"),
        ):
            yield Trial(
                "autoencoder",
                s,
                lambda s=s, a=act, c=scale: autoencoder(s, a, c),
                opt,
                lr,
                wd,
                plan,
                800,
                70,
                0,
                f"{act.__name__}{scale:g}",
            )
        for act, opt, lr, wd, plan in (
            (nn.ReLU, "momentum", 0.05, 3e-2, "cosine"),
            (nn.GELU, "momentum", 0.05, 3e-2, "step"),
            (nn.SiLU, "adamw", 3e-3, 5.0, "warm-up cosine"),
            (nn.ReLU, "adam", 3e-3, 0.0, "constant"),
            (nn.ReLU, "sgd", 0.1, 5e-2, "constant"),
        ):
            yield Trial("cnn images", s, lambda s=s, a=act: cnn(s, a), opt, lr, wd, plan, 320, 40, 64, act.__name__)
        for kind, scale, opt, lr in (
            ("noise", 1.0, "sgd", 0.05),
            ("noise", 0.3, "adam", 1e-3),
            ("line", 1.0, "sgd", 0.1),
            ("line", 0.1, "momentum", 0.01),
        ):
            yield Trial(
                "floor",
                s,
                lambda s=s, k=kind, c=scale: floor(s, k, c),
                opt,
                lr,
                steps=600,
                looks=60,
                batch=64,
                note=f"{kind}{scale:g}",
            )
        for act, norm, opt, lr, wd, plan in (
            (nn.ReLU, True, "momentum", 0.05, 2e-2, "cosine"),
            (nn.GELU, True, "adamw", 3e-3, 3.0, "cosine"),
            (nn.ReLU, False, "momentum", 0.03, 1e-3, "step"),
            (nn.Tanh, False, "sgd", 0.1, 1e-3, "warm-up"),
            (nn.SiLU, True, "sgd", 0.1, 4e-2, "warm-up cosine"),
        ):
            yield Trial(
                "mlp images",
                s,
                lambda s=s, a=act, n=norm: image_mlp(s, a, n),
                opt,
                lr,
                wd,
                plan,
                600,
                60,
                64,
                f"{act.__name__}{'BN' if norm else ''}",
            )
        for opt, lr, act in (
            ("sgd", 0.05, nn.ReLU),
            ("momentum", 0.01, nn.ReLU),
            ("sgd", 0.05, nn.GELU),
            ("adam", 2e-3, nn.Tanh),
            ("momentum", 0.005, nn.SiLU),
        ):
            yield Trial(
                "runaway cnn",
                s,
                lambda s=s, a=act: cnn(s, a, norm=False),
                opt,
                lr,
                schedule="ramp",
                steps=400,
                looks=100,
                batch=48,
                note=act.__name__,
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
        print(
            f"{trial.name}: {len(found['pages'])} looks, {time.time() - begun:.1f} s, loss {found['losses'][0]:.3g} → {found['losses'][-1]:.3g}",
            flush=True,
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    make(Path(sys.argv[2]), sys.argv[4] if len(sys.argv) > 4 else "")
