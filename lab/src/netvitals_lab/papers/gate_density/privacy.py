r"""A research probe of gradient leakage on a toy victim of our own: does a stiff gate hide the picture (P11, E19)?

The victim is one convolution, one sigmoid gate of stiffness α, and a linear readout, untrained, on a digit of 8 × 8
pixels: $z = w * x + b$, $s = \sigma(\alpha z)$, logits $Vs + d$. Its gradients are written out, so that all stiffness
values and seeds are attacked in one tensor program. DLG matches gradients over picture and soft label; iDLG reads the
label off the sign of $\partial L/\partial d$ and matches over the picture; Inverting Gradients maximises the cosine
with a prior of total variation and signed steps. All descend with Adam in the unit box, on budgets that go on where
the smaller one ended. What they look for is there at every stiffness: $\partial L/\partial V_k = e_k s$ and
$\partial L/\partial d_k = e_k$ give s, its logit over α is linear in the picture, and least squares have it (the closed
form). The probe knows this victim only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab import data as datasets
from netvitals_lab.engine.judges import groups, means

ATTACKS = ("dlg", "idlg", "inverting")
STIFFNESS = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0)
CLOSED = "closed form"
SOLVED = 1e-12  # objective of DLG and iDLG below which no more iterations are spent
CLOSE = 0.01  # mean squared error of a pixel below which the picture counts as recovered


@dataclass(frozen=True)
class Privacy:
    stiffness: tuple[float, ...] = STIFFNESS
    seeds: int = 10
    budgets: tuple[int, ...] = (2400, 9600, 38_400)  # iterations; a longer one tells whether a shorter had converged
    channels: int = 4


@dataclass(frozen=True)
class Victim:
    """Weights of a batch of victims: w (B, C, 9), b (B, C), v (B, K, C·L), d (B, K); α (B,)."""

    alpha: Tensor
    w: Tensor
    b: Tensor
    v: Tensor
    d: Tensor

    def parts(self, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """∂L/∂w, ∂L/∂b, s and e of the cross-entropy with ``label`` (B, K); ∂L/∂v is e sᵀ and ∂L/∂d is e."""
        patches = F.unfold(x[:, None], 3, padding=1)  # (B, 9, L)
        s = torch.sigmoid(self.alpha[:, None, None] * (torch.bmm(self.w, patches) + self.b[..., None]))
        flat = s.flatten(1)
        error = torch.softmax(torch.bmm(self.v, flat[..., None])[..., 0] + self.d, -1) - label
        back = torch.bmm(error[:, None], self.v)[:, 0].view_as(s) * self.alpha[:, None, None] * s * (1 - s)
        return torch.bmm(back, patches.mT), back.sum(-1), flat, error

    def gradients(self, x: Tensor, label: Tensor) -> list[Tensor]:
        """∂L/∂(w, b, v, d) for pictures x (B, 8, 8)."""
        w, b, s, error = self.parts(x, label)
        return [w, b, error[..., None] * s[:, None], error]

    def some(self, chosen: Tensor) -> Victim:
        """Some victims of the batch."""
        return Victim(*(getattr(self, f.name)[chosen] for f in fields(self)))


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


def attack(
    victim: Victim, shared: list[Tensor], name: str, budgets: Sequence[int], seeds: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """The pictures and their objectives after each of the budgets, for every victim."""
    if name not in ATTACKS:
        raise ValueError(f"there is no attack {name!r}; there are {', '.join(ATTACKS)}")
    x = torch.stack(
        [torch.rand(8, 8, generator=torch.Generator().manual_seed(10_000 + int(s)), dtype=torch.float64) for s in seeds]
    )
    guess = torch.zeros_like(shared[3])
    objective = torch.full((len(x),), torch.inf, dtype=torch.float64)
    ends, done = [], 0
    for budget in budgets:
        left = objective > SOLVED
        if bool(left.any()):
            found = _descend(victim.some(left), [t[left] for t in shared], name, budget - done, x[left], guess[left])
            x, guess, objective = (old.clone() for old in (x, guess, objective))
            x[left], guess[left], objective[left] = found
        ends.append((x, objective))
        done = budget
    return ends


def _descend(
    victim: Victim, shared: list[Tensor], name: str, iterations: int, x: Tensor, guess: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    x, guess = x.clone().requires_grad_(), guess.clone().requires_grad_()
    known = F.one_hot(shared[3].argmin(-1), shared[3].shape[-1]).double()  # only the true class has p − 1 < 0
    values = [x, guess] if name == "dlg" else [x]
    optimizer = torch.optim.Adam(values, lr=0.05)
    size = torch.stack([t.flatten(1).square().sum(1) for t in shared]).sum(0)
    objective = torch.empty(0)
    for t in range(iterations):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * (1 if t < iterations // 2 else 0.2)
        found = victim.parts(x, torch.softmax(guess, -1) if name == "dlg" else known)
        objective = _objective(name, found, shared, size, x)
        for value, g in zip(values, torch.autograd.grad(objective.sum(), values)):
            value.grad = g.sign() if name == "inverting" else g
        optimizer.step()
        with torch.no_grad():
            x.clamp_(0, 1)
    return x.detach(), guess.detach(), objective.detach()


def _objective(name: str, found: Sequence[Tensor], shared: list[Tensor], size: Tensor, x: Tensor) -> Tensor:
    """‖g − g′‖²/‖g′‖² or 1 − cos(g, g′) with the prior; the products of e sᵀ need no outer product."""
    w, b, s, e = found
    dot = (w * shared[0]).sum((1, 2)) + (b * shared[1]).sum(1) + (e * shared[3]).sum(1)
    dot = dot + (torch.bmm(e[:, None], shared[2])[:, 0] * s).sum(1)
    square = w.square().sum((1, 2)) + b.square().sum(1) + e.square().sum(1) * (1 + s.square().sum(1))
    if name != "inverting":  # relative, so that one rate serves every stiffness
        return (square - 2 * dot + size) / size
    variation = x.diff(dim=-1).abs().mean((-1, -2)) + x.diff(dim=-2).abs().mean((-1, -2))
    return 1 - dot / (square * size).sqrt() + 1e-4 * variation


def closed_form(victim: Victim, shared: list[Tensor]) -> Tensor:
    """The picture by algebra: s = ∂L/∂V_k over ∂L/∂d_k, and least squares of w * x + b = logit(s)/α.

    A unit whose s is rounded to 0 or 1 gives no equation.
    """
    largest = shared[3].abs().argmax(-1)
    rows = torch.arange(len(largest))
    s = (shared[2][rows, largest] / shared[3][rows, largest, None]).view(len(rows), victim.w.shape[1], -1)
    pixels = s.shape[-1]
    each = torch.eye(pixels, dtype=torch.float64).view(pixels, 1, 8, 8)
    waves = F.unfold(each, 3, padding=1)  # (pixels, 9, L): what each pixel puts into each patch
    found = []
    for i in rows.tolist():
        kept = (s[i] > 1e-300) & (s[i] < 1 - 1e-12)
        z = (torch.log(s[i]) - torch.log1p(-s[i])) / victim.alpha[i] - victim.b[i, :, None]
        matrix = torch.einsum("cf,pfl->clp", victim.w[i], waves)[kept]
        found.append(torch.linalg.lstsq(matrix, z[kept][:, None], driver="gelsd").solution.view(8, 8))
    return torch.stack(found).clamp(0, 1)


def trials(p: Privacy) -> list[Config]:
    base = {"stiffness": list(p.stiffness), "seeds": p.seeds, "channels": p.channels}
    return [{"attack": a, "budgets": list(p.budgets) if a in ATTACKS else [0], **base} for a in (*ATTACKS, CLOSED)]


def trial(config: Config) -> list[Row]:
    """A row for each budget, stiffness and seed."""
    seeds = config["seeds"]
    victim = victims(config["stiffness"], seeds, config["channels"])
    digits = datasets.load("digits,scaling=none")
    index = torch.arange(seeds).repeat(len(config["stiffness"]))
    bright = float(digits.train.x.max())
    x, label = digits.train.x[index, 0].double() / bright, F.one_hot(digits.train.y[index], 10).double()
    shared = victim.gradients(x, label)
    if config["attack"] == CLOSED:
        ends = [(closed_form(victim, shared), torch.zeros(len(index)))]
    else:
        ends = attack(victim, shared, config["attack"], config["budgets"], index)
    return [
        {"iterations": n, "alpha": float(a), "seed": int(s), "error": float(e), "objective": float(o)}
        for n, (found, objective) in zip(config["budgets"], ends)
        for a, s, e, o in zip(victim.alpha, index, (found - x).square().mean((-1, -2)), objective)
    ]


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for (name, count), mine in groups(rows, "attack", "iterations").items():
        share = means([{**r, "recovered": r["error"] < CLOSE} for r in mine], "recovered", "alpha")
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
            "smoke": Privacy(stiffness=(1.0, 10.0, 60.0), seeds=4, budgets=(40, 80)),
            "small": Privacy(),
            "medium": Privacy(seeds=20, budgets=(9600, 38_400, 153_600)),
            "paper": Privacy(seeds=20, budgets=(9600, 38_400, 153_600)),
        },
        unprinted="the victim's weights, the number of iterations, and what counts as recovered",
        resources=Resources(cpus=1, memory_gb=2, core_hours=2),
        trials=trials,
        trial=trial,
        summary=summary,
        depends=("netvitals_lab.papers.gate_density.privacy", "netvitals_lab.data.images"),
    ),
)
