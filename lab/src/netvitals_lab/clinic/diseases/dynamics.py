"""What a loss does over time: a plateau, overfitting, a spike, the edge of stability."""

from __future__ import annotations

import torch
from torch import nn

from netvitals_lab.clinic.disease import Disease, layers
from netvitals_lab.clinic.session import Session
from netvitals_lab.clinic.tasks import Digits

ONSET = 80


@torch.no_grad()
def _saddle(session: Session, scale: float) -> None:
    """Layers that begin near zero under plain descent: the loss stands still at a saddle."""
    for _, m in layers(session.model):
        m.weight.mul_(scale)  # type: ignore[operator]
        if isinstance(m.bias, torch.Tensor):
            m.bias.zero_()
    session.momentum = 0.0


def _overfit(session: Session, examples: float) -> None:
    """A few examples with noisy labels, seen again and again."""
    task = Digits(seed=11, shape=tuple(session.held[0].shape[1:]), noise=0.3)
    x, y = task.x[: int(examples)], task.y[: int(examples)]
    order = lambda step: torch.randperm(len(x), generator=torch.Generator().manual_seed(step))[:64]
    session.draw = lambda step: (x[order(step)], y[order(step)])
    session.validate, session.lr = True, 2 * session.lr


def _spike(session: Session, size: float) -> None:
    """One step goes wrong, and the run recovers."""

    def kick(model: nn.Module) -> None:
        g = torch.Generator().manual_seed(0)
        for p in model.parameters():
            if p.ndim > 1:
                p.add_(size * p.std() * torch.randn(p.shape, generator=g))

    session.edit(ONSET, kick)


def _edge(session: Session, factor: float) -> None:
    """Full batches at a rate just where curvature times rate passes two."""
    x, y = session.draw(0)
    session.draw = lambda step: (x, y)
    session.lr *= factor
    session.momentum = 0.0
    session.weight_decay = 0.0
    session.every = 1


DISEASES = (
    Disease(
        name="saddle",
        family="dynamics",
        hosts=("mlp-sgd",),
        dial=(0.5, 0.2, 0.05),
        plant=_saddle,
        cause=("plateau", "initialisation too small"),
        symptoms=("at chance", "vanishing gradients", "variance collapse", "learning rate too low"),
    ),
    Disease(
        name="overfitting",
        family="dynamics",
        hosts=("mlp", "mlp-layernorm"),
        dial=(400.0, 200.0, 80.0),
        plant=_overfit,
        cause=("overfitting",),
        onset=20,
    ),
    Disease(
        name="loss spike and recovery",
        family="dynamics",
        hosts=("mlp", "gpt", "cnn"),
        dial=(0.6, 1.2, 2.5),
        plant=_spike,
        cause=("loss spike",),
        symptoms=("exploding gradients", "loss rises"),
        onset=ONSET,
        curable=False,
    ),
    Disease(
        name="oscillation at the edge of stability",
        family="dynamics",
        hosts=("mlp-sgd",),
        dial=(6.0, 10.0, 14.0),
        plant=_edge,
        cause=("edge of stability",),
        symptoms=("learning rate too high", "loss rises"),
        curable=False,  # it needs one fixed batch, from which no rate learns what its healthy twin does
    ),
)
