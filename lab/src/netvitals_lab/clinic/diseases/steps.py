"""Steps that are too long, too short, or not taken."""

from __future__ import annotations

from netvitals_lab.clinic.disease import Disease
from netvitals_lab.clinic.session import Session


def _rate(session: Session, factor: float) -> None:
    session.lr *= factor


def _no_warmup(session: Session, factor: float) -> None:
    """A rate that stands only after a warm-up, taken at once; from a quarter of the run on it is the healthy one."""
    quarter = session.steps // 4
    session.schedule = lambda step: factor if step < quarter else 1.0


def _stops(session: Session, share: float) -> None:
    last = 20 + int(10 * (1 - share))
    session.schedule = lambda step: 1.0 if step < last else 0.0


def _clipped(session: Session, norm: float) -> None:
    session.clip = norm


def _momentum(session: Session, momentum: float) -> None:
    session.momentum = momentum


def _epsilon(session: Session, eps: float) -> None:
    session.eps = eps


DISEASES = (
    Disease(
        name="learning rate too high, Adam",
        family="step size",
        hosts=("gpt", "mlp", "llama", "vit"),
        dial=(10.0, 30.0, 100.0),
        plant=_rate,
        cause=("learning rate too high",),
        symptoms=("stream growth", "dead units", "logit explosion", "attention collapse", "loss rises", "update ratio"),
    ),
    Disease(
        name="learning rate too high, SGD",
        family="step size",
        hosts=("mlp-sgd",),
        dial=(10.0, 20.0, 60.0),
        plant=_rate,
        cause=("learning rate too high",),
        symptoms=("dead units", "loss rises", "loss not finite", "exploding gradients"),
    ),
    Disease(
        name="learning rate too low",
        family="step size",
        hosts=("mlp", "gpt", "cnn"),
        dial=(1e-2, 1e-3, 1e-4),
        plant=_rate,
        cause=("learning rate too low",),
        symptoms=("update ratio", "plateau"),
    ),
    Disease(
        name="no warm-up",
        family="step size",
        hosts=("gpt", "vit", "llama"),
        dial=(15.0, 30.0, 100.0),
        plant=_no_warmup,
        cause=("learning rate too high",),
        symptoms=("update ratio", "stream growth", "dead units"),
    ),
    Disease(
        name="schedule at zero",
        family="step size",
        hosts=("mlp", "gpt"),
        dial=(0.0, 0.5, 1.0),
        plant=_stops,
        cause=("learning rate at zero",),
        symptoms=("update ratio", "plateau"),
        onset=25,
    ),
    Disease(
        name="clipping never lets go",
        family="step size",
        hosts=("mlp-sgd",),
        dial=(0.03, 0.01, 0.001),
        plant=_clipped,
        cause=("clipping",),
        symptoms=("learning rate too low", "plateau"),
    ),
    Disease(
        name="momentum too long",
        family="step size",
        hosts=("mlp-sgd",),
        dial=(0.99, 0.995, 0.999),
        plant=_momentum,
        cause=("learning rate too high",),
        symptoms=("loss rises", "edge of stability", "exploding gradients", "loss spike", "dead units"),
    ),
    Disease(
        name="epsilon above the gradients",
        family="step size",
        hosts=("mlp", "gpt"),
        dial=(0.1, 1.0, 10.0),
        plant=_epsilon,
        cause=("learning rate too low",),
        symptoms=("update ratio", "plateau"),
    ),
)
