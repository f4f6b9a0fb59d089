"""Units that shut: dying, saturated, without variance, gates stuck."""

from __future__ import annotations

import torch
from torch import nn

from netvitals_lab.clinic.disease import Disease, middle
from netvitals_lab.clinic.session import Session

ONSET = 50


def _dying(session: Session, shift: float) -> None:
    """From the onset on the biases of a layer sink a little on every step, as a long run at a high rate makes them."""

    def sink(model: nn.Module) -> None:
        bias = middle(model).bias
        assert isinstance(bias, torch.Tensor)
        bias.sub_(shift)

    for step in range(ONSET, session.steps):
        session.edit(step, sink)


@torch.no_grad()
def _saturated(session: Session, factor: float) -> None:
    for name, p in session.model.named_parameters():
        if "norm" in name and name.endswith("weight"):
            p.mul_(factor)


def _decayed(session: Session, decay: float) -> None:
    session.decay_norms = True
    session.weight_decay = decay


@torch.no_grad()
def _stuck(session: Session, shift: float) -> None:
    for name, p in session.model.named_parameters():
        if name.startswith("gates.") and name.endswith("bias"):
            p.sub_(shift)


@torch.no_grad()
def _forgetting(session: Session, shift: float) -> None:
    """The gates of a recurrent layer shut: nothing is let in, nothing is let out."""
    for name, p in session.model.named_parameters():
        if name.startswith("core.bias"):
            p.sub_(shift)


def _collapsing(session: Session, factor: float) -> None:
    """From the onset on the gain of the norm in the second block shrinks on every step, and its shift with it."""

    def shrink(model: nn.Module) -> None:
        for name, p in model.named_parameters():
            if name.startswith("blocks.1.norm"):
                p.mul_(factor)

    for step in range(ONSET, session.steps):
        session.edit(step, shrink)


DISEASES = (
    Disease(
        name="dying ReLU",
        family="nonlinearity",
        hosts=("mlp-relu",),
        dial=(0.3, 0.8, 2.0),
        plant=_dying,
        cause=("dead units",),
        symptoms=("sparsity cliff", "gate density falls", "negative drift", "vanishing gradients", "loss rises"),
        where=("blocks.1.act", "blocks.2.act"),
        onset=ONSET,
    ),
    Disease(
        name="saturation",
        family="nonlinearity",
        hosts=("mlp-sigmoid",),
        dial=(5.0, 15.0, 60.0),
        plant=_saturated,
        cause=("saturation", "dead units"),
        symptoms=("gate density falls", "initialisation too large"),
        where=("blocks.*",),
    ),
    Disease(
        name="collapsed variance",
        family="nonlinearity",
        hosts=("mlp-batchnorm", "mlp-layernorm"),
        dial=(0.95, 0.9, 0.8),
        plant=_collapsing,
        cause=("variance collapse",),
        symptoms=("gate forecast", "loss rises", "vanishing gradients", "weights shrink"),
        where=("blocks.1*",),
        onset=ONSET,
    ),
    Disease(
        name="stuck gates",
        family="nonlinearity",
        hosts=("glu",),
        dial=(5.0, 8.0, 20.0),
        plant=_stuck,
        cause=("saturation", "dead units"),
        symptoms=("gate density falls", "vanishing gradients"),
        where=("open.*", "gates.*", "values.*"),
    ),
    Disease(
        name="recurrent gates shut",
        family="nonlinearity",
        hosts=("lstm",),
        dial=(2.0, 4.0, 10.0),
        plant=_forgetting,
        cause=("vanishing gradients", "saturation", "dead units"),
        symptoms=("plateau", "at chance", "learning rate too low"),
        where=("core*",),
    ),
    Disease(
        name="decay on norms",
        family="optimisation bug",
        hosts=("mlp-batchnorm", "mlp-layernorm", "cnn"),
        dial=(3.0, 10.0, 30.0),
        plant=_decayed,
        cause=("weights shrink",),
        symptoms=("variance collapse", "gate forecast", "vanishing gradients", "plateau"),
    ),
)
