r"""The learning coefficient over training and by part: $\hat\lambda$ with its error at each checkpoint.

Stages of training that leave the loss almost flat can still change λ̂, the effective number of parameters, and they may
change it in one part of the network and not in another (a part's coefficient is that of the posterior over its weights,
the others fixed). Early in training a checkpoint is no minimum: descent finds lower loss, λ̂ is too low by as much, and
each coefficient says so. From one checkpoint to the next the chains keep their tuning and their places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from netvitals._plot import Plot, Series
from netvitals.capture import LossFn, Only, Result, Several, one_screen, preserved
from netvitals.singular.sampling.coefficient import LLC
from netvitals.singular.sampling.llc import learning_coefficient

_WARM = 4  # a chain that starts where the last checkpoint's ended has so many times less burn-in


@dataclass(frozen=True)
class CoefficientHistory(Result):
    """One learning coefficient per checkpoint, in the order of the steps.

    Returned by :func:`coefficient_history`.

    Attributes:
        steps: of the checkpoints, rising.
        coefficients: one a checkpoint.
        part: of the network; "" is all of it.
    """

    steps: tuple[int, ...]
    coefficients: tuple[LLC, ...]
    part: str = ""

    @property
    def loss(self) -> tuple[float, ...]:
        return tuple(c.baseline for c in self.coefficients)

    @property
    def change(self) -> tuple[float, float]:
        """Last minus first, with its standard error."""
        first, last = self.coefficients[0], self.coefficients[-1]
        return last.mean - first.mean, math.hypot(first.stderr, last.stderr)

    def rows(self) -> list[dict[str, Any]]:
        """One row a checkpoint, with the health of its chains."""
        part = {"part": self.part} if self.part else {}
        return [{"step": step, **part, **c.summary()} for step, c in zip(self.steps, self.coefficients)]

    def plot(self) -> Plot:
        """λ̂ with its standard error over training; what is not to be believed apart."""
        name = self.part or "λ"
        series = []
        for said, ok in (("", True), (", not to be believed", False)):
            points = [
                (s, c.mean, c.stderr) for s, c in zip(self.steps, self.coefficients) if c.ok is ok and c.mean == c.mean
            ]
            if points:
                x, y, error = (list(column) for column in zip(*points))
                series.append(Series(name + said, x, y, error, line=ok))
        return Plot("step", "learning coefficient", series)

    def __str__(self) -> str:
        name = f"{self.part}, " if self.part else ""
        lines = [
            f"{name}step {s}: λ = {c.mean:.4g} ± {c.stderr:.2g}, loss {c.baseline:.4g}{_doubt(c)}"
            for s, c in zip(self.steps, self.coefficients)
        ]
        return one_screen(lines)


@dataclass(frozen=True)
class PartHistories(Several[CoefficientHistory]):
    """One history for each part.

    Returned by :func:`coefficient_by_part`.
    """

    def rows(self) -> list[dict[str, Any]]:
        """One row a part and checkpoint."""
        return [row for history in self.parts for row in history.rows()]


def _doubt(c: LLC) -> str:
    words = []
    if c.health.diverged:
        words.append(f"{len(c.health.diverged)} of {len(c.trace)} chains diverged and are left out")
    words += [*c.doubts, *([c.note] if c.note else [])]
    return f" ({'; '.join(words)})" if words else f" ({c.health})"


def coefficient_history(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    checkpoints: Mapping[int, Mapping[str, Tensor]],
    only: Only = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    warm: bool = True,
    **options: Any,
) -> CoefficientHistory:
    """Estimate the learning coefficient at every checkpoint, with the same data and the same seeds.

    Args:
        model: a model into which each checkpoint is loaded in turn.
        loss_fn: a function of (output, target), or a name.
        batch: what :func:`learning_coefficient` takes; a loader is read once per checkpoint.
        checkpoints: step → state dict of ``model``.
        only: names or patterns of parameters, or a function of a name; the others stay fixed.
        seed: seed of the chains, the same at every checkpoint.
        progress: called with (checkpoints done, all).
        warm: start the chains of a checkpoint where those of the one before ended, with a quarter of the burn-in; not
            for minibatch chains.
        options: passed to :func:`learning_coefficient`.

    Returns:
        One coefficient for each checkpoint, in the order of the steps.

    >>> import torch
    >>> net = nn.Linear(2, 1)
    >>> early = {name: 2 * value for name, value in net.state_dict().items()}
    >>> batch = torch.randn(16, 2), torch.randn(16, 1)
    >>> kept = {0: early, 100: net.state_dict()}
    >>> found = coefficient_history(net, "mse", batch, checkpoints=kept, chains=2, draws=20)
    >>> found.steps, len(found.coefficients)
    ((0, 100), 2)
    """
    if not checkpoints:
        raise ValueError("checkpoints= is empty: give a mapping from step to state dict with at least one entry")
    steps = sorted(checkpoints)
    found: list[LLC] = []
    burn = options.pop("burn_in", None)
    burn = options.get("draws", 400) // 2 if burn is None else burn
    with preserved(model, parameters=True):
        for i, step in enumerate(steps):
            try:
                model.load_state_dict(checkpoints[step])
            except RuntimeError as error:
                raise ValueError(
                    f"the checkpoint of step {step} does not fit {type(model).__name__}: "
                    f"{str(error).splitlines()[-1].strip()}"
                ) from error
            before = found[-1] if found and warm and found[-1].ok else None  # a doubtful chain is no place to start
            moves = burn // _WARM if before is not None and before._tuning is not None else burn
            found.append(
                learning_coefficient(
                    model, loss_fn, batch, only=only, seed=seed, after=before, burn_in=moves, **options
                )
            )
            if progress is not None:
                progress(i + 1, len(steps))
    return CoefficientHistory(tuple(steps), tuple(found))


def coefficient_by_part(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    checkpoints: Mapping[int, Mapping[str, Tensor]] | None = None,
    parts: Mapping[str, Only] | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> PartHistories:
    """Estimate the learning coefficient of each part of a model at every checkpoint, with all other parameters fixed.

    Args:
        model: a model into which each checkpoint is loaded in turn.
        loss_fn: a function of (output, target), or a name.
        batch: what :func:`learning_coefficient` takes.
        checkpoints: step → state dict of ``model``; without them the model as it is.
        parts: name → names or patterns of its parameters; by default those of :func:`parts_of`.
        seed: seed of the chains.
        progress: called with (checkpoints done, all), over all parts.
        options: passed to :func:`coefficient_history`.

    Returns:
        One history for each part.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    >>> found = coefficient_by_part(net, "mse", (torch.randn(9, 2), torch.randn(9, 1)), draws=4)
    >>> [history.part for history in found]
    ['0', '2']
    """
    chosen = dict(parts) if parts is not None else parts_of(model)
    if not chosen:
        raise ValueError(f"{type(model).__name__} has no submodules with parameters: name its parts in parts=")
    states = checkpoints if checkpoints is not None else {0: model.state_dict()}
    total, histories = len(chosen) * len(states), []
    for i, (name, only) in enumerate(chosen.items()):
        tick = None if progress is None else lambda done, _, i=i: progress(i * len(states) + done, total)
        history = coefficient_history(
            model, loss_fn, batch, checkpoints=states, only=only, seed=seed, progress=tick, **options
        )
        histories.append(CoefficientHistory(history.steps, history.coefficients, part=name))
    return PartHistories(tuple(histories))


def parts_of(model: nn.Module) -> dict[str, list[str]]:
    """A model's parts by name, with their parameters: children, those of a list or of an only child in its place.

    >>> list(parts_of(nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)))))
    ['0.0', '0.2']
    """
    known = [name for name, _ in model.named_parameters()]  # a tied one has one name

    def of(path: str) -> list[str]:
        return [name for name in known if name.startswith(f"{path}.")]

    def below(prefix: str, module: nn.Module) -> dict[str, list[str]]:
        children = {f"{prefix}{n}": child for n, child in module.named_children() if of(f"{prefix}{n}")}
        found: dict[str, list[str]] = {}
        for path, child in children.items():
            opened = isinstance(child, nn.ModuleList | nn.ModuleDict) or len(children) == 1
            found |= (below(f"{path}.", child) if opened else {}) or {path: of(path)}
        return found

    return below("", model)
