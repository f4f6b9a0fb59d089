r"""A research probe of gradient leakage on a toy victim of our own: does a stiff gate hide the picture (P11, E19)?

The victim is one convolution, one sigmoid gate of stiffness α, and a linear readout, untrained, on a digit of 8 × 8
pixels: $z = w * x + b$, $s = \sigma(\alpha z)$, logits $Vs + d$. Its gradients are written out, so that all stiffness
values and seeds are attacked in one tensor program. DLG matches gradients over picture and soft label; iDLG reads the
label off the sign of $\partial L/\partial d$ and matches over the picture; Inverting Gradients maximises the cosine
with a prior of total variation and signed steps. All descend with Adam in the unit box. The probe knows this
victim only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from netvitals.lab import data as datasets
from netvitals.lab.engine.judges import groups, means
from netvitals.lab.studies import Config, Resources, Row, Study

ATTACKS = ("dlg", "idlg", "inverting")
STIFFNESS = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0)
CLOSE = 0.01  # mean squared error of a pixel below which the picture counts as recovered


@dataclass(frozen=True)
class Privacy:
    stiffness: tuple[float, ...] = STIFFNESS
    seeds: int = 10
    iterations: tuple[int, ...] = (2400, 9600)  # the longer one tells whether the shorter one had converged
    channels: int = 4


@dataclass(frozen=True)
class Victim:
    """Weights of a batch of victims: w (B, C, 9), b (B, C), v (B, K, C·L), d (B, K); α (B,)."""

    alpha: Tensor
    w: Tensor
    b: Tensor
    v: Tensor
    d: Tensor

    def gradients(self, x: Tensor, label: Tensor) -> list[Tensor]:
        """∂L/∂(w, b, v, d) of the cross-entropy with ``label`` (B, K), for pictures x (B, 8, 8)."""
        patches = F.unfold(x[:, None], 3, padding=1)  # (B, 9, L)
        s = torch.sigmoid(self.alpha[:, None, None] * (torch.bmm(self.w, patches) + self.b[..., None]))
        flat = s.flatten(1)
        error = torch.softmax(torch.bmm(self.v, flat[..., None])[..., 0] + self.d, -1) - label
        back = torch.bmm(error[:, None], self.v)[:, 0].view_as(s) * self.alpha[:, None, None] * s * (1 - s)
        return [torch.bmm(back, patches.mT), back.sum(-1), error[..., None] * flat[:, None], error]


def victims(alphas: Sequence[float], seeds: int, channels: int, side: int = 8, classes: int = 10) -> Victim:
    """Untrained victims: for every seed the same weights at every stiffness."""

    def draw(seed: int) -> list[Tensor]:
        g = torch.Generator().manual_seed(seed)
        return [
            scale * torch.randn(*shape, generator=g, dtype=torch.float64)
            for shape, scale in (
                ((channels, 9), 1 / 3),
                ((channels,), 0.1),
                ((classes, channels * side * side), side**-1.0 / channels**0.5),
                ((classes,), 0.1),
            )
        ]

    drawn = [draw(s) for _ in alphas for s in range(seeds)]
    return Victim(
        torch.tensor([a for a in alphas for _ in range(seeds)], dtype=torch.float64),
        *(torch.stack(parts) for parts in zip(*drawn)),
    )


def attack(victim: Victim, shared: list[Tensor], name: str, iterations: int, seeds: Tensor) -> tuple[Tensor, Tensor]:
    """The picture that the attack ends with, and its objective, for every victim."""
    if name not in ATTACKS:
        raise ValueError(f"there is no attack {name!r}; there are {', '.join(ATTACKS)}")
    x = torch.stack(
        [torch.rand(8, 8, generator=torch.Generator().manual_seed(10_000 + int(s)), dtype=torch.float64) for s in seeds]
    ).requires_grad_()
    guess = torch.zeros_like(shared[3]).requires_grad_()
    known = F.one_hot(shared[3].argmin(-1), shared[3].shape[-1]).double()  # only the true class has p − 1 < 0
    values = [x, guess] if name == "dlg" else [x]
    optimizer = torch.optim.Adam(values, lr=0.05)
    objective = torch.empty(0)
    for t in range(iterations):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * (1 if t < iterations // 2 else 0.2)
        found = victim.gradients(x, torch.softmax(guess, -1) if name == "dlg" else known)
        objective = _objective(name, found, shared, x)
        for value, g in zip(values, torch.autograd.grad(objective.sum(), values)):
            value.grad = g.sign() if name == "inverting" else g
        optimizer.step()
        with torch.no_grad():
            x.clamp_(0, 1)
    return x.detach(), objective.detach()


def _objective(name: str, found: list[Tensor], shared: list[Tensor], x: Tensor) -> Tensor:
    a, b = (torch.cat([t.flatten(1) for t in ts], 1) for ts in (found, shared))
    if name != "inverting":  # relative, so that one rate serves every stiffness
        return (a - b).square().sum(1) / b.square().sum(1)
    variation = x.diff(dim=-1).abs().mean((-1, -2)) + x.diff(dim=-2).abs().mean((-1, -2))
    return 1 - F.cosine_similarity(a, b, dim=1) + 1e-4 * variation


def trials(p: Privacy) -> list[Config]:
    return [
        {
            "attack": a,
            "stiffness": list(p.stiffness),
            "seeds": p.seeds,
            "iterations": count,
            "channels": p.channels,
        }
        for a in ATTACKS
        for count in p.iterations
    ]


def trial(config: Config) -> list[Row]:
    seeds = config["seeds"]
    victim = victims(config["stiffness"], seeds, config["channels"])
    digits = datasets.load("digits,scaling=none")
    index = torch.arange(seeds).repeat(len(config["stiffness"]))
    bright = float(digits.train.x.max())
    x, label = digits.train.x[index, 0].double() / bright, F.one_hot(digits.train.y[index], 10).double()
    shared = victim.gradients(x, label)
    found, objective = attack(victim, shared, config["attack"], config["iterations"], index)
    error = (found - x).square().mean((-1, -2))
    return [
        {"alpha": float(a), "seed": int(s), "error": float(e), "objective": float(o), "recovered": bool(e < CLOSE)}
        for a, s, e, o in zip(victim.alpha, index, error, objective)
    ]


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for (name, count), mine in groups(rows, "attack", "iterations").items():
        share = means(mine, "recovered", "alpha")
        facts[f"{name}, {count} iterations: share recovered by stiffness"] = "  ".join(
            f"{a:g}: {v:.2f}" for a, v in share.items()
        )
    return facts


STUDIES = (
    Study(
        name="gate-density-privacy",
        paper="gate-density",
        title="E19: three attacks on the gradients of a toy victim whose gate stiffens",
        scales={
            "smoke": Privacy(stiffness=(1.0, 10.0, 60.0), seeds=4, iterations=(40, 80)),
            "small": Privacy(),
            "medium": Privacy(seeds=20, iterations=(9600, 38_400)),
            "paper": Privacy(seeds=20, iterations=(9600, 38_400)),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=2),
        trials=trials,
        trial=trial,
        summary=summary,
        depends=("netvitals.lab.studies.gate_density.privacy", "netvitals.lab.data.images"),
    ),
)
