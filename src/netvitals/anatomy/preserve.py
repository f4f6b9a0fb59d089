"""Leave no trace: run a measurement on a user's model and put everything back, also when it raises."""

from __future__ import annotations

import copy
import random
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


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


@contextmanager
def stand_in(model: nn.Module) -> Iterator[tuple[nn.Module, list[str]]]:
    """A copy of a model to run in its place: with the same parameters, and with buffers and attributes of its own.

    Hooks that are not torch's own are left out. A model that cannot be copied stands for itself: its plain attributes
    (numbers, lists, dicts, sets) and generators are put back afterwards, and its hooks are off meanwhile.

    Args:
        model: the model.

    Yields:
        The model to run, and notes for the user.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    >>> with stand_in(net) as (twin, notes):
    ...     twin[0].weight is net[0].weight, twin[1].running_mean is net[1].running_mean, notes
    (True, False, [])
    """
    memo: dict[int, Any] = {id(p): p for p in model.parameters()}
    hooks = [(m, kind, m.__dict__[kind]) for m in model.modules() for kind in _HOOKS if m.__dict__.get(kind)]
    left_out = 0
    for _, _, held in hooks:
        memo[id(held)] = _of_torch(held)
        left_out += len(held) - len(memo[id(held)])
    for module in model.modules():
        for value in module.__dict__.values():
            if isinstance(value, Tensor) and not value.is_leaf:  # a weight that a hook computed
                memo[id(value)] = value.detach()
            elif isinstance(value, torch.Generator):
                memo[id(value)] = _twin(value)
    notes = [f"{left_out} hooks of modules were left out"] if left_out else []
    try:
        twin = copy.deepcopy(model, memo)
    except Exception as error:  # a lock, a file, a process group
        notes.append(f"the model cannot be copied ({type(error).__name__}), so it was run itself")
        with _kept(model, hooks):
            yield model, notes
        return
    yield twin, notes


def _of_torch(hooks: OrderedDict[int, Any]) -> OrderedDict[int, Any]:
    """The hooks that are part of torch, such as those that compute a normalised weight."""
    names = {k: getattr(hook, "__module__", None) or type(hook).__module__ for k, hook in hooks.items()}
    return OrderedDict((k, hook) for k, hook in hooks.items() if names[k].startswith("torch."))


def _twin(generator: torch.Generator) -> torch.Generator:
    twin = torch.Generator(generator.device)
    twin.set_state(generator.get_state())
    return twin


@contextmanager
def _kept(model: nn.Module, hooks: list[tuple[nn.Module, str, Any]]) -> Iterator[None]:
    """Inside the block hooks are off; afterwards they and all plain attributes are as they were."""
    own = {*_HOOKS, "_parameters", "_buffers", "_modules"}
    kept = [(m.__dict__, {k: v for k, v in m.__dict__.items() if k not in own}) for m in model.modules()]
    inside = [(v, copy.copy(v)) for _, held in kept for v in held.values() if isinstance(v, list | dict | set)]
    drawn = [(v, v.get_state()) for _, held in kept for v in held.values() if isinstance(v, torch.Generator)]
    for module, kind, held in hooks:
        module.__dict__[kind] = _of_torch(held)
    try:
        yield
    finally:
        for module, kind, held in hooks:
            module.__dict__[kind] = held
        for attributes, held in kept:
            for key in [k for k in attributes if k not in held and k not in own]:
                del attributes[key]
            attributes.update(held)
        for value, before in inside:
            value.clear()
            value.extend(before) if isinstance(value, list) else value.update(before)
        for generator, state in drawn:
            generator.set_state(state)
