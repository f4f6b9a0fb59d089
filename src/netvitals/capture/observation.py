"""Look at a model with a batch of one's own: one forward pass, one backward pass, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from netvitals.anatomy.preserve import preserved
from netvitals.capture.engine.observer import Observer
from netvitals.capture.engine.optimizer_hooks import copies, parameter_view
from netvitals.capture.engine.roles import DROPOUTS, uncompiled
from netvitals.capture.engine.schedule import Schedule, detached_context
from netvitals.capture.reading import ArrayReading, Reading, Recorder
from netvitals.capture.site import Site, Unseen
from netvitals.capture.vital import WatchContext

Mode = Literal["train", "eval", "as_is"]


@dataclass(frozen=True)
class Observation:
    """What one look at a model gave."""

    readings: tuple[Reading, ...]
    arrays: tuple[ArrayReading, ...]
    sites: tuple[Site, ...]
    unseen: tuple[Unseen, ...]
    loss: float | None = None

    def __str__(self) -> str:
        loss = "" if self.loss is None else f", loss {self.loss:.6g}"
        return (
            f"{len(self.readings)} readings at {len(self.sites)} sites{loss}; "
            f"{len(self.unseen)} places could not be seen"
        )


def observe(
    model: nn.Module,
    batch: Any,
    loss_fn: Callable[..., Tensor] | None = None,
    *,
    vitals: Iterable[Any],
    step: int = 0,
    mode: Mode = "train",
    initial: Mapping[str, Tensor] | None = None,
) -> Observation:
    """Readings of ``vitals`` on one batch, as a measured training step would give them.

    The model is left bit for bit as it was: parameters, buffers, gradients, mode, hooks, random numbers.

    Args:
        model: any module; a compiled one is looked at uncompiled.
        batch: ``(x, y)`` with a loss function; else ``x`` or ``(x, y)``. ``x`` may be a tuple or dict of arguments.
        loss_fn: ``loss_fn(model(x), y)``; without it there are no gradients.
        vitals: the vital signs.
        step: the step number that the readings carry.
        mode: ``"train"`` as in training, with batch statistics in BatchNorm but dropout modules off; ``"eval"``;
            or ``"as_is"``.
        initial: parameters that drift is measured from (the present ones by default).

    >>> from netvitals.capture import Vital
    >>> class Height(Vital):
    ...     name = "height"
    ...     def activation(self, recorder, view):
    ...         recorder.write(view.site, ("max",), view.a.max())
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    >>> seen = observe(net, torch.zeros(4, 2), vitals=[Height()])
    >>> [(r.site, r.metric) for r in seen.readings], [site.name for site in seen.sites]
    ([('1', 'max')], ['0', '1', 'output'])
    """
    schedule = Schedule(vitals)
    x, target = split_batch(batch, loss_fn)
    schedule.begin(
        WatchContext(model=uncompiled(model), probe=(x, target[0] if target else None, loss_fn), training=False)
    )
    schedule.select(0)
    observer = Observer(uncompiled(model), schedule, passive=False)
    recorder = Recorder(step)
    loss = probe(observer, recorder, batch, loss_fn, mode=mode, initial=initial)
    readings, arrays = recorder.readings()
    return Observation(
        tuple(readings),
        tuple(arrays),
        tuple(observer.sites.values()),
        tuple(observer.unseen.values()),
        None if loss is None else float(loss),
    )


def probe(
    observer: Observer,
    recorder: Recorder,
    batch: Any,
    loss_fn: Callable[..., Tensor] | None,
    *,
    mode: Mode = "train",
    initial: Mapping[str, Tensor] | None = None,
    parameters: bool = True,
) -> Tensor | None:
    """Run ``looker`` over one batch and write to ``recorder``; the detached loss, if there is one."""
    x, target = split_batch(batch, loss_fn)
    model, schedule = observer.model, observer.schedule
    loss = None
    with preserved(model), in_mode(model, mode), _slow_attention(), torch.enable_grad():
        torch.manual_seed(0)  # what noise is left in the model is the same on every look
        observer.arm(recorder)
        try:
            output = _call(model, x)
            grads: dict[str, Tensor] = {}
            if loss_fn is not None:
                loss = loss_fn(output, *target)
                _check_loss(loss)
                named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
                if loss.requires_grad:
                    found = torch.autograd.grad(loss, [p for _, p in named], allow_unused=True)
                    grads = {n: g for (n, _), g in zip(named, found) if g is not None}
                loss = loss.detach()
        finally:
            observer.disarm()
    if parameters and schedule.wants("parameters"):
        with detached_context():
            schedule.show("parameters", recorder, parameter_view(observer.modules, initial or copies(model), grads))
    return loss


def split_batch(batch: Any, loss_fn: Callable[..., Any] | None) -> tuple[Any, tuple[Any, ...]]:
    """The model's input and what the loss function gets besides the output."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], (batch[1],)
    if loss_fn is None:
        return batch, ()
    what = (
        f"a {type(batch).__name__} of {len(batch)}"
        if isinstance(batch, tuple | list | dict)
        else f"a {type(batch).__name__}"
    )
    raise TypeError(f"with a loss function the batch must be a pair (x, y), got {what}")


def check_finite(nest: Any, what: str) -> None:
    """Refuse a batch with NaN or infinity before anything is measured on it."""
    tensors = nest.values() if isinstance(nest, Mapping) else nest if isinstance(nest, tuple | list) else [nest]
    for tensor in tensors:
        if isinstance(tensor, Tensor) and tensor.is_floating_point():
            bad = int((~torch.isfinite(tensor)).sum())
            if bad:
                raise ValueError(
                    f"{what} holds {bad} values of {tensor.numel()} that are NaN or infinite; clean the batch first"
                )


def _call(model: nn.Module, x: Any) -> Any:
    if isinstance(x, Mapping):
        return model(**x)
    return model(*x) if isinstance(x, tuple | list) else model(x)


def _check_loss(loss: Any) -> None:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise TypeError(f"the loss function must return one number as a tensor, got {what}")


@contextmanager
def in_mode(model: nn.Module, mode: Mode) -> Iterator[None]:
    """Pose a model for a look; use inside ``preserved``, which puts every mode back."""
    if mode not in ("train", "eval", "as_is"):
        raise ValueError(f"mode must be 'train', 'eval' or 'as_is', got {mode!r}")
    if mode != "as_is":
        for module in model.modules():
            module.training = mode == "train" and not isinstance(module, DROPOUTS)
    yield


@contextmanager
def _slow_attention() -> Iterator[None]:
    """torch's transformer layers have a fused inference path in which nothing can be seen."""
    was = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was)
