"""Look at a model with a batch of one's own: one forward pass, one backward pass, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from netvitals.anatomy import preserved
from netvitals.capture.engine.observer import Observer
from netvitals.capture.engine.parameters import copies, parameter_view
from netvitals.capture.engine.roles import DROPOUTS, uncompiled
from netvitals.capture.engine.schedule import Schedule, detached_context
from netvitals.capture.loss import LossFn
from netvitals.capture.recorder import ArrayMeasurement, Measurement, Recorder
from netvitals.capture.result import Result
from netvitals.capture.site import Site
from netvitals.capture.task import Task, task_of
from netvitals.capture.vital import WatchContext

Mode = Literal["train", "eval", "as_is"]


@dataclass(frozen=True, kw_only=True)
class Observation(Result):
    """What one look at a model gave.

    Returned by :func:`observe`.

    Attributes:
        measurements: every number.
        arrays: measurements that are arrays.
        sites: the places that were measured.
        loss: of the batch; None where there was no loss function.
        skipped: place that could not be measured → reason.
    """

    measurements: tuple[Measurement, ...]
    arrays: tuple[ArrayMeasurement, ...]
    sites: tuple[Site, ...]
    loss: float | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """One row a measurement: step, vital, site, metric, value."""
        return [
            {"step": r.step, "vital": r.vital, "site": r.site, "metric": r.metric, "value": r.value}
            for r in self.measurements
        ]

    def __str__(self) -> str:
        loss = "" if self.loss is None else f", loss {self.loss:.6g}"
        return (
            f"{len(self.measurements)} measurements at {len(self.sites)} sites{loss}; "
            f"{len(self.skipped)} places could not be measured"
        )


def observe(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    vitals: Iterable[Any],
    mode: Mode = "as_is",
    step: int = 0,
    initial: Mapping[str, Tensor] | None = None,
    seed: int = 0,
    forward: Callable[[nn.Module, Any], Any] | None = None,
) -> Observation:
    """Measurements of ``vitals`` on one batch, as a measured training step would give them.

    The model is left bit for bit as it was: parameters, buffers, gradients, mode, hooks, random numbers.

    Args:
        model: any module; a compiled one is measured uncompiled.
        loss_fn: a function of (output, target) or its name. With None the model's own ``output.loss`` is used; where
            there is none either, there are no gradients.
        batch: one batch as a data loader yields it: ``x``, ``(x, y)``, several inputs and a target, a dict.
        vitals: the vital signs.
        mode: ``"as_is"``; ``"train"`` as in training, with batch statistics in BatchNorm but dropout modules off; or
            ``"eval"``.
        step: the step number that the measurements carry.
        initial: parameters that drift is measured from (the present ones by default).
        seed: what noise is left in the model is drawn with it, the same on every look.
        forward: how to run the model on a batch of any other kind: ``forward(model, batch)``.

    Returns:
        The measurements, with the places they come from and those that could not be measured.

    >>> from netvitals.capture import Vital
    >>> class Height(Vital):
    ...     name = "height"
    ...     def activation(self, recorder, view):
    ...         recorder.write(view.site, ("max",), view.a.max())
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    >>> seen = observe(net, None, torch.zeros(4, 2), vitals=[Height()])
    >>> [(r.site, r.metric) for r in seen.measurements], [site.name for site in seen.sites]
    ([('1', 'max')], ['0', '1', 'output'])
    """
    task = task_of(model, loss_fn, batch, forward)
    schedule = Schedule(vitals)
    target = task.targets[0] if task.targets else None
    schedule.begin(WatchContext(model=uncompiled(model), probe=(task.inputs, target, task.loss_fn), training=False))
    schedule.select(0)
    observer = Observer(uncompiled(model), schedule, passive=False)
    recorder = Recorder(step)
    loss = probe(observer, recorder, task, mode=mode, initial=initial, seed=seed)
    measurements, arrays = recorder.measurements()
    return Observation(
        measurements=tuple(measurements),
        arrays=tuple(arrays),
        sites=tuple(observer.sites.values()),
        loss=None if loss is None else float(loss),
        skipped=dict(observer.skipped) | recorder.skipped,
    )


def probe(
    observer: Observer,
    recorder: Recorder,
    task: Task,
    *,
    mode: Mode = "as_is",
    initial: Mapping[str, Tensor] | None = None,
    parameters: bool = True,
    gradients: bool = True,
    seed: int = 0,
) -> Tensor | None:
    """Run ``observer`` over the batch of a task and write to ``recorder``.

    Args:
        observer: has the model and the vital signs.
        recorder: takes the measurements.
        task: the batch and the loss; its model is run as the observer has it.
        mode: as in :func:`observe`.
        initial: as in :func:`observe`.
        seed: as in :func:`observe`.
        parameters: also show the parameters to the vital signs.
        gradients: also run the backward pass, where there is a loss.

    Returns:
        The detached loss, if there is one.

    >>> from netvitals.capture import Observer, Recorder, Schedule, task_of
    >>> from netvitals.vitals import Gates
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> schedule = Schedule([Gates()]); schedule.select(0)
    >>> recorder = Recorder(step=0)
    >>> loss = probe(Observer(net, schedule), recorder, task_of(net, "mse", (torch.ones(4, 2), torch.ones(4, 1))))
    >>> recorder.leave_device(); len(recorder.measurements()[0]) > 0
    True
    """
    model, schedule = observer.model, observer.schedule
    loss = None
    grads: dict[str, Tensor] = {}
    with preserved(model), in_mode(model, mode), _slow_attention(), torch.enable_grad():
        torch.manual_seed(seed)
        observer.arm(recorder)
        try:
            output = task.run(model)
            if gradients and (task.loss_fn is not None or task.call is not None or _holds_loss(output)):
                loss = task.loss(output)
                named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
                if loss.requires_grad:
                    found = torch.autograd.grad(loss, [p for _, p in named], allow_unused=True)
                    grads = {n: g for (n, _), g in zip(named, found) if g is not None}
                loss = loss.detach()
        finally:
            observer.disarm()
    if parameters and schedule.wants("parameters"):
        with detached_context():
            view = parameter_view(observer.modules, initial or copies(model), grads, anatomy=observer.anatomy)
            schedule.show("parameters", recorder, view)
    return loss


def _holds_loss(output: Any) -> bool:
    """Whether a model's output brings its own loss, as those of Hugging Face do when they are given labels."""
    if isinstance(output, Tensor):
        return False
    found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return isinstance(found, Tensor)


@contextmanager
def in_mode(model: nn.Module, mode: Mode) -> Iterator[None]:
    """Pose a model for a look; use inside ``preserved``, which puts every mode back.

    Args:
        model: the model.
        mode: ``"train"`` (batch statistics, dropout modules off), ``"eval"`` or ``"as_is"``.

    Yields:
        Nothing; the mode holds inside the block.

    >>> net = nn.Dropout()
    >>> with preserved(net), in_mode(net, "eval"):
    ...     print(net.training)
    False
    >>> net.training
    True
    """
    if mode not in ("train", "eval", "as_is"):
        raise ValueError(f"mode= must be 'train', 'eval' or 'as_is', got {mode!r}")
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
