"""What an output depends on, found by changing the input: other examples, later tokens, the order of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.anatomy import preserved

EQUAL = 1e-5  # of the largest output: differences below are rounding
SHIFTED = 0.9  # share of labels that are the next token


def dependencies(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], labels: Tensor | None
) -> dict[str, Any]:
    """Run ``model`` a few times on changed copies of one batch, in eval mode; ``labels`` are class labels, if any.

    Returns one entry for each question that could be asked: True where it fails, or why it could not be asked.
    """
    out: dict[str, Any] = {}
    tokens = next_token_input(args, labels)
    with preserved(model, train=False), torch.no_grad():
        base = _output(model(*args, **kwargs))
        if base is None:
            return out
        again = _output(model(*args, **kwargs))
        if again is None or not _same(base, again):
            return {"why": "two passes on the same batch differ"}
        if tokens is not None:
            at, x = tokens
            out |= _token_questions(model, args, kwargs, at, x, base)
        tensors = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        if len(tensors) == 1 == len(args) and not any(isinstance(v, Tensor) for v in kwargs.values()):
            x = args[0]
            n = len(x) if x.ndim > 1 else 0
            if n >= 4 and base.ndim and len(base) == n:
                half = n // 2
                later = torch.cat([x[:half], x[:1].expand(n - half, *x.shape[1:])])
                earlier = torch.cat([x[-1:].expand(half, *x.shape[1:]), x[half:]])
                if not torch.equal(later, x) and not torch.equal(earlier, x):
                    mixed = [
                        (other := _output(model(changed, **kwargs))) is None or not _same(base[kept], other[kept])
                        for changed, kept in ((later, slice(half)), (earlier, slice(half, None)))
                    ]
                    out["examples mixed"] = any(mixed)
    return out


def next_token_input(args: tuple[Any, ...], labels: Tensor | None) -> tuple[int, Tensor] | None:
    """Which argument holds the tokens whose next ones are the labels."""
    if labels is None:
        return None
    for i, x in enumerate(args):
        if isinstance(x, Tensor) and x.ndim in (2, 3) and x.shape[1] >= 4:
            for y in _aligned(labels, x):
                following, now = x[:, 1 : y.shape[1]], y[:, :-1]
                told = following != following.reshape(-1, *following.shape[2:]).mode(0).values  # padding says nothing
                if bool(told.any()) and float((now == following)[told].float().mean()) > SHIFTED:
                    return i, x
    return None


def _aligned(labels: Tensor, x: Tensor) -> list[Tensor]:
    if labels.numel() == x.numel():
        return [labels.reshape(x.shape)]
    if labels.numel() == x[:, 1:].numel():
        shifted = labels.reshape(x[:, 1:].shape)
        return [shifted] if not torch.equal(shifted, x[:, :-1]) else []
    return []


def _token_questions(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], at: int, x: Tensor, base: Tensor
) -> dict[str, Any]:
    rows, length = x.shape[:2]
    if base.shape[:2] != (rows, length):
        if base.ndim == 2 and len(base) == rows * length:
            base = base.reshape(rows, length, -1)
        else:
            return {}

    def run(tokens: Tensor) -> Tensor | None:
        other = _output(model(*args[:at], tokens, *args[at + 1 :], **kwargs))
        return None if other is None else other.reshape(base.shape)

    out: dict[str, Any] = {}
    later = x.clone()
    later[:, -1] = torch.where(later[:, -1] == x.max(), x.min(), x.max())  # another token, or a number far off
    if not torch.equal(later, x):
        other = run(later)
        out["future leak"] = other is not None and not _same(base[:, :-1], other[:, :-1])
    order = x.clone()
    order[:, :-1] = x[:, :-1].flip(1)
    if not torch.equal(order, x):
        other = run(order)
        out["order ignored"] = other is not None and _same(base[:, -1], other[:, -1])
    return out


def _output(value: Any) -> Tensor | None:
    """The first floating tensor of an output."""
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() else None
    if isinstance(value, Mapping):
        if isinstance(value.get("logits"), Tensor):
            return value["logits"].float()
        value = list(value.values())
    if isinstance(value, list | tuple):
        return next((t for v in value if (t := _output(v)) is not None), None)
    return _output(value.logits) if isinstance(getattr(value, "logits", None), Tensor) else None


def _same(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    scale = float(a.abs().max()) if a.numel() else 0.0
    return bool(torch.isfinite(a).all()) and float((a - b).abs().max() if a.numel() else 0.0) <= EQUAL * max(
        scale, 1e-12
    )
