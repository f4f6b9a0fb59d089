"""What holds before any training: the gate as a ratio, densities at initialisation, the norm's moments, equilibrium.

Experiment E1 and procedures P1, P2, P13 with the falsification by a zero head; no training but for one equilibrium.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals import activations, gates
from netvitals.capture import preserved
from netvitals_lab import Config, Resources, Row, Study, models
from netvitals_lab import data as datasets
from netvitals_lab.papers.gate_density._training import FOUR, S, build, condition
from netvitals_lab.training import Recipe, match_decay, train

GATES = (*FOUR, "leaky_relu:0.1", "softplus:20", "tanh", "sigmoid", "sigmoid:10")
BETAS = (5.0, 10.0, 20.0, 50.0)
# (weights, head) of the encoder: what is drawn small, and what starts at zero
STARTS = (("default", "default"), ("normal", "default"), ("default", "zero"), ("normal", "zero"))


# ViT-B/16 as it is usually made, with a readout that starts at zero and images of 224 pixels; others as the study says
OTHERS: dict[str, dict[str, int]] = {"resnet50": {}, "convnext-tiny": {}, "vit-b16": {"side": 224, "width": 768}}


@dataclass(frozen=True)
class Foundations:
    seeds: int = 20
    sweep_seeds: int = 5
    width: int = 8  # of the convolutional networks
    side: int = 32
    depths: tuple[int, ...] = (1, 2, 4, 8, 12)
    batches: tuple[int, ...] = (4, 16, 64)
    steps: int = 4000  # of the scalar equilibrium
    epochs: int = 40  # of the equilibrium in a network
    others: tuple[str, ...] = ("resnet50", "convnext-tiny")  # of Table 2, beside ResNet-18 and VGG-11


def trials(p: Foundations) -> list[Config]:
    image = {"check": "init", "seeds": p.seeds, "side": p.side, "width": p.width}
    out: list[Config] = [{"check": "ratio", "act": a} for a in GATES]
    out += [{**image, "network": "mlp", "act": a} for a in FOUR]
    out += [{**image, "network": n, "act": "relu"} for n in ("resnet18", "vgg11")]
    out += [{**image, **OTHERS[n], "network": n, "act": "relu" if n == "resnet50" else "gelu"} for n in p.others]
    out += [
        {"check": "zero head", "weights": w, "head": h, "depth": d, "batch": b, "seeds": p.sweep_seeds}
        for w, h in STARTS
        for d in p.depths
        for b in p.batches
    ]
    out += [{"check": "norm moments", "seed": s, "width": p.width} for s in range(p.sweep_seeds)]
    out += [{"check": "softplus", "beta": b} for b in BETAS]
    out += [{"check": "equilibrium", "noise": n, "steps": p.steps} for n in (0.0, 1.0)]
    out += [{"check": "equilibrium of shifts", "act": a, "epochs": p.epochs, "seed": 0} for a in FOUR]
    return out


def trial(config: Config) -> list[Row]:
    return {
        "ratio": _ratio,
        "init": _init,
        "zero head": _zero_head,
        "norm moments": _norm_moments,
        "softplus": _softplus,
        "equilibrium": _equilibrium,
        "equilibrium of shifts": _shifts,
    }[config["check"]](config)


def _ratio(config: Mapping[str, Any]) -> list[Row]:
    """|grad_input / grad_output| against the derivative itself, element by element, under a real loss."""
    rows: list[Row] = []
    for dtype in (torch.float32, torch.float64):
        g = torch.Generator().manual_seed(0)
        f = activations.get(config["act"]).to(dtype)
        x = (2 * torch.randn(256, 128, generator=g, dtype=torch.float64)).to(dtype).requires_grad_()
        head = torch.randn(128, 10, generator=g, dtype=torch.float64).to(dtype)
        y = f(x)
        y.retain_grad()
        F.cross_entropy(y @ head / 10, torch.randint(0, 10, (256,), generator=g)).backward()
        assert x.grad is not None and y.grad is not None
        own = x.detach().requires_grad_()
        truth = torch.autograd.grad(f(own).sum(), own)[0].abs()
        # below the smallest normal number a product loses its digits, and nothing can be divided back
        fit = (y.grad.abs() > torch.finfo(dtype).tiny) & (x.grad.abs() > torch.finfo(dtype).tiny)
        gap = ((x.grad / y.grad).abs() - truth)[fit].abs()
        rows.append(
            {
                "precision": str(dtype).removeprefix("torch."),
                "gap": float(gap.max()),
                "relative": float((gap / truth[fit]).max()),
                "valid": float((y.grad != 0).double().mean()),
            }
        )
    return rows


def _init(config: Mapping[str, Any]) -> list[Row]:
    """Density at initialisation over many seeds on one batch of noise, by both backends."""
    rows: list[Row] = []
    perceptron = config["network"] == "mlp"
    shape = (64, 64) if perceptron else (64 if config["side"] < 32 else 32, 3, config["side"], config["side"])
    g = torch.Generator().manual_seed(64)
    x, y = torch.randn(*shape, generator=g), torch.randint(0, 10, (shape[0],), generator=g)
    for seed in range(config["seeds"]):
        if perceptron:
            net = models.build("mlp:64-128x3-10,norm=batch", seed=seed, act=config["act"])
        else:
            options = {"head": "zero"} if config["network"] == "vit-b16" else {"width": config["width"]}
            if config["network"] == "vgg11":
                options["side"] = config["side"]
            net = models.build(config["network"], seed=seed, act=config["act"], **options)
        local = gates.measure(net, (x, y), mode="train")
        ratio = gates.measure(net, F.cross_entropy, (x, y), backend="ratio", mode="train")
        for theta in local.thetas:
            sites = list(local.sites.values())
            rows.append(
                {
                    "seed": seed,
                    "theta": theta,
                    **{p: local.density(theta, p) for p in ("element", "site", "channel")},
                    "predicted": local.predicted(theta),
                    "ratio": ratio.density(theta),
                    "valid": ratio.valid,
                    "mean": float(np.average([s.mean for s in sites], weights=[s.measured for s in sites])),
                    "between_sites": float(np.std([s.density(theta) for s in sites])),
                    **{f"element {k}": local.density(theta, follows=k) for k in local.kinds},
                }
            )
    return rows


def _zero_head(config: Mapping[str, Any]) -> list[Row]:
    """A transformer whose readout starts at zero has no gradient upstream, at any depth: NaN by ratio only."""
    rows: list[Row] = []
    for seed in range(config["seeds"]):
        net = models.build("vit-mini", seed=seed, depth=config["depth"], init=config["weights"], head=config["head"])
        g = torch.Generator().manual_seed(seed)
        count = config["batch"]
        batch = torch.randn(count, 1, 8, 8, generator=g), torch.randint(0, 10, (count,), generator=g)
        ratio = gates.measure(net, F.cross_entropy, batch, backend="ratio", mode="train")
        density = ratio.density(0.01)
        rows.append(
            {
                "seed": seed,
                "vanished": math.isnan(density),
                "valid": ratio.valid,
                "local": gates.measure(net, batch, mode="train").density(0.01),
                "ratio": None if math.isnan(density) else density,
            }
        )
    return rows


@torch.no_grad()
def _norm_moments(config: Mapping[str, Any]) -> list[Row]:
    """mean z = β and var z = γ² with batch statistics: at sites behind a norm, and behind an addition."""
    net = models.build("resnet18", seed=config["seed"], width=config["width"])
    g = torch.Generator().manual_seed(config["seed"])
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.weight.copy_(0.2 + 1.3 * torch.rand(m.weight.shape, generator=g))
            m.bias.copy_(0.3 * torch.randn(m.bias.shape, generator=g))
    norms = {name: m for name, m in net.named_modules() if isinstance(m, nn.BatchNorm2d)}
    report = gates.measure(net, torch.randn(64, 3, 16, 16, generator=g), mode="train")
    rows: list[Row] = []
    for name, site in report.sites.items():
        owner = name.replace("acts", "norms") if "acts" in name else "stem.1"
        norm = norms[owner]
        gamma, beta = norm.weight.detach().double().abs().numpy(), norm.bias.detach().double().numpy()
        rows.append(
            {
                "site": name,
                "follows": site.site.follows,
                "mean_gap": float(np.abs(site.mu - beta).max()),
                "std_gap": float(np.abs(site.sigma / gamma - 1).max()),
            }
        )
    return rows


def _softplus(config: Mapping[str, Any]) -> list[Row]:
    """softplus'(x; β) = sigmoid(βx): to rounding up to βx = 20, where torch goes over to the identity."""
    beta = config["beta"]
    x = torch.linspace(-40 / beta, 40 / beta, 4001, dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(nn.Softplus(beta)(x).sum(), x)[0]
    gap = (slope - torch.sigmoid(beta * x)).abs().detach()
    inside = (beta * x).detach() <= 20
    return [{"gap": float(gap[inside].max()), "gap_beyond": float(gap[~inside].max())}]


def _equilibrium(config: Mapping[str, Any]) -> list[Row]:
    """θ ← θ − η(g + λθ) with momentum and a constant mean gradient, against θ* = −ḡ/λ."""
    rate, decay, mean = 0.1, 0.05, 0.02
    g = torch.Generator().manual_seed(0)
    theta, velocity = torch.zeros(256, dtype=torch.float64), torch.zeros(256, dtype=torch.float64)
    kept: list[Tensor] = []
    for step in range(config["steps"]):
        pull = mean + config["noise"] * mean * torch.randn(256, generator=g, dtype=torch.float64) + decay * theta
        velocity = 0.9 * velocity + pull
        theta = theta - rate * velocity
        if step >= config["steps"] // 2:
            kept.append(theta.clone())
    average = torch.stack(kept).mean(0)
    return [{"value": float(average.mean()), "expected": -mean / decay, "stderr": float(average.std() / 256**0.5)}]


def _shifts(config: Mapping[str, Any]) -> list[Row]:
    """Shifts β of every BatchNorm after training at a constant rate, beside −ḡ/λ from the gradient of the whole set."""
    data = datasets.load("digits")
    recipe = match_decay(Recipe(epochs=config["epochs"], schedule="constant", lr=0.02), S, data)
    net = build(condition(act=config["act"]), data, config["seed"])
    train(net, data, replace(recipe, seed=config["seed"], evaluate_on=0))
    with preserved(net, train=True):
        F.cross_entropy(net(data.train.x), data.train.y).backward()
        norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm1d)]
        beta = torch.cat([m.bias.detach() for m in norms]).numpy()
        pull = torch.cat([m.bias.grad for m in norms if m.bias.grad is not None]).numpy()
    resting = -pull / recipe.weight_decay
    return [
        {
            "slope": float((beta @ resting) / (resting @ resting)),
            "correlation": float(np.corrcoef(beta, resting)[0, 1]),
            "mean": float(beta.mean()),
            "resting_mean": float(resting.mean()),
            "shifts": beta.size,
        }
    ]


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for network, act in dict.fromkeys((r["network"], r["act"]) for r in rows if r["check"] == "init"):
        values = [
            r["element"]
            for r in rows
            if r["check"] == "init" and (r["network"], r["act"]) == (network, act) and r["theta"] == 0.01
        ]
        facts[f"D(0.01) at init, {network}, {act}"] = f"{np.mean(values):.4f} (std over seeds {np.std(values):.4f})"
    return facts


STUDIES = (
    Study(
        name="gate-density-foundations",
        reduced="skeletons of 8 channels on inputs of noise, and a perceptron",
        paper="gate-density",
        title="E1, P13: gate as a ratio, densities at initialisation, zero heads, moments after a norm, equilibrium",
        scales={
            "smoke": Foundations(
                seeds=3, sweep_seeds=1, side=16, width=4, depths=(1, 4), batches=(8,), steps=1000, epochs=3
            ),
            "small": Foundations(),
            "medium": Foundations(width=32, depths=tuple(range(1, 13)), batches=(4, 8, 16, 32, 64)),
            "paper": Foundations(
                width=64,
                depths=tuple(range(1, 13)),
                batches=(4, 8, 16, 32, 64),
                others=("resnet50", "convnext-tiny", "vit-b16"),
            ),
        },
        trials=trials,
        resources=Resources(cpus=1, memory_gb=4, core_hours=4),
        trial=trial,
        summary=summary,
    ),
)
