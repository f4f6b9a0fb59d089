"""Leave no trace: run a measurement on a user's model and put everything back, also when it raises."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn


@contextmanager
def preserved(model: nn.Module, *, train: bool | None = None, parameters: bool = False) -> Iterator[nn.Module]:
    """Inside the block the model may be run forward and backward; afterwards it is bit for bit as it was.

    Restored: train/eval mode of every module, buffers, ``.grad`` of every parameter, ``requires_grad`` flags,
    and the random number generators of torch (CPU and accelerators), numpy and Python.

    Args:
        model: the model to look at.
        train: put the model in train (True) or eval (False) mode inside the block; None leaves the mode.
        parameters: also restore parameter values (costs a copy of them).

    Yields:
        The model itself, its gradients set to None.
    """
    modes = [(m, m.training) for m in model.modules()]
    buffers = [
        (m, key, b, b.detach().clone()) for m in model.modules() for key, b in m._buffers.items() if b is not None
    ]
    params = list(model.parameters())
    grads = [(p, p.grad, p.requires_grad) for p in params]
    values = [p.detach().clone() for p in params] if parameters else None
    rng = rng_state()
    try:
        for p in params:
            p.grad = None
        if train is not None:
            model.train(train)
        yield model
    finally:
        set_rng_state(rng)
        with torch.no_grad():
            for module, key, tensor, value in buffers:
                if not torch.equal(tensor, value):
                    tensor.copy_(value)
                module._buffers[key] = tensor
            if values is not None:
                for p, value in zip(params, values):
                    p.copy_(value)
        for p, grad, requires_grad in grads:
            p.requires_grad_(requires_grad)
            p.grad = grad
        for module, mode in modes:
            module.training = mode


def rng_state() -> dict[str, Any]:
    """The state of every generator a forward pass may draw from.

    Returns:
        The states of torch, numpy and Python by those names, and of CUDA where it is in use.
    """
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(),
        "python": random.getstate(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    """Put every generator back to an earlier state.

    Args:
        state: what :func:`rng_state` returned.
    """
    torch.set_rng_state(state["torch"])
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])
    if "cuda" in state:
        torch.cuda.set_rng_state_all(state["cuda"])
