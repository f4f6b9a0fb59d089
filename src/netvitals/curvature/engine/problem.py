"""The thing whose curvature is asked for: a model, a loss and one batch, run so that second derivatives exist."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from netvitals.capture import preserved

Loss = Callable[[Any, Any], Tensor]


class Problem:
    """``loss_fn(model(x), y)`` for one batch ``(x, y)``.

    ``x`` may be a tensor, a tuple or list of positional arguments, or a dict of keyword arguments. With ``dtype``
    the model, the loss and the floating tensors of the batch are copied in that dtype, and the user's own are not
    touched at all.
    """

    def __init__(self, model: nn.Module, loss_fn: Loss, batch: Any, dtype: torch.dtype | None = None) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model is a {type(model).__name__}, expected a torch.nn.Module")
        if not callable(loss_fn):
            raise TypeError(f"loss_fn is a {type(loss_fn).__name__}, expected a function of (output, target)")
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            given = type(batch).__name__ + (f" of length {len(batch)}" if hasattr(batch, "__len__") else "")
            raise ValueError(f"batch is a {given}, expected a pair (inputs, targets)")
        model = getattr(model, "_orig_mod", model)  # a compiled module has no second derivatives, its original has
        first = next((p for p in model.parameters() if p.is_floating_point()), None)
        if dtype is not None and (first is None or first.dtype != dtype or _other_dtype(batch, dtype)):
            model, loss_fn, batch = _cast(model, loss_fn, batch, dtype)
        self.model, self.loss_fn = model, loss_fn
        self.x, self.y = batch
        sizes = [t.shape[0] for t in tree_flatten(self.x)[0] if isinstance(t, Tensor) and t.ndim > 0]
        if not sizes:
            raise ValueError("the batch has no input tensor with a batch dimension: give (x, y) with x of shape (B, …)")
        self.samples = int(sizes[0])
        if self.samples == 0:
            raise ValueError("the batch is empty: give at least one sample")

    def outputs(self) -> Any:
        if isinstance(self.x, dict):
            return self.model(**self.x)
        if isinstance(self.x, (tuple, list)):
            return self.model(*self.x)
        return self.model(self.x)

    def loss(self, outputs: Any) -> Tensor:
        loss = self.loss_fn(outputs, self.y)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise ValueError(f"loss_fn returned {shape}, expected one number: use reduction='mean' or take .mean()")
        if not loss.is_floating_point():
            raise ValueError(f"loss_fn returned {loss.dtype}, expected a floating number that can be differentiated")
        if not torch.isfinite(loss).all():
            raise ValueError(
                f"the loss of this batch is {loss.item()}: curvature is undefined there; check the batch "
                "and the parameters for infinities"
            )
        return loss.reshape(())

    @property
    def couples_samples(self) -> bool:
        """True when a norm layer takes its statistics from the batch, so that samples see each other."""
        return any(
            m.training or (m.running_mean is None and not isinstance(m, nn.InstanceNorm2d))
            for m in self.model.modules()
            if isinstance(m, nn.modules.batchnorm._BatchNorm)
        )


def float_outputs(outputs: Any) -> tuple[list[Tensor], Callable[[list[Tensor]], Any]]:
    """The floating tensors inside a model's output, and a function that puts others in their place."""
    leaves, spec = tree_flatten(outputs)
    where = [i for i, t in enumerate(leaves) if isinstance(t, Tensor) and t.is_floating_point()]
    if not where:
        raise ValueError(
            f"the model returned {type(outputs).__name__} without a floating tensor: its output cannot be "
            "differentiated"
        )

    def rebuild(tensors: list[Tensor]) -> Any:
        filled = list(leaves)
        for i, t in zip(where, tensors):
            filled[i] = t
        return tree_unflatten(filled, spec)

    return [leaves[i] for i in where], rebuild


@contextmanager
def laboratory(model: nn.Module, train: bool | None = None) -> Iterator[None]:
    """Math attention, no fast paths, no in-place activations, gradients on: everything put back afterwards.

    Fused attention, the transformer fast path and fused RNN kernels have no second derivative.
    """
    mha, cudnn = torch.backends.mha.get_fastpath_enabled(), torch.backends.cudnn.enabled
    recurrent = any(isinstance(m, nn.RNNBase) for m in model.modules())
    inplace = [m for m in model.modules() if getattr(m, "inplace", False) is True]
    with ExitStack() as stack:
        stack.enter_context(preserved(model, train=train))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
        for device in {p.device.type for p in model.parameters()} | {"cpu"}:
            stack.enter_context(torch.autocast(device, enabled=False))
        try:
            torch.backends.mha.set_fastpath_enabled(False)
            torch.backends.cudnn.enabled = cudnn and not recurrent
            for m in inplace:
                m.inplace = False  # type: ignore[assignment]
            yield
        finally:
            for m in inplace:
                m.inplace = True  # type: ignore[assignment]
            torch.backends.mha.set_fastpath_enabled(mha)
            torch.backends.cudnn.enabled = cudnn


def refuse_noise(model: nn.Module) -> None:
    """A product with a random network estimates nothing: name the dropout that is still on."""
    for name, m in model.named_modules():
        if not m.training:
            continue
        p = getattr(m, "p", None) if isinstance(m, nn.modules.dropout._DropoutNd) else getattr(m, "dropout", None)
        if isinstance(p, (int, float)) and p > 0:
            raise ValueError(
                f"dropout is on in {name or 'the model'!r} (p = {p:g}): each product would see another "
                "network. Call model.eval(), or pass train=False"
            )


@contextmanager
def advised() -> Iterator[None]:
    """Raise an error of torch with a sentence about what to do, where we have one."""
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        sentence = advice_for(error)
        if sentence is None:
            raise
        raise sentence from error


def advice_for(error: Exception, node: str = "") -> ValueError | None:
    """A sentence for the errors autograd raises when a second derivative cannot be had; None for unknown errors."""
    text = str(error)
    where = f" at or below {node!r}" if node else ""
    if "modified by an inplace operation" in text:
        return ValueError(
            f"a tensor that the gradient needs was overwritten in place{where}: replace the in-place "
            "operation (x.add_(…), x[...] = …) in the model's forward by one that makes a new tensor"
        )
    if "is not implemented" in text or "not differentiable" in text or "is marked as not" in text:
        op = text.split("derivative for ")[-1].split(" is not")[0].strip() if "derivative for " in text else text[:80]
        return ValueError(
            f"{op} has no second derivative{where}: replace it by an equivalent that has one "
            "(for example Hardsigmoid by clamp, fused attention by its math form)"
        )
    if "checkpoint" in text.lower():
        return ValueError(
            "gradient checkpointing hides the graph that second derivatives need: switch it off for this "
            "measurement, or use use_reentrant=False"
        )
    if "must have the same dtype" in text or "same dtype" in text or ("dtype" in text and "mat" in text):
        return ValueError(
            f"the model mixes dtypes ({text[:120]}): pass dtype=torch.float32 so that it is measured in "
            "the dtype its forward creates"
        )
    return None


def _other_dtype(batch: Any, dtype: torch.dtype) -> bool:
    return any(isinstance(t, Tensor) and t.is_floating_point() and t.dtype != dtype for t in tree_flatten(batch)[0])


def _cast(model: nn.Module, loss_fn: Loss, batch: Any, dtype: torch.dtype) -> tuple[nn.Module, Loss, Any]:
    model = copy.deepcopy(model).to(dtype)
    if isinstance(loss_fn, nn.Module):
        loss_fn = copy.deepcopy(loss_fn).to(dtype)
    cast = lambda t: t.to(dtype) if isinstance(t, Tensor) and t.is_floating_point() else t
    return model, loss_fn, tree_map(cast, tuple(batch))
