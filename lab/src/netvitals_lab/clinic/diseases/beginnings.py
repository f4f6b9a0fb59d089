"""Weights that begin too large, too small, unequal, dead or all the same."""

from __future__ import annotations

import torch
from torch import nn

from netvitals_lab.clinic.disease import Disease, layers, middle
from netvitals_lab.clinic.session import Session


@torch.no_grad()
def _scaled(session: Session, factor: float) -> None:
    for p in session.model.parameters():
        if p.ndim > 1:
            p.mul_(factor)


@torch.no_grad()
def _unbalanced(session: Session, factor: float) -> None:
    found = [m for _, m in layers(session.model)]
    found[1].weight.mul_(factor)  # type: ignore[operator]
    found[2].weight.div_(factor)  # type: ignore[operator]


@torch.no_grad()
def _dead(session: Session, shift: float) -> None:
    layer = middle(session.model)
    assert isinstance(layer.bias, torch.Tensor)
    layer.bias.sub_(shift)


@torch.no_grad()
def _same(session: Session, share: float) -> None:
    """All units of the hidden layers begin alike, up to a share of their own."""
    for _, m in layers(session.model)[:-1]:
        weight = m.weight
        assert isinstance(weight, torch.Tensor)
        weight.copy_(share * weight[:1] + (1 - share) * weight)


@torch.no_grad()
def _huge_head(session: Session, factor: float) -> None:
    head = [m for m in session.model.modules() if isinstance(m, nn.Linear)][-1]
    head.weight.mul_(factor)


DISEASES = (
    Disease(
        name="huge initialisation",
        family="initialisation",
        hosts=("mlp", "deep"),
        dial=(3.0, 6.0, 15.0),
        plant=_scaled,
        cause=("initialisation too large",),
        symptoms=("exploding gradients", "loss rises", "dead units"),
    ),
    Disease(
        name="tiny initialisation",
        family="initialisation",
        hosts=("mlp", "deep"),
        dial=(0.3, 0.1, 0.02),
        plant=_scaled,
        cause=("initialisation too small",),
        symptoms=("plateau", "variance collapse", "vanishing gradients"),
    ),
    Disease(
        name="unbalanced initialisation",
        family="initialisation",
        hosts=("mlp", "mlp-sgd"),
        dial=(5.0, 10.0, 30.0),
        plant=_unbalanced,
        cause=("unbalanced layers",),
        symptoms=("initialisation too large", "initialisation too small", "imbalance growth", "update ratio"),
        where=("*1*", "*2*"),
    ),
    Disease(
        name="units dead from the start",
        family="initialisation",
        hosts=("mlp-relu",),
        dial=(0.3, 1.0, 10.0),
        plant=_dead,
        cause=("dead units",),
        symptoms=("sparsity cliff", "gate density falls", "vanishing gradients", "plateau"),
        where=("blocks.1.act", "blocks.2.act"),
    ),
    Disease(
        name="identical units",
        family="initialisation",
        hosts=("mlp", "mlp-layernorm"),
        dial=(0.9, 0.97, 1.0),
        plant=_same,
        cause=("identical units",),
        symptoms=("rank collapse",),
    ),
    Disease(
        name="huge readout",
        family="initialisation",
        hosts=("mlp-layernorm", "vit", "cnn"),
        dial=(10.0, 30.0, 100.0),
        plant=_huge_head,
        cause=("initialisation too large",),
        symptoms=("loss rises",),
    ),
)
