"""A signal that is lost, blown up, or carried by one direction only."""

from __future__ import annotations

import torch
from torch import nn

from netvitals_lab.clinic.disease import Disease, layers, middle
from netvitals_lab.clinic.session import Session

ONSET = 40


@torch.no_grad()
def _gains(session: Session, factor: float) -> None:
    """Every hidden layer but the first passes on a share of what it gets, or a multiple."""
    for _, m in layers(session.model)[1:-1]:
        m.weight.mul_(factor)  # type: ignore[operator]


@torch.no_grad()
def _stream(session: Session, factor: float) -> None:
    """Blocks of a residual chain without norms that write more than they read: the stream grows with every block."""
    for name, m in layers(session.model):
        if name.startswith("blocks."):
            m.weight.mul_(factor)  # type: ignore[operator]


def _queries(model: nn.Module, factor: float) -> None:
    for name, m in model.named_modules():
        if name.endswith("qkv") and isinstance(m.weight, torch.Tensor):
            third = m.weight.shape[0] // 3
            m.weight[: 2 * third] *= factor
        elif name.endswith(("q_proj", "k_proj")):
            m.weight.mul_(factor)


def _logits(session: Session, factor: float) -> None:
    session.edit(ONSET, lambda model: _queries(model, factor))


def _collapse(session: Session, factor: float) -> None:
    """Scores grow on every step until a head looks at one key."""
    for step in range(ONSET, session.steps, 4):
        session.edit(step, lambda model: _queries(model, factor))


@torch.no_grad()
def _router(session: Session, shift: float) -> None:
    """Half of the experts are never chosen."""
    session.balance = 0.0
    for name, p in session.model.named_parameters():
        if name.endswith("router.bias"):
            p[: len(p) // 2].sub_(shift)


def _flattened(share: float) -> object:
    def flatten(model: nn.Module) -> None:
        weight = middle(model).weight
        assert isinstance(weight, torch.Tensor)
        u, s, v = torch.linalg.svd(weight.flatten(1), full_matrices=False)
        s[1:] *= 1 - share
        weight.copy_((u * s @ v).reshape(weight.shape))

    return flatten


def _rank(session: Session, share: float) -> None:
    for step in range(ONSET, session.steps):
        session.edit(step, _flattened(share))  # type: ignore[arg-type]


@torch.no_grad()
def _anisotropic(session: Session, size: float) -> None:
    """All embeddings share one large direction."""
    weight = next(m.weight for m in session.model.modules() if isinstance(m, nn.Embedding))
    g = torch.Generator().manual_seed(0)
    weight += (
        size
        * weight.norm(dim=1).mean()
        * torch.nn.functional.normalize(torch.randn(weight.shape[1], generator=g), dim=0)
    )


@torch.no_grad()
def _recurrent(session: Session, factor: float) -> None:
    for name, p in session.model.named_parameters():
        if "weight_hh" in name or "weight_ih" in name:
            p.mul_(factor)


DISEASES = (
    Disease(
        name="vanishing signal",
        family="signal",
        hosts=("deep",),
        dial=(0.5, 0.25, 0.1),
        plant=_gains,
        cause=("vanishing signal", "initialisation too small", "vanishing gradients"),
        symptoms=("plateau", "at chance", "variance collapse"),
    ),
    Disease(
        name="exploding signal",
        family="signal",
        hosts=("deep",),
        dial=(4.0, 8.0, 20.0),
        plant=_gains,
        cause=("exploding signal", "initialisation too large"),
        symptoms=("exploding gradients", "saturation", "loss rises"),
    ),
    Disease(
        name="stream grows with depth",
        family="signal",
        hosts=("residual",),
        dial=(4.0, 8.0, 16.0),
        plant=_stream,
        cause=("stream growth", "exploding signal", "initialisation too large"),
        symptoms=("exploding gradients",),
    ),
    Disease(
        name="attention logits explode",
        family="signal",
        hosts=("gpt", "llama"),
        dial=(6.0, 12.0, 40.0),
        plant=_logits,
        cause=("logit explosion", "attention collapse"),
        symptoms=("loss rises", "loss spike"),
        where=("blocks.*", "model.layers.*"),
        onset=ONSET,
    ),
    Disease(
        name="attention collapses",
        family="signal",
        hosts=("gpt", "llama"),
        dial=(1.2, 1.4, 2.0),
        plant=_collapse,
        cause=("attention collapse", "logit explosion"),
        symptoms=("loss rises",),
        where=("blocks.*", "model.layers.*"),
        onset=ONSET,
    ),
    Disease(
        name="dead experts",
        family="signal",
        hosts=("moe",),
        dial=(4.0, 10.0, 40.0),
        plant=_router,
        cause=("dead experts",),
        symptoms=("hot experts", "vanishing gradients"),
        where=("blocks.*",),
    ),
    Disease(
        name="rank collapse",
        family="signal",
        hosts=("mlp", "mlp-layernorm"),
        dial=(0.1, 0.3, 0.9),
        plant=_rank,
        cause=("rank collapse", "identical units"),
        symptoms=("loss rises",),
        onset=ONSET,
        where=("blocks.*", "features"),
    ),
    Disease(
        name="anisotropic embeddings",
        family="signal",
        hosts=("gpt", "llama"),
        dial=(3.0, 10.0, 30.0),
        plant=_anisotropic,
        cause=("anisotropy",),
        symptoms=("rank collapse",),
    ),
    Disease(
        name="vanishing in a recurrence",
        family="signal",
        hosts=("rnn", "lstm"),
        dial=(0.1, 0.03, 0.003),
        plant=_recurrent,
        cause=("initialisation too small", "vanishing gradients", "vanishing signal"),
        symptoms=("plateau", "at chance"),
        where=("core*",),
    ),
    Disease(
        name="explosion in a recurrence",
        family="signal",
        hosts=("rnn",),
        dial=(4.0, 10.0, 30.0),
        plant=_recurrent,
        cause=("exploding signal", "exploding gradients", "saturation", "initialisation too large"),
        symptoms=("plateau", "at chance"),
    ),
)
