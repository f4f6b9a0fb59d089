"""Losses by name, and the likelihood behind a loss."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from netvitals._help import hint

LossFn = Callable[..., Tensor] | str | None


def _half_mse(output: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(output, target) / 2


def _ce(output: Tensor, target: Tensor) -> Tensor:
    return (
        F.cross_entropy(output.flatten(0, -2), target.flatten()) if output.ndim > 2 else F.cross_entropy(output, target)
    )


def _cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Torch's cross-entropy, or that over the last dimension where only this one fits the target's shape."""
    if output.ndim < 3 or target.shape != output.shape[:-1]:
        return F.cross_entropy(output, target)
    if target.shape == (output.shape[0], *output.shape[2:]):
        raise ValueError(
            f"loss_fn='cross_entropy' is ambiguous: with output shape {tuple(output.shape)} and target shape "
            f"{tuple(target.shape)}, the class dimension may be 1 or the last one. Use loss_fn='ce' for the last, or "
            "torch.nn.functional.cross_entropy for dimension 1"
        )
    return _ce(output, target)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "ce": _ce,
    "mse": F.mse_loss,
    "half-mse": _half_mse,
    "bce": F.binary_cross_entropy_with_logits,
    "l1": F.l1_loss,
    "nll": F.nll_loss,
    "cross_entropy": _cross_entropy,
    **{
        name: getattr(F, name)
        for name in (
            "binary_cross_entropy",
            "binary_cross_entropy_with_logits",
            "hinge_embedding_loss",
            "huber_loss",
            "kl_div",
            "l1_loss",
            "mse_loss",
            "multi_margin_loss",
            "multilabel_margin_loss",
            "multilabel_soft_margin_loss",
            "nll_loss",
            "poisson_nll_loss",
            "smooth_l1_loss",
            "soft_margin_loss",
        )
    },
}


def resolve_loss(loss_fn: LossFn) -> Callable[..., Tensor] | None:
    """The loss as a callable, from a callable or a name; None stays None: the model's output holds its own loss.

    Args:
        loss_fn: a function of (output, target); the name of a loss in ``torch.nn.functional`` (``"cross_entropy"``,
            ``"mse_loss"``, …) or one of ``"ce"``, ``"mse"``, ``"half-mse"``, ``"bce"``, ``"l1"``, ``"nll"``; or None.
            ``"ce"`` takes the last dimension of the output as classes, ``"cross_entropy"`` the one that fits the
            target.

    Returns:
        A function of (output, target) that gives the loss, or None.

    >>> import torch
    >>> resolve_loss("mse")(torch.ones(2), torch.zeros(2))
    tensor(1.)
    >>> resolve_loss("msee")
    Traceback (most recent call last):
    ...
    ValueError: there is no loss 'msee'; did you mean mse or mse_loss?
    """
    if isinstance(loss_fn, type):
        name = loss_fn.__name__
        raise TypeError(f"loss_fn= is the class {name}, expected an instance: give {name}()")
    if loss_fn is None or callable(loss_fn):
        return loss_fn
    if not isinstance(loss_fn, str):
        raise TypeError(
            f"loss_fn= must be a function of (output, target) or one of {', '.join(LOSSES)}, got a "
            f"{type(loss_fn).__name__}; the order of arguments is (model, loss_fn, batch)"
        )
    if loss_fn not in LOSSES:
        near = difflib.get_close_matches(loss_fn, LOSSES, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(LOSSES)}"
        raise ValueError(f"there is no loss {loss_fn!r}; {hint}")
    return LOSSES[loss_fn]


def takes_tensor(loss_fn: Callable[..., Tensor]) -> bool:
    """Whether a loss is torch's own or one of ours, which compare one tensor with another.

    A user's own function gets the output as the model returns it.
    """
    plain = loss_fn.func if isinstance(loss_fn, functools.partial) else loss_fn
    home = getattr(plain, "__module__", None) or type(plain).__module__
    return home.startswith(("torch.", "netvitals.capture.loss"))


_LIKELIHOODS = {
    "ce": "ce",
    "cross_entropy": "ce",
    "nll": "ce",
    "nll_loss": "ce",
    "mse": "mse",
    "mse_loss": "mse",
    "half-mse": "mse",
}
_TORCH_LIKELIHOODS: tuple[tuple[Any, type[nn.Module], str], ...] = (
    (F.cross_entropy, nn.CrossEntropyLoss, "ce"),
    (F.nll_loss, nn.NLLLoss, "ce"),
    (F.mse_loss, nn.MSELoss, "mse"),
)


def likelihood_of(loss_fn: LossFn, target: Any = None) -> str:
    """The likelihood behind a loss: ``"ce"`` (categorical over the last dimension) or ``"mse"`` (Gaussian).

    >>> import torch
    >>> likelihood_of(nn.CrossEntropyLoss()), likelihood_of("half-mse"), likelihood_of(None, torch.tensor([3]))
    ('ce', 'mse', 'ce')
    """
    resolve_loss(loss_fn)  # a wrong order and an unknown name get their own sentences
    plain = loss_fn.func if isinstance(loss_fn, functools.partial) else loss_fn
    if isinstance(plain, str) and plain in _LIKELIHOODS:
        return _LIKELIHOODS[plain]
    for name, kind in _LIKELIHOODS.items():
        if plain is LOSSES[name]:
            return kind
    for function, module, kind in _TORCH_LIKELIHOODS:
        if plain is function or isinstance(plain, module):
            return kind
    if loss_fn is None and isinstance(target, Tensor):
        return "mse" if target.is_floating_point() else "ce"
    given = "no loss_fn and no target" if loss_fn is None else repr(loss_fn)
    raise ValueError(
        f"the type of likelihood cannot be determined from {given}: pass loss_fn as 'ce' or 'mse', or torch's "
        f"cross_entropy or mse_loss {hint('likelihood-unknown')}"
    )
