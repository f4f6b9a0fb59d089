"""Faults in the training loop: what the optimizer does not get, what the loss is not, what was forgotten."""

from __future__ import annotations

from torch import nn

from netvitals_lab.clinic.disease import Disease, layers
from netvitals_lab.clinic.networks import Cut, Softmaxed
from netvitals_lab.clinic.session import Session


def _no_zero_grad(session: Session, _: float) -> None:
    session.zero_grad = False


def _left_out(session: Session, share: float) -> None:
    """Only the last layers are given to the optimizer."""
    named = [n for n, _ in session.model.named_parameters()]
    kept = set(named[int(share * len(named)) :])
    session.trained = lambda name: name in kept


def _cut(session: Session, depth: float) -> None:
    """A block is detached: everything up to it is cut off from the loss."""
    blocks = session.model.blocks if hasattr(session.model, "blocks") else session.model.model.layers  # type: ignore
    assert isinstance(blocks, nn.ModuleList | nn.Sequential)
    at = min(int(depth * len(blocks)), len(blocks) - 1)
    blocks[at] = Cut(blocks[at])


def _frozen(session: Session, share: float) -> None:
    names = [n for n, _ in layers(session.model)[:-1]]
    chosen = {names[i] for i in range(max(1, round(share * len(names))))}
    session.frozen = lambda name: name.rpartition(".")[0] in chosen


def _softmax_outside(session: Session, _: float) -> None:
    session.squashed = True


def _softmax_inside(session: Session, _: float) -> None:
    session.model = Softmaxed(session.model)


def _summed(session: Session, _: float) -> None:
    session.summed = True


def _negative(session: Session, _: float) -> None:
    session.sign = -1.0


def _eval(session: Session, _: float) -> None:
    session.mode = lambda step: "eval"


def _eval_later(session: Session, share: float) -> None:
    """The loop evaluates after a while, and forgets to go back."""
    session.mode = lambda step: "train" if step < 40 else "eval"


def _unscaled(session: Session, times: float) -> None:
    session.accumulate, session.scale_accumulation = int(times), False


def _strong_decay(session: Session, decay: float) -> None:
    session.weight_decay = decay


DISEASES = (
    Disease(
        name="missing zero_grad",
        family="optimisation bug",
        hosts=("mlp", "mlp-sgd", "gpt", "cnn"),
        dial=(1.0, 1.0, 1.0),
        plant=_no_zero_grad,
        cause=("gradients carried over",),
        symptoms=("exploding gradients", "loss rises", "learning rate too high"),
    ),
    Disease(
        name="most parameters not in the optimizer",
        family="optimisation bug",
        hosts=("mlp", "gpt", "cnn"),
        dial=(0.3, 0.6, 0.9),
        plant=_left_out,
        cause=("not in the optimizer",),
        symptoms=("plateau",),
        where=("*",),
    ),
    Disease(
        name="detached block",
        family="optimisation bug",
        hosts=("mlp", "gpt", "llama"),
        dial=(0.0, 0.5, 1.0),
        plant=_cut,
        cause=("cut off from the loss",),
        symptoms=("vanishing gradients",),
        where=("*",),
    ),
    Disease(
        name="frozen by mistake",
        family="optimisation bug",
        hosts=("mlp", "mlp-layernorm"),
        dial=(0.3, 0.6, 1.0),
        plant=_frozen,
        cause=("frozen",),
        where=("blocks.*",),
    ),
    Disease(
        name="softmax before the loss",
        family="optimisation bug",
        hosts=("mlp", "cnn", "vit"),
        dial=(1.0, 1.0, 1.0),
        plant=_softmax_outside,
        cause=("double softmax",),
        symptoms=("plateau",),
    ),
    Disease(
        name="softmax at the model's end",
        family="optimisation bug",
        hosts=("mlp", "mlp-sgd"),
        dial=(1.0, 1.0, 1.0),
        plant=_softmax_inside,
        cause=("double softmax",),
        symptoms=("plateau",),
    ),
    Disease(
        name="loss summed over the batch",
        family="optimisation bug",
        hosts=("mlp-sgd",),
        dial=(1.0, 1.0, 1.0),
        plant=_summed,
        cause=("loss reduction",),
        symptoms=("learning rate too high", "exploding gradients", "loss rises", "loss not finite", "dead units"),
    ),
    Disease(
        name="loss of the wrong sign",
        family="optimisation bug",
        hosts=("mlp", "mlp-sgd", "gpt"),
        dial=(1.0, 1.0, 1.0),
        plant=_negative,
        cause=("loss sign",),
        symptoms=("loss rises", "exploding gradients", "loss not finite"),
    ),
    Disease(
        name="eval mode while training",
        family="optimisation bug",
        hosts=("mlp-batchnorm", "cnn"),
        dial=(1.0, 1.0, 1.0),
        plant=_eval,
        cause=("eval mode",),
    ),
    Disease(
        name="eval mode after an evaluation",
        family="optimisation bug",
        hosts=("mlp-batchnorm", "cnn"),
        dial=(1.0, 1.0, 1.0),
        plant=_eval_later,
        cause=("eval mode",),
        onset=40,
    ),
    Disease(
        name="accumulated without scaling",
        family="optimisation bug",
        hosts=("mlp-sgd",),
        dial=(2.0, 4.0, 8.0),
        plant=_unscaled,
        cause=("accumulation not scaled",),
        symptoms=("learning rate too high",),
    ),
    Disease(
        name="decay too strong",
        family="optimisation bug",
        hosts=("mlp", "gpt"),
        dial=(5.0, 15.0, 50.0),
        plant=_strong_decay,
        cause=("weights shrink",),
        symptoms=("variance collapse", "plateau", "vanishing gradients", "rank collapse"),
    ),
)
