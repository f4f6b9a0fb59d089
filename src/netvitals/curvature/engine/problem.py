"""The thing whose curvature is asked for: a model, a loss and one batch, run so that second derivatives exist."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from netvitals.anatomy import plain_kernels
from netvitals.capture import LossFn, Mode, Task, in_mode, main_output, model_in, preserved, task_of, tensors


class Problem:
    """``loss_fn(model(x), y)`` for one batch in any form that :func:`netvitals.capture.task.task_of` understands.

    Without a loss function the model's own ``output.loss`` is taken. With ``dtype`` the model, the loss and the
    floating tensors of the batch are copied in that dtype, and the user's own are not touched at all. ``noise`` seeds
    what the model draws, in every pass the same: of many batches each has a number of its own, so that the mean over
    batches is one over draws too.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFn,
        batch: Any,
        dtype: torch.dtype | None = None,
        noise: int | None = None,
    ) -> None:
        self.noise = noise
        model = getattr(model, "_orig_mod", model)  # a compiled module has no second derivatives, its original has
        task = task_of(model, loss_fn, batch)
        first = next((p for p in model.parameters() if p.is_floating_point()), None)
        data = (task.args, dict(task.kwargs), task.targets)
        self.original: nn.Module | None = None  # of the model that is measured, where that is a copy in another dtype
        if dtype is not None and (first is None or first.dtype != dtype or _other_dtype(data, dtype)):
            self.original, task = model, _cast(task, dtype)
        self.narrowest = torch.float64  # the coarsest dtype that the model computes in, once it was seen
        self.task, self.model = task, task.model
        sizes = [t.shape[0] for t in tensors((task.args, dict(task.kwargs))) if t.ndim > 0]
        if not sizes:
            raise ValueError(
                "the batch has no input tensor with a batch dimension: give (x, y) with x of shape (batch size, …)"
            )
        self.examples = int(sizes[0])
        if self.examples == 0:
            raise ValueError("the batch is empty: give at least one example")

    @property
    def own_loss(self) -> bool:
        """True when the model computes its loss itself."""
        return self.task.loss_fn is None

    def outputs(self) -> Any:
        if self.noise is not None:
            torch.manual_seed(self.noise)
        return self.task.forward()

    def loss(self, outputs: Any, targets: tuple[Any, ...] | None = None) -> Tensor:
        """The loss of the outputs; of other ``targets`` than the batch's where they are given."""
        task = self.task if targets is None else replace(self.task, targets=targets)
        with _shown_by(self.original, self.model):
            loss = _loss_of_all(task, outputs)
            if loss is None:
                loss = task.loss(outputs)
        if not loss.is_floating_point():
            raise ValueError(
                f"loss_fn returned a tensor of type {loss.dtype}, expected a floating-point number that can be "
                "differentiated"
            )
        if not torch.isfinite(loss).all():
            raise ValueError(
                f"the loss of this batch is {loss.item()}, so its curvature is undefined: check the batch and the "
                "parameters for NaN or infinity"
            )
        return loss

    def loss_of_part(self, outputs: Any, part: slice) -> float:
        """The loss of some examples alone; a model with its own loss is run on them."""
        b = self.examples
        cut = lambda t: t[part] if isinstance(t, Tensor) and t.ndim and t.shape[0] == b else t
        if self.own_loss:
            args, kwargs = tree_map(cut, (self.task.args, dict(self.task.kwargs)))
            few = replace(self.task, args=args, kwargs=kwargs)
            return float(few.loss(few.forward()).detach())
        tree, close = _opened(outputs)
        return float(self.loss(close(tree_map(cut, tree)), tree_map(cut, self.task.targets)).detach())

    @property
    def couples_examples(self) -> bool:
        """True when a norm layer takes its statistics from the batch, so that examples see each other."""
        return any(
            m.training or (m.running_mean is None and not isinstance(m, nn.InstanceNorm2d))
            for m in self.model.modules()
            if isinstance(m, nn.modules.batchnorm._BatchNorm)
        )


@contextmanager
def _shown_by(original: nn.Module | None, twin: nn.Module) -> Iterator[None]:
    """The user's model shows what its measured copy holds: a loss may read parameters and activations by its name."""
    pairs = [] if original is None else list(zip(original.modules(), twin.modules()))
    own = [vars(module) for module, _ in pairs]
    try:
        for module, copied in pairs:
            object.__setattr__(module, "__dict__", vars(copied))
        yield
    finally:
        for (module, _), attributes in zip(pairs, own):
            object.__setattr__(module, "__dict__", attributes)


def _loss_of_all(task: Task, outputs: Any) -> Tensor | None:
    """The loss of a function that reads the model's whole output (``out["logits"]``); None if it wants the logits."""
    if task.loss_fn is None or main_output(outputs) is outputs:
        return None
    try:
        loss = task.loss_fn(outputs, *task.targets)
    except (TypeError, AttributeError, KeyError):
        return None
    return loss.reshape(()) if isinstance(loss, Tensor) and loss.numel() == 1 else None


def float_outputs(outputs: Any) -> tuple[list[Tensor], Callable[[list[Tensor]], Any]]:
    """The floating tensors inside a model's output, and a function that puts others in their place."""
    tree, close = _opened(outputs)
    leaves, spec = tree_flatten(tree)
    where = [i for i, t in enumerate(leaves) if isinstance(t, Tensor) and t.is_floating_point()]
    if not where:
        raise ValueError(
            f"the model returned a {type(outputs).__name__} without a floating-point tensor, which cannot be "
            "differentiated: return the tensor that the loss uses"
        )

    def rebuild(replaced: list[Tensor]) -> Any:
        filled = list(leaves)
        for i, t in zip(where, replaced):
            filled[i] = t
        return close(tree_unflatten(filled, spec))

    return [leaves[i] for i in where], rebuild


def _opened(outputs: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Outputs as a tree that torch can walk, and a function that makes them again: an object shows its attributes."""
    if isinstance(outputs, Tensor | Mapping | Sequence) or not hasattr(outputs, "__dict__"):
        return outputs, lambda tree: tree

    def close(tree: dict[str, Any]) -> Any:
        twin = copy.copy(outputs)
        twin.__dict__.update(tree)
        return twin

    return dict(vars(outputs)), close


@contextmanager
def laboratory(model: nn.Module, mode: Mode = "as_is") -> Iterator[None]:
    """Math attention, no fast paths, no in-place activations, gradients on: everything put back afterwards.

    Fused attention, the transformer fast path and fused RNN kernels have no second derivative.
    """
    cudnn = torch.backends.cudnn.enabled
    recurrent = any(isinstance(m, nn.RNNBase) for m in model.modules())
    inplace = [m for m in model.modules() if getattr(m, "inplace", False) is True]
    with ExitStack() as stack:
        stack.enter_context(preserved(model))
        stack.enter_context(in_mode(model, mode))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(plain_kernels())
        for device in {p.device.type for p in model.parameters()} | {"cpu"}:
            stack.enter_context(torch.autocast(device, enabled=False))
        try:
            torch.backends.cudnn.enabled = cudnn and not recurrent
            for m in inplace:
                m.inplace = False  # type: ignore[assignment]
            yield
        finally:
            for m in inplace:
                m.inplace = True  # type: ignore[assignment]
            torch.backends.cudnn.enabled = cudnn


def refuse_noise(problem: Problem) -> None:
    """A product with a random network estimates nothing: name the dropout that is still on."""
    for name, m in problem.model.named_modules() if problem.noise is None else ():
        if not m.training:
            continue
        p = getattr(m, "p", None) if isinstance(m, nn.modules.dropout._DropoutNd) else getattr(m, "dropout", None)
        if isinstance(p, (int, float)) and p > 0:
            where = name or "the model"
            raise ValueError(
                f"dropout is active in {where!r} (p = {p:g}), so every forward pass would differ. {AVERAGE}"
            )


def refuse_randomness(before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
    """Raise a sentence where the outputs of two passes of the same batch differ."""
    for a in after:
        same = [b for b in before if b.shape == a.shape]
        tol = 1e-3 * float(a.detach().abs().max())
        if same and all(float((a.detach() - b).abs().max()) > tol for b in same):
            raise ValueError(
                "two forward passes of the same batch differ, so the model draws random numbers (functional dropout? "
                f"noise?). {AVERAGE}"
            )


AVERAGE = (
    "Call model.eval(), or pass mode='eval'. To average over the noise, give a list of batches ([batch] * 16 repeats "
    "one): each batch gets random numbers of its own"
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
            f"a tensor needed for the gradient was overwritten in place{where}. In the model's forward, replace the "
            "in-place operation (x.add_(…), x[...] = …) by one that returns a new tensor"
        )
    if "is not implemented" in text or "not differentiable" in text or "is marked as not" in text:
        op = text.split("derivative for ")[-1].split(" is not")[0].strip() if "derivative for " in text else text[:80]
        return ValueError(
            f"{op} has no second derivative{where}. Replace it by an equivalent operation that has one, for example "
            "Hardsigmoid by clamp, or fused attention by its math backend"
        )
    if "use_reentrant=True" in text:
        return ValueError(
            "checkpointing with use_reentrant=True does not support second derivatives. Pass use_reentrant=False, "
            "or turn checkpointing off for this measurement (if the model checkpoints only in training mode, "
            "mode='eval' is enough)"
        )
    if "checkpoint" in text.lower():
        return ValueError(
            f"a checkpointed part gave a different result when it was recomputed: {text.splitlines()[0][:120]} Does "
            "its forward use a counter, a cache or random numbers? Turn checkpointing off for this measurement (if "
            "the model checkpoints only in training mode, mode='eval' is enough)"
        )
    if "must have the same dtype" in text or "same dtype" in text or ("dtype" in text and "mat" in text):
        return ValueError(
            f"the model mixes dtypes ({text[:120]}), perhaps because its forward creates float32 tensors: pass "
            "dtype=torch.float32 to measure everything in this dtype"
        )
    return None


def _other_dtype(data: Any, dtype: torch.dtype) -> bool:
    return any(t.is_floating_point() and t.dtype != dtype for t in tensors(data))


def _cast(task: Task, dtype: torch.dtype) -> Task:
    loss_fn = task.loss_fn
    if isinstance(loss_fn, nn.Module):
        loss_fn = copy.deepcopy(loss_fn).to(dtype)
    cast = lambda t: t.to(dtype) if isinstance(t, Tensor) and t.is_floating_point() else t
    args, kwargs, targets = tree_map(cast, (task.args, dict(task.kwargs), task.targets))
    return Task(model=model_in(task.model, dtype), loss_fn=loss_fn, args=args, kwargs=kwargs, targets=targets)
