r"""Full networks in training, many at once: SGD with fresh batches, and the gradient flow integrated adaptively."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals.capture import Result
from netvitals.saddle.laws.integration import Paths, integrate
from netvitals.saddle.students.network import Stack, gradients, losses
from netvitals.saddle.students.task import Sample, Teacher

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Descent(Result):
    """SGD runs. ``escape`` (copies, thresholds) are first steps with batch loss below each threshold, NaN if never.

    Returned by :func:`descend`.

    Attributes:
        thresholds: loss levels.
        escape: (copies, thresholds), the first step below each level, NaN if never.
        steps: how many were taken.
        weights: the stack at the end.
        snapshots: step and stack, where some were asked for.
    """

    thresholds: tuple[float, ...]
    escape: np.ndarray
    steps: int
    weights: Stack
    snapshots: tuple[tuple[int, Stack], ...]

    def __str__(self) -> str:
        done = np.isfinite(self.escape).sum(0)
        return ", ".join(f"loss < {th}: {n} of {len(self.escape)}" for th, n in zip(self.thresholds, done))


def descend(
    weights: Stack,
    task: Teacher,
    *,
    lr: float,
    steps: int,
    batch: int = 512,
    seed: int = 0,
    rates: Sequence[float] | None = None,
    thresholds: Sequence[float] = (0.02,),
    snapshots: int = 0,
    smooth: int = 1,
    progress: Progress | None = None,
) -> Descent:
    """Train all copies of a network by plain SGD on fresh Gaussian batches, until each has crossed every loss
    threshold.

    Args:
        weights: stack of networks; it is copied.
        task: the teacher.
        lr: learning rate; layer ℓ moves with ``lr * rates[ℓ]``.
        steps: largest number of steps.
        batch: fresh inputs per step, shared by all copies.
        seed: seed of the random inputs.
        rates: factor on ``lr`` for each layer; 1 by default.
        thresholds: loss levels whose first crossing is noted.
        snapshots: keep the weights at so many evenly spaced steps (all copies then run to the end).
        smooth: number of steps over which the loss is averaged before it is compared.
        progress: called with (copies done, copies) whenever some are done.

    Returns:
        Escape steps (copies, thresholds), the final weights, and the snapshots with their steps.

    >>> from netvitals.saddle import teacher
    >>> from netvitals.saddle.students.network import ansatz_stack
    >>> task = teacher("tanh", 4)
    >>> start = [w.float() for w in ansatz_stack(torch.tensor([0.5, 0.5]), 8, task.directions[0])]
    >>> found = descend(start, task, lr=0.1, steps=5, batch=32, thresholds=(1e-9,))
    >>> found.escape.shape, found.steps
    ((1, 1), 5)
    """
    if lr <= 0 or steps < 1 or batch < 1 or smooth < 1:
        raise ValueError(f"lr, steps, batch and smooth must all be positive, got {lr}, {steps}, {batch}, {smooth}")
    w = [x.clone() for x in weights]
    copies, dtype = w[0].shape[0], w[0].dtype
    rate = [lr * r for r in (rates if rates is not None else [1.0] * len(w))]
    generator = torch.Generator().manual_seed(seed)
    levels = torch.tensor(list(thresholds), dtype=dtype)
    escape = np.full((copies, len(levels)), np.nan)
    final = [x.clone() for x in w]
    alive = torch.arange(copies)
    recent: list[Tensor] = []
    kept: list[tuple[int, Stack]] = []
    marks = set(np.linspace(0, steps, snapshots).round().astype(int).tolist()) if snapshots else set()
    step = 0
    for step in range(steps + 1):
        if step in marks:
            kept.append((step, [x.clone() for x in w]))
        if step == steps:
            break
        x, y = task.batch(batch, generator, dtype=dtype)
        grads, loss = gradients(w, x, y, task.f)
        if len(levels):
            recent = [*recent, loss][-smooth:]
            level = torch.stack(recent).mean(0)
            below = (level[:, None] < levels).numpy() & (len(recent) == smooth)
            fresh = below & np.isnan(escape[alive.numpy()])
            if fresh.any():
                rows, columns = np.nonzero(fresh)
                escape[alive.numpy()[rows], columns] = step
                done = torch.from_numpy(np.isfinite(escape[alive.numpy()]).all(1))
                if bool(done.any()) and not snapshots:
                    for f_, x_ in zip(final, w):
                        f_[alive[done]] = x_[done]
                    alive, w = alive[~done], [x_[~done] for x_ in w]
                    grads, recent = [g[~done] for g in grads], [r[~done] for r in recent]
                    if progress is not None:
                        progress(copies - len(alive), copies)
                    if len(alive) == 0:
                        break
        for x_, g, eta in zip(w, grads, rate):
            x_.sub_(g, alpha=eta)
    for f_, x_ in zip(final, w):
        f_[alive] = x_
    return Descent(thresholds=tuple(thresholds), escape=escape, steps=step, weights=final, snapshots=tuple(kept))


@dataclass(frozen=True, kw_only=True)
class FlowRun(Result):
    """Gradient flow of full networks. ``escape`` (copies, thresholds) in flow time s, NaN if never."""

    thresholds: tuple[float, ...]
    escape: np.ndarray
    status: tuple[str, ...]
    paths: Paths
    shapes: tuple[tuple[int, int], ...]

    def weights(self, step: int = -1) -> Stack:
        """Weights of all copies at a stored step."""
        return unflatten(self.paths.x[step], self.shapes)


def flow(
    weights: Stack,
    task: Teacher,
    sample: Sample,
    *,
    rates: Sequence[float] | None = None,
    thresholds: Sequence[float] = (0.02,),
    s_max: float = float("inf"),
    rtol: float = 1e-5,
    keep: bool = False,
    events: Callable[[Stack], Tensor] | None = None,
    max_steps: int = 5_000,
    progress: Progress | None = None,
) -> FlowRun:
    """Integrate the gradient flow of every copy with its own adaptive step, until its loss is below every threshold.

    The number of gradient evaluations is 50 to 500 whatever the length of the plateau. ``sample`` stands for the
    population (:func:`netvitals.saddle.antithetic_sample`); ``events`` may add margins (copies, k) of the weights that
    also have to rise through 0.
    """
    shapes = tuple((w.shape[1], w.shape[2]) for w in weights)
    x0 = flatten([w.double() for w in weights])
    y = task.target(sample.x)
    rate = list(rates) if rates is not None else [1.0] * len(weights)
    levels = torch.tensor(list(thresholds), dtype=torch.float64)

    def field(x: Tensor, rows: Tensor) -> Tensor:
        grads, _ = gradients(unflatten(x, shapes), sample.x, y, task.f, sample.weight)
        return flatten([-r * g for r, g in zip(rate, grads)])

    def margins(x: Tensor, rows: Tensor) -> Tensor:
        w = unflatten(x, shapes)
        loss = losses(w, sample.x, y, task.f, sample.weight)
        below = torch.log(levels) - torch.log(loss)[:, None]
        return below if events is None else torch.cat([below, events(w)], 1)

    smallest = min(float(w.abs().mean()) for w in weights)
    with torch.no_grad():
        paths = integrate(
            field,
            x0,
            events=margins if len(levels) or events else None,
            t_max=s_max,
            rtol=rtol,
            atol=1e-2 * rtol * smallest,
            method="rk45",
            keep=keep,
            max_steps=max_steps,
            stall=1e-6,
            progress=progress,
        )
    return FlowRun(
        thresholds=tuple(thresholds), escape=paths.event_t.numpy(), status=paths.status, paths=paths, shapes=shapes
    )


def flatten(weights: Stack) -> Tensor:
    """All weights of a copy in one row."""
    return torch.cat([w.flatten(1) for w in weights], 1)


def unflatten(x: Tensor, shapes: Sequence[tuple[int, int]]) -> Stack:
    """Undo :func:`flatten`."""
    pieces = torch.split(x, [a * b for a, b in shapes], dim=1)
    return [p.reshape(-1, a, b) for p, (a, b) in zip(pieces, shapes)]
