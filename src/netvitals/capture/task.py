"""A task: a model, a loss and one batch in any form a loader yields; the one place that takes them apart.

Everything that runs a user's model has the signature ``(model, loss_fn, batch, *, mode, only, seed, progress)``.
"""

from __future__ import annotations

import copy
import difflib
import fnmatch
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LossFn = Callable[..., Tensor] | str | None
Only = str | Iterable[str] | Callable[[str], bool] | None  # names, patterns of names, or a function of names
TARGETS = ("labels", "label", "targets", "target", "y")  # where a dict keeps what the loss compares with


def _half_mse(output: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(output, target) / 2


def _ce(output: Tensor, target: Tensor) -> Tensor:
    return (
        F.cross_entropy(output.flatten(0, -2), target.flatten()) if output.ndim > 2 else F.cross_entropy(output, target)
    )


LOSSES: dict[str, Callable[..., Tensor]] = {
    "ce": _ce,
    "mse": F.mse_loss,
    "half-mse": _half_mse,
    "bce": F.binary_cross_entropy_with_logits,
    "l1": F.l1_loss,
    "nll": F.nll_loss,
}


def resolve_loss(loss_fn: LossFn) -> Callable[..., Tensor] | None:
    """The loss as a callable, from a callable or a name; None stays None: the model's output holds its own loss.

    >>> resolve_loss("mse")(torch.ones(2), torch.zeros(2))
    tensor(1.)
    >>> resolve_loss("msee")
    Traceback (most recent call last):
    ...
    ValueError: there is no loss 'msee'; did you mean mse or half-mse?
    """
    if loss_fn is None or callable(loss_fn):
        return loss_fn
    if not isinstance(loss_fn, str):
        raise TypeError(
            f"loss_fn must be a function of (output, target) or one of {', '.join(LOSSES)}, got a "
            f"{type(loss_fn).__name__}; the order is (model, loss_fn, batch)"
        )
    if loss_fn not in LOSSES:
        near = difflib.get_close_matches(loss_fn, LOSSES, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(LOSSES)}"
        raise ValueError(f"there is no loss {loss_fn!r}; {hint}")
    return LOSSES[loss_fn]


@dataclass(frozen=True)
class Task:
    """``loss_fn(model(*args, **kwargs), *targets)``; made by :func:`task_of`."""

    model: nn.Module
    loss_fn: Callable[..., Tensor] | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    targets: tuple[Any, ...]

    def forward(self) -> Any:
        """The model's output on the batch."""
        return self.model(*self.args, **self.kwargs)

    def loss(self, output: Any) -> Tensor:
        """The loss of an output, one number; a model's own ``output.loss`` where no loss function was given."""
        if self.loss_fn is None:
            found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
            if found is None:
                raise TypeError(
                    f"no loss_fn was given, and the model's output, a {type(output).__name__}, holds no loss; "
                    "give loss_fn, or a batch with labels that the model takes"
                )
        else:
            found = self.loss_fn(main_output(output) if self._plain_target else output, *self.targets)
        if not isinstance(found, Tensor) or found.numel() != 1:
            what = (
                f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            )
            raise TypeError(f"the loss function must return one number as a tensor, got {what}")
        return found.reshape(())

    @property
    def _plain_target(self) -> bool:
        return len(self.targets) == 1 and isinstance(self.targets[0], Tensor)

    @property
    def inputs(self) -> Any:
        """What the model gets, in the form of a batch: one tensor, a tuple of arguments, or a dict."""
        if self.kwargs:
            return dict(self.kwargs)
        return self.args[0] if len(self.args) == 1 else self.args

    @property
    def examples(self) -> int:
        """The size of the first dimension of the first input tensor."""
        first = next(tensors((self.args, dict(self.kwargs))), None)
        if first is None or first.ndim == 0:
            raise ValueError("the batch has no input tensor with a batch dimension: give (x, y) with x of shape (B, …)")
        return int(first.shape[0])


def task_of(model: nn.Module, loss_fn: LossFn, batch: Any) -> Task:
    """Take a batch apart into what the model gets and what the loss compares with.

    * ``x``: the input; ``(x, y)``: input and target, where ``x`` may be a tuple of arguments or a dict of keywords;
    * ``(a, b, …, y)``: several inputs and a target;
    * a dict: keywords of the model. With a loss function, the entry called labels, label, targets, target or y is
      the target; without one the model gets everything (but a target that its ``forward`` has no name for), and its
      output must hold ``loss`` where one is needed.

    Args:
        model: the model, called as ``model(*args, **kwargs)``.
        loss_fn: a function of (output, target), a name, or None.
        batch: what a loader yields.

    Returns:
        The task, checked but not run.

    >>> task = task_of(nn.Linear(2, 1), "mse", (torch.ones(3, 2), torch.zeros(3, 1)))
    >>> task.examples, task.loss(task.forward()).ndim
    (3, 0)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got a {type(model).__name__}")
    loss_fn = resolve_loss(loss_fn)
    if isinstance(batch, Mapping):
        inputs = dict(batch)
        if loss_fn is None:
            return Task(model, None, (), {k: v for k, v in inputs.items() if k not in TARGETS or _takes(model, k)}, ())
        name = next((n for n in TARGETS if n in inputs), None)
        if name is None:
            raise TypeError(
                f"a batch with a loss function needs a target; this dict has {', '.join(map(str, inputs))}, none of "
                f"{', '.join(TARGETS)}. Give (inputs, target), or leave loss_fn out if the model returns its own loss"
            )
        target = inputs.pop(name)
        return Task(model, loss_fn, (), inputs, (target,))
    if isinstance(batch, tuple | list) and len(batch) >= 2:
        *inputs_, target = batch
        x = inputs_[0] if len(inputs_) == 1 else tuple(inputs_)
        return Task(model, loss_fn, *_arguments(x), (target,))
    if loss_fn is not None:
        raise TypeError(
            f"with a loss function the batch must be a pair (x, y) or a dict with a target, got {_what(batch)}"
        )
    return Task(model, None, *_arguments(batch[0] if isinstance(batch, tuple | list) and batch else batch), ())


def batches_of(batch: Any) -> Iterator[Any]:
    """The batches of a loader, or the one batch that was given.

    A tensor, a dict, or a tuple or list that holds a tensor or dict is one batch; any other iterable is a loader.

    >>> len(list(batches_of((torch.ones(2), torch.ones(2))))), len(list(batches_of([(torch.ones(2), torch.ones(2))])))
    (1, 1)
    """
    one = isinstance(batch, Tensor | Mapping) or (
        isinstance(batch, Sequence) and any(isinstance(part, Tensor | Mapping) for part in batch)
    )
    if one or not isinstance(batch, Iterable):
        yield batch
    else:
        yield from batch


def lets_through(only: Only, name: str) -> bool:
    """Whether a name passes: equal to one of the names given, like one of the patterns, or by the function's word.

    >>> lets_through("block.*", "block.1"), lets_through(["head", "0"], "block.1"), lets_through(None, "head")
    (True, False, True)
    """
    if only is None:
        return True
    if callable(only):
        return bool(only(name))
    return any(name == p or fnmatchcase(name, p) for p in ([only] if isinstance(only, str) else only))


def picked(names: Iterable[str], only: Only, what: str = "place") -> list[str]:
    """The names that ``only`` lets through; refused where it lets none through.

    Args:
        names: all there are.
        only: a name or pattern (``"blocks.*"``), several of them, a function of a name, or None for all.
        what: what the names are of, for the sentence of the error.

    Returns:
        The names, in their order.

    >>> picked(["0", "block.1", "block.2"], "block.*")
    ['block.1', 'block.2']
    """
    known = list(names)
    only = only if only is None or callable(only) or isinstance(only, str) else list(only)
    found = [n for n in known if lets_through(only, n)]
    if not found and only is not None:
        asked = "the function given as only" if callable(only) else f"only={only!r}"
        raise ValueError(f"{asked} lets no {what} through; there are {', '.join(known) or 'none'}")
    return found


def main_output(output: Any) -> Any:
    """The tensor a loss function means: ``logits`` or the first tensor of a model's output; a tensor is itself."""
    if isinstance(output, Tensor):
        return output
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    return output


def tensors(nest: Any) -> Iterator[Tensor]:
    """Every tensor inside nested tuples, lists and dicts, in order."""
    if isinstance(nest, Tensor):
        yield nest
    elif isinstance(nest, Mapping):
        for value in nest.values():
            yield from tensors(value)
    elif isinstance(nest, tuple | list):
        for value in nest:
            yield from tensors(value)


def check_finite(nest: Any, what: str) -> None:
    """Refuse NaN and infinity before anything is measured on them."""
    for tensor in tensors(nest):
        if tensor.is_floating_point():
            bad = int((~torch.isfinite(tensor)).sum())
            if bad:
                raise ValueError(
                    f"{what} holds {bad} values of {tensor.numel()} that are NaN or infinite; clean the batch first"
                )


def inputs_of(model: nn.Module, batch: Any) -> Task:
    """Take a batch apart where no loss is computed: a target is set aside and not given to the model.

    Args:
        model: the model, called as ``model(*args, **kwargs)``.
        batch: what a loader yields, with or without a target.

    Returns:
        A task without a loss function.

    >>> task = inputs_of(nn.Linear(2, 1), {"input": torch.ones(3, 2), "labels": torch.zeros(3)})
    >>> task.forward().shape, len(task.targets)
    (torch.Size([3, 1]), 1)
    """
    task = task_of(model, None, batch)
    if not isinstance(batch, Mapping):
        return task
    inputs = dict(batch)
    name = next((n for n in TARGETS if n in inputs and not _demands(model, n)), None)
    targets = () if name is None else (inputs.pop(name),)
    return Task(model, None, (), inputs, targets)


def in_double(task: Task) -> Task:
    """The same task in float64: a copy of the model, and every floating-point input; the model is not touched."""
    cast = lambda t: t.double() if t.is_floating_point() else t
    args, kwargs = mapped(task.args, cast), mapped(dict(task.kwargs), cast)
    return Task(copy.deepcopy(task.model).double(), task.loss_fn, args, kwargs, mapped(task.targets, cast))


def mapped(nest: Any, change: Callable[[Tensor], Any]) -> Any:
    """Nested tuples, lists and dicts with every tensor changed; what is no tensor stays."""
    if isinstance(nest, Tensor):
        return change(nest)
    if isinstance(nest, Mapping):
        return {key: mapped(value, change) for key, value in nest.items()}
    if isinstance(nest, tuple | list):
        return type(nest)(mapped(value, change) for value in nest)
    return nest


def output_tensor(output: Any, model: nn.Module) -> Tensor:
    """The one tensor that a model returns: itself, ``logits``, or the only tensor inside; else a sentence."""
    found = main_output(output)
    inside = [found] if isinstance(found, Tensor) else list(tensors(found))
    if len(inside) == 1:
        return inside[0]
    what = f"a {type(found).__name__} with {len(inside)} tensors"
    raise ValueError(
        f"{type(model).__name__} returns {what}; what is asked for needs one tensor. "
        "Give a model that returns one tensor, or an output with .logits"
    )


_LIKELIHOODS = {"ce": "ce", "nll": "ce", "mse": "mse", "half-mse": "mse"}
_TORCH_LIKELIHOODS: tuple[tuple[Any, type[nn.Module], str], ...] = (
    (F.cross_entropy, nn.CrossEntropyLoss, "ce"),
    (F.nll_loss, nn.NLLLoss, "ce"),
    (F.mse_loss, nn.MSELoss, "mse"),
)


def likelihood_of(loss_fn: LossFn, target: Any = None) -> str:
    """The likelihood behind a loss: ``"ce"`` (categorical over the last dimension) or ``"mse"`` (Gaussian).

    Args:
        loss_fn: a name, or one of torch's losses of that kind, also inside ``functools.partial``. None, for a model
            that holds its own loss, is judged by the target.
        target: the batch's target, which counts where ``loss_fn`` is None: whole numbers are classes.

    Returns:
        "ce" or "mse".

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
        f"the kind of likelihood cannot be read off {given}: pass loss_fn as 'ce' or 'mse', or torch's cross_entropy "
        "or mse_loss"
    )


def choose(only: Only, names: Iterable[str], what: str = "place") -> list[str]:
    """Those names that were asked for: all, by name or pattern (``"blocks.*.fc"``), or by a function of a name.

    Args:
        only: None, a name or pattern, several of them, or a function of a name.
        names: what there is.
        what: one of them, in words, for the sentence about a pattern that matches nothing.

    Returns:
        The chosen names, in the order of ``names``.

    >>> choose("fc*", ["fc1", "norm", "fc2"])
    ['fc1', 'fc2']
    >>> choose(["fc1", "fc3"], ["fc1", "norm"], "layer")
    Traceback (most recent call last):
    ...
    ValueError: there is no layer 'fc3'; there are 'fc1', 'norm'
    """
    known = list(names)
    if only is None or callable(only):
        return [n for n in known if only is None or only(n)]
    chosen: set[str] = set()
    for pattern in [only] if isinstance(only, str) else only:
        if not isinstance(pattern, str):
            raise TypeError(f"only takes names, patterns or a function of a name, got a {type(pattern).__name__}")
        found = [n for n in known if n == pattern or fnmatch.fnmatchcase(n, pattern)]
        if not found:
            some = ", ".join(map(repr, known[:8])) + (", …" if len(known) > 8 else "")
            raise ValueError(f"there is no {what} {pattern!r}; there are {some or 'none'}")
        chosen.update(found)
    return [n for n in known if n in chosen]


def _arguments(x: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(x, Mapping):
        return (), dict(x)
    return (tuple(x), {}) if isinstance(x, tuple | list) else ((x,), {})


def _takes(model: nn.Module, name: str) -> bool:
    """Whether a model can be given this keyword."""
    parameters = inspect.signature(model.forward).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _what(batch: Any) -> str:
    kind = type(batch).__name__
    return f"a {kind} of {len(batch)}" if isinstance(batch, tuple | list | dict) else f"a {kind}"


def _demands(model: nn.Module, name: str) -> bool:
    """Whether the model cannot be called without an argument of this name."""
    found = inspect.signature(model.forward).parameters.get(name)
    return found is not None and found.default is inspect.Parameter.empty
