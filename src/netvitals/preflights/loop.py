"""A few training steps of a copy, with :class:`netvitals.checks.LoopChecks` listening, and what the first one did."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.capture import mapped
from netvitals.checks import LoopChecks, LossNode, is_mean, losses_of
from netvitals.preflights.setup import Setup

NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


@dataclass
class Loop:
    """What the steps of a copy showed."""

    setup: Setup
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    moved: dict[str, float] = field(default_factory=dict)  # weight matrix → size of the first update against its own
    loss: LossNode | None = None  # the first loss, where it is one plain mean
    first_layer: nn.Module | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None
    functions: list[tuple[Any, tuple[Any, ...]]] = field(default_factory=list)  # custom autograd functions and inputs

    @property
    def step_seconds(self) -> float:
        """The median time of a step."""
        some = sorted(self.seconds[1:] or self.seconds)
        return some[len(some) // 2] if some else 0.0


def train_briefly(setup: Setup, batches: tuple[Any, ...], steps: int) -> Loop:
    """Train a copy for some steps, over the batches in turn, and collect what the exact checks see."""
    copied = setup.copy()
    loop = Loop(copied)
    checks = LoopChecks(copied.root, copied.roots, lambda: copied.optimizers)
    before = {n: p.detach().clone() for n, p in copied.root.named_parameters() if p.requires_grad and p.ndim >= 2}

    def seen(loss: Tensor) -> None:
        if loop.losses or loss.grad_fn is None:
            return
        found = losses_of(loss.grad_fn)
        if len(found) == 1 and is_mean(loss.grad_fn, found[0]) and len(copied.losses) == 1:
            loop.loss = found[0]

    handles = _watch_first_layer(loop)
    checks.begin()
    try:
        for number in range(steps):
            batch = mapped(batches[number % len(batches)], torch.clone)
            begun = time.perf_counter()
            try:
                value = copied.step(batch, seen)
            except Exception as error:  # whatever a user's model, loss or optimizer raises
                loop.error = error
                break
            finally:
                for handle in handles:
                    handle.remove()
            loop.seconds.append(time.perf_counter() - begun)
            if not number:
                loop.moved = _moved(copied.root, before)
                before = {}
            loop.losses.append(value)
            checks.end_step(torch.tensor(value))
            if not math.isfinite(value):
                break
        loop.facts = checks.facts()
    finally:
        checks.close()
    return loop


def _moved(root: nn.Module, before: dict[str, Tensor]) -> dict[str, float]:
    out = {}
    for name, p in root.named_parameters():
        if name in before and p.shape == before[name].shape and p.grad is not None:
            size = float(before[name].double().norm())
            if size > 0:
                out[name] = float((p.detach() - before[name]).double().norm()) / size
    return out


def _watch_first_layer(loop: Loop) -> list[Any]:
    """Hooks that note the first layer with parameters that is called."""

    def note(module: nn.Module, args: Any) -> None:
        if loop.first_layer is None:
            loop.first_layer = module

    leaves = [
        m
        for m in loop.setup.root.modules()
        if not any(True for _ in m.children()) and (any(True for _ in m.parameters()) or isinstance(m, NORMS))
    ]
    return [m.register_forward_pre_hook(note) for m in leaves]
