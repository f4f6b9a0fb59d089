"""Is the drift there without data? The same model trained on noise with random labels, beside the data itself.

On noise nothing can be learned but the scale of the outputs, so a drift that appears there is the work of the loss and
the activation. Of every weight matrix the drift z is read, and of every activation the mean of its input over its
standard deviation: behind a norm the input is signed, the weight's mean hardly moves, and the input's mean does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from netvitals._plot import Plot, Series
from netvitals.capture import (
    ActivationView,
    LossFn,
    Mode,
    Only,
    Progress,
    Recorder,
    Result,
    Vital,
    batches_of,
    mapped,
    observe,
    one_screen,
    picked,
    skipped_lines,
    task_of,
)
from netvitals.drift.reinitialisation import models_of
from netvitals.drift.weights import role, weight_drift
from netvitals.stats import Mean, mean

CLEAR = 3.0  # standard errors from zero
LEAST = 0.001  # of drift z, or of a shift in standard deviations: below, a consistent change is still none


@dataclass(frozen=True)
class DriftPair:
    """Drift of one place on noise and on the data, over initialisations.

    Part of :class:`RandomDataControl`.

    Attributes:
        noise: on random inputs and labels.
        data: on the batch or loader.
    """

    noise: Mean
    data: Mean

    @property
    def direction(self) -> int:
        """Of the drift on noise: −1, 1, or 0 within three standard errors of none."""
        return _direction(self.noise)

    @property
    def without_data(self) -> bool:
        """Whether it drifts on noise, in the direction in which it drifts on the data if it does there."""
        return self.direction != 0 and _direction(self.data) in (0, self.direction)


@dataclass(frozen=True, kw_only=True)
class RandomDataControl(Result):
    """Drift on noise beside drift on the data.

    Returned by :func:`random_data_control`.

    Attributes:
        weights: weight matrix -> drift z.
        inputs: activation -> change of mean/deviation of its input.
        steps: of each training.
        inits: models trained on each; two trainings of ``steps`` steps for every one.
        skipped: place that was not compared → reason.
    """

    weights: dict[str, DriftPair]
    inputs: dict[str, DriftPair]
    steps: int
    inits: int
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def without_data(self) -> bool:
        """Whether most activations' inputs, or most weight matrices, drift down on noise."""
        for pairs in (self.inputs, self.weights):
            down = sum(p.direction < 0 for p in pairs.values())
            if 2 * down > len(pairs):
                return True
        return False

    def rows(self) -> list[dict[str, Any]]:
        """One row a weight matrix and an activation: drift on noise and on the data, with standard errors."""
        return [
            {
                "place": name,
                "kind": kind,
                "noise": p.noise.value,
                "noise_stderr": p.noise.stderr,
                "data": p.data.value,
                "data_stderr": p.data.stderr,
                "without_data": p.without_data,
            }
            for kind, pairs in (("weight", self.weights), ("input", self.inputs))
            for name, p in pairs.items()
        ]

    def plot(self) -> Plot:
        """Shift of every activation's input on noise and on the data, with standard errors."""
        pairs = list(self.inputs.values())
        at = [float(i + 1) for i in range(len(pairs))]
        series = [
            Series(name, at, [getattr(p, k).value for p in pairs], error=[getattr(p, k).stderr for p in pairs])
            for k, name in (("noise", "random data"), ("data", "the data"))
        ]
        zero = Series("zero", [0.5, len(pairs) + 0.5], [0.0, 0.0], line=True, dashed=True, tone=7)
        return Plot("activation, in the order of the model", "change of μ/σ of its input", [*series, zero])

    def __str__(self) -> str:
        answer = "is there" if self.without_data else "is not there"
        lines = [f"Drift down {answer} without data ({self.inits} initialisations, {self.steps} steps each):"]
        for title, pairs in (("change of μ/σ at the input of", self.inputs), ("drift z of", self.weights)):
            lines += [
                f"  {title} {name}: {p.noise.value:+.4f} ± {p.noise.stderr:.4f} on noise, "
                f"{p.data.value:+.4f} ± {p.data.stderr:.4f} on the data"
                for name, p in pairs.items()
            ]
        return one_screen(lines + skipped_lines(self.skipped))


class _Inputs(Vital):
    """Mean over deviation of every activation's input."""

    name = "drift"

    def activation(self, recorder: Recorder, view: ActivationView) -> None:
        x = view.x.detach().double()
        recorder.write(view.site, ("shift",), x.mean() / x.std(unbiased=False).clamp_min(1e-12))


def random_data_control(
    factory: Callable[[], nn.Module],
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    only: Only = None,
    seed: int = 0,
    progress: Progress | None = None,
    inits: int = 5,
    steps: int = 100,
    optimizer: Callable[[Any], Optimizer] | None = None,
) -> RandomDataControl:
    """Train new models on random data and on the real data, and compare how their weights drift.

    Random data has the shape and dtype of a batch and is drawn anew at every step. Floating-point inputs are Gaussian
    with the mean and standard deviation of the data, and integer inputs are drawn uniformly from the values that occur.
    Random labels are independent of the inputs.

    Args:
        factory: makes a new model each time it is called, drawing its weights from torch's generator.
        loss_fn: a function of (output, target), its name, or None if the model's output contains its own loss.
        batch: one batch or a loader; it is gone through again and again.
        mode: the mode that activations are measured in; training is in the mode that the factory gives.
        only: activations to compare: names or patterns, or a function of a name.
        seed: seed of models and noise; the global random generator is not changed.
        progress: called with (trainings done, trainings planned).
        inits: models to make; each is trained twice.
        steps: number of steps of each training: ``2 · inits · steps`` forward and backward passes in all.
        optimizer: makes the optimizer from the parameters; ``torch.optim.Adam`` with a rate of 1e-3 by default.

    Returns:
        Drift of every weight matrix and of every activation's input, on noise and on the data.

    >>> x = torch.randn(32, 8)
    >>> make = lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    >>> found = random_data_control(make, "cross_entropy", (x, torch.arange(32) % 3), inits=2, steps=3)
    >>> list(found.inputs), list(found.weights)
    (['1', '3'], ['0.weight', '2.weight', '4.weight'])
    """
    if steps < 1:
        raise ValueError(f"steps= is the number of training steps and must be at least 1, got {steps}")
    batches = list(itertools.islice(batches_of(batch), steps))
    if not batches:
        raise ValueError("the loader yields no batch: give a loader with at least one batch")
    make_optimizer = optimizer or (lambda params: torch.optim.Adam(params, lr=1e-3))
    values: dict[tuple[str, str, str], list[float]] = {}
    skipped: dict[str, str] = {}
    for i, model in models_of(factory, inits, seed):
        start = {name: t.detach().clone() for name, t in model.state_dict().items()}
        for k, source in enumerate(("noise", "data")):
            model.load_state_dict(start)
            generator = torch.Generator().manual_seed(seed + i)
            noise = (_noise(b, generator) for b in itertools.cycle(batches))
            for place, value in _drift(
                model,
                loss_fn,
                noise if source == "noise" else itertools.cycle(batches),
                steps,
                make_optimizer,
                mode,
                skipped,
            ).items():
                values.setdefault((*place, source), []).append(value)
            if progress is not None:
                progress(2 * i + k + 1, 2 * inits)
    pairs: dict[str, dict[str, DriftPair]] = {"weight": {}, "input": {}}
    for kind, name in dict.fromkeys((kind, name) for kind, name, _ in values):
        both = [values.get((kind, name, source), []) for source in ("noise", "data")]
        if all(len(v) == inits for v in both):
            pairs[kind][name] = DriftPair(*(mean(v) for v in both))
        else:
            skipped[name] = "not measured in every training"
    names = picked(list(pairs["input"]), only, "activation")
    return RandomDataControl(
        weights=pairs["weight"],
        inputs={n: pairs["input"][n] for n in names},
        steps=steps,
        inits=inits,
        skipped=skipped,
    )


def _drift(
    model: nn.Module,
    loss_fn: LossFn,
    batches: Iterator[Any],
    steps: int,
    make_optimizer: Callable[[Any], Optimizer],
    mode: Mode,
    skipped: dict[str, str],
) -> dict[tuple[str, str], float]:
    """Train, and measure what moved: (kind, place) → drift."""
    first = next(batches)
    before, initial = _shifts(model, first, mode, skipped), {}
    modules = dict(model.named_modules())
    for name, p in model.named_parameters():
        if p.requires_grad and role(name, p, modules) == "weight":
            initial[name] = p.detach().clone()
    optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad])
    for step, one in enumerate(itertools.islice(itertools.chain([first], batches), steps)):
        optimizer.zero_grad()
        task = task_of(model, loss_fn, one)
        loss = task.loss(task.forward())
        if not torch.isfinite(loss):
            raise ValueError(
                f"the loss is {float(loss.detach())} at step {step}: use an optimizer with a smaller learning rate"
            )
        loss.backward()
        optimizer.step()
    after = _shifts(model, first, mode, skipped)
    found = {("weight", n): weight_drift(model.get_parameter(n), w).drift_z for n, w in initial.items()}
    return found | {("input", n): after[n] - before[n] for n in before if n in after}


def _shifts(model: nn.Module, batch: Any, mode: Mode, skipped: dict[str, str]) -> dict[str, float]:
    """μ/σ of every activation's input; the batch's own target is not needed."""
    seen = observe(model, None, _inputs(model, batch), vitals=[_Inputs()], mode=mode)
    skipped |= seen.skipped
    return {r.site: r.value for r in seen.measurements}


def _inputs(model: nn.Module, batch: Any) -> Any:
    task = task_of(model, None, batch)
    return dict(task.kwargs) if task.kwargs else (task.args, None)


def _noise(batch: Any, generator: torch.Generator) -> Any:
    """A batch of the same shapes and types without anything to learn."""

    def drawn(t: Tensor) -> Tensor:
        if t.dtype == torch.bool:
            return t
        if t.is_floating_point():
            spread = float(t.double().std()) if t.numel() > 1 else 1.0
            made = torch.randn(t.shape, generator=generator, dtype=torch.float64) * spread + float(t.double().mean())
            return made.to(t)
        levels = t.unique().cpu()
        return levels[torch.randint(len(levels), t.shape, generator=generator)].to(t)

    return mapped(batch, drawn)


def _direction(m: Mean) -> int:
    if not abs(m.value) > LEAST or abs(m.z(0.0)) < CLEAR:
        return 0
    return 1 if m.value > 0 else -1
