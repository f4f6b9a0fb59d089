"""A task: a model, a loss and one batch in any form a loader yields; the one place that takes them apart.

Everything that runs a user's model has the signature ``(model, loss_fn, batch, *, mode, only, seed, progress)``.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals._help import hint
from netvitals.capture.loss import LossFn, resolve_loss, takes_tensor
from netvitals.capture.nested import main_output, mapped, tensors

TARGETS = ("labels", "label", "targets", "target", "y")  # where a dict keeps what the loss compares with


LEFT_OUT: Any = object()  # the batch of a call without a loss: f(model, batch)


def loss_and_batch(loss_fn: Any, batch: Any) -> tuple[LossFn, Any]:
    """The arguments behind the model of a function that needs no loss: ``(loss_fn, batch)``, or the batch alone.

    >>> import torch
    >>> loss_and_batch(torch.ones(2), LEFT_OUT)
    (None, tensor([1., 1.]))
    """
    if batch is not LEFT_OUT:
        return loss_fn, batch
    if loss_fn is None or isinstance(loss_fn, str) or callable(loss_fn):
        raise TypeError("no batch was given; the order of arguments is (model, batch) or (model, loss_fn, batch)")
    return None, loss_fn


@dataclass(frozen=True)
class Task:
    """``loss_fn(model(*args, **kwargs), *targets)``; made by :func:`task_of`.

    Returned by :func:`task_of`.

    Attributes:
        model: to be run.
        loss_fn: of (output, *targets); None where the output holds its own loss.
        args: positional inputs.
        kwargs: named inputs.
        targets: what the loss function gets after the output.
        call: runs the model on a batch of the user's own kind.
    """

    model: nn.Module
    loss_fn: Callable[..., Tensor] | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    targets: tuple[Any, ...]
    call: Callable[[nn.Module, Any], Any] | None = None

    def forward(self) -> Any:
        """The model's output on the batch."""
        return self.run(self.model)

    def run(self, model: nn.Module) -> Any:
        """The output of another ``model`` of the same kind."""
        if self.call is not None:
            return self.call(model, self.args[0])
        try:
            return model(*self.args, **self.kwargs)
        except (TypeError, AttributeError) as error:
            odd = next((a for a in self.args if isinstance(a, Mapping | np.ndarray)), None)
            if odd is None:
                raise
            what, wanted = "a NumPy array", "torch.from_numpy(x)"
            if isinstance(odd, Mapping):
                what = f"a dict of {', '.join(map(str, odd))}"
                wanted = "(input, target), or a dict with the names of the arguments of forward"
            raise TypeError(f"the model was called with {what} and raised {error!r}; give {wanted}") from error

    def loss(self, output: Any) -> Tensor:
        """The loss of an ``output``, one number; a model's own ``output.loss`` where no loss function was given."""
        if self.loss_fn is None:
            found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
            found = output if self.call is not None and isinstance(output, Tensor) and output.numel() == 1 else found
            if found is None:
                raise TypeError(
                    f"no loss_fn was given, and the model's output, a {type(output).__name__}, contains no loss. Give "
                    f"loss_fn, or a batch with labels from which the model computes its loss {hint('no-loss')}"
                )
        else:
            found = self.loss_fn(main_output(output) if takes_tensor(self.loss_fn) else output, *self.targets)
        if not isinstance(found, Tensor) or found.numel() != 1:
            what = (
                f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            )
            raise TypeError(f"loss_fn= must return one number as a tensor, got {what} {hint('no-loss')}")
        return found.reshape(()) if found.ndim else found  # no operation of ours in its graph

    @property
    def inputs(self) -> Any:
        """What the model gets, in the form of a batch: one tensor, a tuple of arguments, or a dict."""
        if self.kwargs:
            return dict(self.kwargs)
        return self.args[0] if len(self.args) == 1 else self.args

    @property
    def examples(self) -> int:
        """The size of the first dimension of the first input tensor that has one."""
        first = next((t for t in tensors((self.args, dict(self.kwargs))) if t.ndim), None)
        if first is None:
            raise ValueError(
                "the batch has no input tensor with a batch dimension: give (x, y) with x of shape (batch size, …) "
                f"{hint('batch-empty')}"
            )
        return int(first.shape[0])


def check_values(model: nn.Module) -> None:
    """Refuse a model without values."""
    empty = next((name for name, p in model.named_parameters() if p.is_meta), None)
    if empty is not None:
        raise ValueError(
            f"{empty} is on the meta device and has no values: call model.to_empty(device=...) and initialise or load "
            "the weights"
        )


def task_of(
    model: nn.Module, loss_fn: LossFn, batch: Any, forward: Callable[[nn.Module, Any], Any] | None = None
) -> Task:
    """Take a batch apart into what the model gets and what the loss compares with.

    * ``x``: the input; ``(x, y)``: input and target, where ``x`` may be a tuple of arguments or a dict of keywords;
    * ``(a, b, …, y)``: several inputs and a target;
    * a dict: keywords of the model, or its one argument where ``forward`` demands one that the dict does not name.
      With a loss function, the entry called labels, label, targets, target or y is the target; without one the model
      gets everything (but a target that its ``forward`` has no name for), and its output must hold ``loss`` where one
      is needed.

    Args:
        model: the model, called as ``model(*args, **kwargs)``.
        loss_fn: a function of (output, target), a name, or None.
        batch: one batch as a data loader yields it.
        forward: how to run the model on a batch of any other kind, ``forward(model, batch)``; ``loss_fn`` is a function
            of (output, batch) then, and with None the output is the loss or holds it.

    Returns:
        The task, checked but not run.

    >>> import torch
    >>> task = task_of(nn.Linear(2, 1), "mse", (torch.ones(3, 2), torch.zeros(3, 1)))
    >>> task.examples, task.loss(task.forward()).ndim
    (3, 0)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model= must be a torch.nn.Module, got a {type(model).__name__}")
    check_values(model)
    loss_fn = resolve_loss(loss_fn)
    if forward is not None:
        return Task(model=model, loss_fn=loss_fn, args=(batch,), kwargs={}, targets=(batch,), call=forward)
    if isinstance(batch, Mapping):
        inputs = dict(batch)
        target = next(((inputs[n],) for n in TARGETS if n in inputs), ())
        if _takes_whole(model, inputs) and (target or loss_fn is None):
            return Task(model=model, loss_fn=loss_fn, args=(batch,), kwargs={}, targets=target if loss_fn else ())
        if loss_fn is None:
            return Task(
                model=model,
                loss_fn=None,
                args=(),
                kwargs={k: v for k, v in inputs.items() if k not in TARGETS or _takes(model, k)},
                targets=(),
            )
        name = next((n for n in TARGETS if n in inputs), None)
        if name is None:
            raise TypeError(
                f"loss_fn= needs a target, but this dict has only {', '.join(map(str, inputs))} and none of "
                f"{', '.join(TARGETS)}. Give (inputs, target), or leave loss_fn out if the model returns its own "
                f"loss {hint('no-loss')}"
            )
        del inputs[name]
        return Task(model=model, loss_fn=loss_fn, args=(), kwargs=inputs, targets=target)
    if isinstance(batch, tuple | list) and len(batch) >= 2:
        *inputs_, target = batch
        x = inputs_[0] if len(inputs_) == 1 else tuple(inputs_)
        return Task(model, loss_fn, *_arguments(model, x), (target,))
    if loss_fn is not None:
        one = ""
        if isinstance(batch, Iterable) and not isinstance(batch, tuple | list | Tensor):
            one = ": give one of its batches, next(iter(loader))"
        raise TypeError(
            f"with loss_fn, the batch must be a pair (x, y) or a dict with a target, got {_what(batch)}{one} "
            f"{hint('no-loss')}"
        )
    x = batch[0] if isinstance(batch, tuple | list) and batch else batch
    return Task(model, None, *_arguments(model, x), ())


def batches_of(batch: Any) -> Iterator[Any]:
    """The batches of a loader, or the one batch that was given.

    A tensor, a dict, or a tuple or list that holds a tensor is one batch, and so are ``(dict, target)`` and
    ``(arguments, None)``; any other iterable, such as a list of dicts, is a loader.

    Args:
        batch: one batch, or a loader that yields them.

    Yields:
        Each batch, as it is.

    >>> import torch
    >>> len(list(batches_of((torch.ones(2), torch.ones(2))))), len(list(batches_of([(torch.ones(2), torch.ones(2))])))
    (1, 1)
    """
    one = isinstance(batch, Tensor | Mapping) or (
        isinstance(batch, Sequence)
        and any(part is None or isinstance(part, Tensor | Mapping) for part in batch)
        and not all(isinstance(part, Mapping) for part in batch)
    )
    if one or not isinstance(batch, Iterable):
        yield batch
    else:
        yield from batch


def inputs_of(model: nn.Module, batch: Any) -> Task:
    """Take a batch apart where no loss is computed: a target is set aside and not given to the model.

    >>> import torch
    >>> task = inputs_of(nn.Linear(2, 1), {"input": torch.ones(3, 2), "labels": torch.zeros(3)})
    >>> task.forward().shape, len(task.targets)
    (torch.Size([3, 1]), 1)
    """
    task = task_of(model, None, batch)
    if not isinstance(batch, Mapping) or task.args:
        return task
    inputs = dict(batch)
    name = next((n for n in TARGETS if n in inputs and not _demands(model, n)), None)
    targets = () if name is None else (inputs.pop(name),)
    return Task(model=model, loss_fn=None, args=(), kwargs=inputs, targets=targets)


def model_in(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy of a model in another precision, which it can run in."""
    # deepcopy refuses activations that modules keep as attributes
    made = [t for m in model.modules() for t in vars(m).values() if isinstance(t, Tensor) and not t.is_leaf]
    twin = copy.deepcopy(model, {id(t): t.detach().clone() for t in made}).to(dtype)
    for module in twin.modules():  # Hugging Face's experts run in one grouped product, which knows no float64
        if callable(choose := getattr(module, "set_experts_implementation", None)):
            choose("eager")
    return twin


def in_double(task: Task) -> Task:
    """The same task in float64: a copy of the model, and every floating-point input; the model is not touched."""
    cast = lambda t: t.double() if t.is_floating_point() else t
    args, kwargs = mapped(task.args, cast), mapped(dict(task.kwargs), cast)
    return Task(
        model=model_in(task.model, torch.float64),
        loss_fn=task.loss_fn,
        args=args,
        kwargs=kwargs,
        targets=mapped(task.targets, cast),
    )


def _arguments(model: nn.Module, x: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(x, Mapping):
        return ((x,), {}) if _takes_whole(model, x) else ((), dict(x))
    return (tuple(x), {}) if isinstance(x, tuple | list) else ((x,), {})


def _takes_whole(model: nn.Module, inputs: Mapping[Any, Any]) -> bool:
    """Whether ``forward`` demands one argument and none of the entries is called like it: it means the dict itself."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):  # compiled code has no signature
        return False
    demanded = [
        p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return len(demanded) == 1 and demanded[0] not in inputs


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
