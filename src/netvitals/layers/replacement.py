"""How parts of a model are exchanged in place: what was exchanged, what was kept, what was out of reach.

Everything else stays: parameters, buffers, device, dtype, train or eval mode, names. A module that sits in several
places is exchanged once and stays shared.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from netvitals import activations
from netvitals.layers.norms import PerPosition, PerToken

Filter = str | Callable[[str, nn.Module], bool] | None


@dataclass(frozen=True)
class Replaced:
    """One exchanged part: its dotted name, and further names if it is shared.

    Part of :class:`Surgery`.

    Attributes:
        name: dotted name of the part.
        old: what was there.
        new: what is there now.
        also: further names, if it is shared.
        kept: names of parameters and buffers carried over.
        lost: and of those the new part has no place for.
    """

    name: str
    old: nn.Module | Callable[..., Any]
    new: nn.Module
    also: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.name or 'model'}: {_short(self.old)} -> {_short(self.new)}"
        return text + (f" (also {', '.join(self.also)})" if self.also else "")


class Surgery(list[Replaced]):
    """The exchanged parts, as a list; ``skipped`` says what could not be exchanged, and why.

    Returned by :func:`replace_norm`, :func:`replace_activation`, :func:`insert_norm`.

    Args:
        replaced: the exchanged parts.
        skipped: place that could not be exchanged → reason.
    """

    def __init__(self, replaced: list[Replaced], skipped: dict[str, str]) -> None:
        super().__init__(replaced)
        self.skipped = skipped

    def __str__(self) -> str:
        lines = [str(r) for r in self] or ["nothing was replaced"]
        return "\n".join(lines + [f"not reached: {name or 'model'}: {reason}" for name, reason in self.skipped.items()])


def _short(part: Any) -> str:
    if isinstance(part, nn.Module):
        return activations.spec_of(part) or type(part).__name__
    return getattr(part, "__name__", repr(part))


def _places(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, nn.Module]]:
    """(dotted name, parent, key, child) of every registered child, shared ones at each of their places."""
    for prefix, parent in model.named_modules():
        for key, child in parent._modules.items():
            if child is not None:
                yield (f"{prefix}.{key}" if prefix else key), parent, key, child


def passes(only: Filter, name: str, module: nn.Module) -> bool:
    """Whether a name or module is let through by a pattern of names, a function of both, or None."""
    if only is None:
        return True
    return fnmatch.fnmatch(name, only) if isinstance(only, str) else bool(only(name, module))


def exchange(
    model: nn.Module, wanted: Callable[[str, nn.Module], bool], make: Callable[[nn.Module], nn.Module], carry: bool
) -> list[Replaced]:
    """Put ``make(old)`` wherever ``wanted(name, old)``; with ``carry`` also its state where names and shapes agree."""
    home = next((p for p in model.parameters() if p.is_floating_point()), None)
    done: dict[int, Replaced] = {}
    for name, parent, key, old in list(_places(model)):
        if id(old) in done:
            new = done[id(old)].new
            done[id(old)] = _also(done[id(old)], name)
        elif wanted(name, old):
            new = make(old)
            if not isinstance(new, nn.Module):
                raise TypeError(f"the factory must return a module to replace {name}, got {type(new).__name__}")
            kept, lost = settle(new, old, home, carry)
            done[id(old)] = Replaced(name, old, new, kept=kept, lost=lost)
        else:
            continue
        parent._modules[key] = new
    return list(done.values())


def _also(replaced: Replaced, name: str) -> Replaced:
    return Replaced(
        name=replaced.name,
        old=replaced.old,
        new=replaced.new,
        also=(*replaced.also, name),
        kept=replaced.kept,
        lost=replaced.lost,
    )


def settle(new: nn.Module, old: nn.Module, home: Tensor | None, carry: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give the new part the device, dtype, mode and, where names and shapes agree, the state of the old one."""
    like = next((p for p in old.parameters() if p.is_floating_point()), home)
    if like is not None:
        wraps = any(m is old for m in new.modules())
        new.to(device=like.device, dtype=None if wraps else like.dtype)
    kept, lost = [], []
    if carry:
        state = dict(old.named_parameters()) | dict(old.named_buffers())
        target = new.inner if isinstance(new, (PerToken, PerPosition)) else new
        own = dict(target.named_parameters()) | dict(target.named_buffers())
        for name, value in state.items():
            if name in own and own[name].shape == value.shape:
                with torch.no_grad():
                    own[name].copy_(value)
                if isinstance(own[name], nn.Parameter):
                    own[name].requires_grad_(value.requires_grad)
                kept.append(name)
            else:
                lost.append(name)
    new.train(old.training)
    return tuple(kept), tuple(lost)
