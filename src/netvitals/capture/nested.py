"""Tensors inside nested tuples, lists and dicts, and the one that a model's output means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from netvitals._help import hint

OUTPUTS = ("output", "outputs", "out", "prediction", "predictions", "pred", "y_hat")  # of a dict, after ``logits``


def shown_output(output: Any) -> Tensor | None:
    """The tensor that is shown of what a module returns: the one a loss is taken of, not the loss beside it."""
    found = main_output(output)
    if isinstance(found, Tensor):
        return found
    if isinstance(found, Mapping):
        named = [found[name] for name in OUTPUTS if isinstance(found.get(name), Tensor)]
        if named:
            return named[0]
    inside = list(tensors(found))
    return next((t for t in inside if t.ndim and t.is_floating_point()), inside[0] if inside else None)


def main_output(output: Any) -> Any:
    """The tensor a loss function means: ``logits`` or the first tensor of a model's output; a tensor is itself."""
    if isinstance(output, Tensor):
        return output
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    return output


def tensors(nest: Any) -> Iterator[Tensor]:
    """Every tensor inside nested tuples, lists, dicts and dataclasses, in order."""
    if isinstance(nest, Tensor):
        yield nest
    elif isinstance(nest, Mapping):
        for value in nest.values():
            yield from tensors(value)
    elif isinstance(nest, tuple | list):
        for value in nest:
            yield from tensors(value)
    elif is_dataclass(nest) and not isinstance(nest, type):
        for field in fields(nest):
            yield from tensors(getattr(nest, field.name))


def check_finite(nest: Any, what: str) -> None:
    """Refuse NaN and infinity before anything is measured on them.

    Args:
        nest: a tensor, or nested tuples, lists and dicts of them; whole numbers and other values pass.
        what: how the ``ValueError`` calls it, such as ``"the batch"``.

    >>> check_finite({"x": torch.tensor([1.0, float("nan")])}, "the batch")
    Traceback (most recent call last):
        ...
    ValueError: the batch has 1 of 2 values that are NaN or infinite: give a batch with finite values (netvitals ...)
    """
    for tensor in tensors(nest):
        if tensor.is_meta:
            raise ValueError(f"{what} is on the meta device and has no values: move it to the device of the model")
        if tensor.is_floating_point():
            bad = int((~torch.isfinite(tensor)).sum())
            if bad:
                raise ValueError(
                    f"{what} has {bad} of {tensor.numel()} values that are NaN or infinite: give a batch with finite "
                    f"values {hint('not-finite')}"
                )


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
    """The one tensor that a model returns: itself, ``logits``, the only one inside, or one called output; else a
    sentence.
    """
    found = main_output(output)
    inside = [found] if isinstance(found, Tensor) else list(tensors(found))
    if len(inside) == 1:
        return inside[0]
    if isinstance(found, Mapping):
        named = [found[n] for n in OUTPUTS if isinstance(found.get(n), Tensor)]
        if named:
            return named[0]
    names = f" ({', '.join(map(str, found))})" if isinstance(found, Mapping) else ""
    what = f"a {type(found).__name__} with {len(inside)} tensors{names}"
    raise ValueError(
        f"{type(model).__name__} returns {what}, but this measurement needs one tensor. Give a model that returns one "
        f"tensor, or an output with .logits {hint('output-shape')}"
    )
