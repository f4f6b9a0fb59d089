"""Leave no trace: run a measurement on a user's model and put everything back, also when it raises."""

from __future__ import annotations

import functools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from netvitals import _device
from netvitals.anatomy.python_state import keep_attributes, tensors_of, without_hooks

_inside = threading.local()
P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def preserved(model: nn.Module, *, train: bool | None = None, parameters: bool = False) -> Iterator[nn.Module]:
    """Inside the block the model may be run forward and backward; afterwards it is bit for bit as it was.

    Restored: train/eval mode of every module, buffers, ``.grad`` and memory of every parameter, ``requires_grad``
    flags, Python attributes of the modules, the settings of torch, and the random number generators of torch (CPU and
    accelerators), numpy and Python. Hooks of the user's own are not called inside the block; torch's own are. Functions
    that torch.compile has wrapped run uncompiled: else they would be compiled anew for what is asked here.

    Args:
        model: the model to look at.
        train: put the model in train (True) or eval (False) mode inside the block; None leaves the mode.
        parameters: also restore parameter values (costs a copy of them).

    Yields:
        The model itself, its gradients set to None.

    >>> net = nn.Linear(2, 1)
    >>> with preserved(net):
    ...     net(torch.ones(1, 2)).sum().backward()
    >>> net.weight.grad is None
    True
    """
    modules = list(model.modules())
    modes = [(m, m.training) for m in modules]
    buffers = [(m, key, b, b.detach().clone()) for m, key, b in tensors_of(modules)]
    params = list(model.parameters())
    grads = [(p, p.grad, p.requires_grad, p.data) for p in params]
    values = [p.detach().clone() for p in params] if parameters else None
    settings, rng = _settings(), rng_state()
    restore = keep_attributes(modules)
    outermost = not getattr(_inside, "depth", 0)
    if outermost:  # further in, the hooks are those of the measurement
        restore += without_hooks(model)
    _inside.depth = getattr(_inside, "depth", 0) + 1
    try:
        for p in params:
            p.grad = None
        if train is not None:
            model.train(train)
        with _uncompiled():
            yield model
    finally:
        _inside.depth -= 1
        set_rng_state(rng)
        for put_back in reversed(restore):
            put_back()
        with torch.no_grad():
            for module, key, tensor, value in buffers:
                if not torch.equal(tensor, value):
                    tensor.copy_(value)
                module._buffers[key] = tensor
            if values is not None:
                for p, value in zip(params, values):
                    p.copy_(value)
        for p, grad, requires_grad, data in grads:
            if p.data_ptr() != data.data_ptr() or p.stride() != data.stride():
                p.data = data
            p.requires_grad_(requires_grad)
            p.grad = grad
        for module, mode in modes:
            module.training = mode
        _set(settings)


def _uncompiled() -> AbstractContextManager[None]:
    """Inside the block compiled functions run as plain Python (from torch 2.6 on)."""
    stance = getattr(torch.compiler, "set_stance", None)
    return stance("force_eager") if stance is not None and "torch._dynamo" in sys.modules else nullcontext()


def undisturbed(measure: Callable[P, R]) -> Callable[P, R]:
    """A measurement whose first argument is a model, run inside :func:`preserved`.

    Args:
        measure: a function of a model and whatever else.

    Returns:
        The same function, after which the model is as it was.

    >>> @undisturbed
    ... def noise(model):
    ...     model.weight.grad = torch.ones_like(model.weight)
    ...     return float(torch.rand(()))
    >>> net = nn.Linear(2, 2); first, second = noise(net), noise(net)
    >>> first == second, net.weight.grad is None
    (True, True)
    """

    @functools.wraps(measure)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        model = args[0] if args else kwargs.get("model")
        if not isinstance(model, nn.Module):
            return measure(*args, **kwargs)  # it has a sentence for that
        with preserved(model):
            return measure(*args, **kwargs)

    return inside


def rng_state() -> dict[str, Any]:
    """The state of every generator a forward pass may draw from.

    Returns:
        The states of torch, numpy and Python by those names, and of the ``devices`` in use.

    >>> before = rng_state(); x = torch.randn(2); set_rng_state(before)
    >>> torch.equal(x, torch.randn(2))
    True
    """
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(),
        "python": random.getstate(),
        "devices": _device.rng_states(),
    }
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    """Put every generator back to an earlier state.

    Args:
        state: what :func:`rng_state` returned.

    >>> before = rng_state(); x = torch.randn(2); set_rng_state(before)
    >>> torch.equal(x, torch.randn(2))
    True
    """
    torch.set_rng_state(state["torch"])
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])
    _device.set_rng_states(state["devices"])


def _settings() -> dict[str, Any]:
    """Settings of torch that change what is computed, or how."""
    return {
        "dtype": torch.get_default_dtype(),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "benchmark": torch.backends.cudnn.benchmark,
        "cudnn": torch.backends.cudnn.deterministic,
        "matmul": torch.get_float32_matmul_precision(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast_dtype": torch.get_autocast_dtype("cpu"),
        "fastpath": torch.backends.mha.get_fastpath_enabled(),
    }


def _set(settings: dict[str, Any]) -> None:
    now = _settings()
    if now == settings:
        return
    torch.set_default_dtype(settings["dtype"])
    torch.use_deterministic_algorithms(settings["deterministic"][0], warn_only=settings["deterministic"][1])
    torch.backends.cudnn.benchmark = settings["benchmark"]
    torch.backends.cudnn.deterministic = settings["cudnn"]
    if now["matmul"] != settings["matmul"]:
        torch.set_float32_matmul_precision(settings["matmul"])
    torch.set_autocast_enabled("cpu", settings["autocast"])
    torch.set_autocast_dtype("cpu", settings["autocast_dtype"])
    torch.backends.mha.set_fastpath_enabled(settings["fastpath"])


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Attention as products and a softmax: the fused kernels have no forward-mode, batched or second derivative.

    >>> q = torch.ones(1, 2, 2, requires_grad=True)
    >>> with plain_kernels():
    ...     once, = torch.autograd.grad(nn.functional.scaled_dot_product_attention(q, q, q).sum(), q, create_graph=True)
    >>> torch.autograd.grad(once.sum(), q)[0].shape
    torch.Size([1, 2, 2])
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
