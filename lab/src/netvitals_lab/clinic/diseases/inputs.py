"""Faults of the data, and of the precision that gradients are held in."""

from __future__ import annotations

import torch
from torch import Tensor

from netvitals_lab.clinic.disease import Disease
from netvitals_lab.clinic.session import Batch, Session

ONSET = 60


def _unnormalised(session: Session, factor: float) -> None:
    session.batch_edits.append(lambda step, x, y: (factor * (x + 1.2), y))


def _shuffled(session: Session, _: float) -> None:
    def shuffle(step: int, x: Tensor, y: Tensor) -> Batch:
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(step))
        y = y[order]
        if y.ndim > 1:  # tokens are shuffled among positions too
            y = y.reshape(-1)[torch.randperm(y.numel(), generator=torch.Generator().manual_seed(step))].reshape(y.shape)
        return x, y

    session.batch_edits.append(shuffle)


def _constant(session: Session, share: float) -> None:
    """All examples are the first one, up to a share of their own."""
    session.batch_edits.append(lambda step, x, y: (x[:1] + (1 - share) * (x - x[:1]), y))


def _spiky(session: Session, factor: float) -> None:
    session.batch_edits.append(lambda step, x, y: (x * factor if step >= 20 and step % 20 == 0 else x, y))


def _nan(session: Session, _: float) -> None:
    def leak(step: int, x: Tensor, y: Tensor) -> Batch:
        if step == ONSET:
            x = x.clone()
            x.view(-1)[0] = float("nan")
        return x, y

    session.batch_edits.append(leak)


def _stuck(session: Session, _: float) -> None:
    """The loader repeats one batch from the onset on."""
    draw = session.original = session.draw
    session.draw = lambda step: draw(min(step, ONSET))


def _underflow(session: Session, scale: float) -> None:
    session.half = scale


DISEASES = (
    Disease(
        name="unnormalised input",
        family="data",
        hosts=("mlp", "cnn", "mlp-sgd"),
        dial=(10.0, 50.0, 255.0),
        plant=_unnormalised,
        cause=("unnormalised input",),
        symptoms=("initialisation too large", "exploding gradients", "dead units", "learning rate too high"),
    ),
    Disease(
        name="shuffled labels",
        family="data",
        hosts=("mlp", "cnn", "gpt"),
        dial=(1.0, 1.0, 1.0),
        plant=_shuffled,
        cause=("at chance",),
        symptoms=("plateau",),
    ),
    Disease(
        name="constant input",
        family="data",
        hosts=("mlp", "cnn"),
        dial=(0.99, 0.999, 1.0),
        plant=_constant,
        cause=("constant input",),
        symptoms=("at chance", "plateau", "variance collapse"),
    ),
    Disease(
        name="spiky batches",
        family="data",
        hosts=("mlp", "mlp-sgd"),
        dial=(10.0, 30.0, 100.0),
        plant=_spiky,
        cause=("odd batches",),
        symptoms=("exploding gradients", "loss spike", "spikes"),
        onset=20,
    ),
    Disease(
        name="NaN in a batch",
        family="data",
        hosts=("mlp", "cnn", "mlp-layernorm"),
        dial=(1.0, 1.0, 1.0),
        plant=_nan,
        cause=("input not finite",),
        symptoms=("loss not finite", "exploding gradients"),
        onset=ONSET,
    ),
    Disease(
        name="one batch again and again",
        family="data",
        hosts=("mlp", "cnn"),
        dial=(1.0, 1.0, 1.0),
        plant=_stuck,
        cause=("same batch",),
        onset=ONSET,
    ),
    Disease(
        name="underflow in half precision",
        family="precision",
        hosts=("mlp", "mlp-layernorm", "gpt"),
        dial=(1e-5, 1e-6, 3e-7),
        plant=_underflow,
        cause=("underflow",),
        symptoms=("vanishing gradients", "learning rate too low", "plateau"),
    ),
    Disease(
        name="loss scale too high",
        family="precision",
        hosts=("mlp", "mlp-layernorm", "gpt"),
        dial=(2.0**24, 2.0**28, 2.0**40),
        plant=_underflow,
        cause=("gradient overflow", "exploding gradients"),
        symptoms=("loss not finite",),
    ),
)
