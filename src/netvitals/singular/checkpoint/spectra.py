r"""Spectra of $G_\ell$ over checkpoints, and which of their ranks carries the predicted rate (dead-directions §5.1).

At every checkpoint both ends of each layer's spectrum are kept. A rank's eigenvalue is fitted as a power of t on one of
three axes: t as *given*, the *loss* axis $(L - L_0)^{1/2K}$, and the axis of *activations*
$\sigma_{\min}(X_\ell)^{1/k_\ell}$. Ranks at the rounding floor are left out; the one whose exponent is nearest to the
prediction is taken if it is near enough, and otherwise the layer is beyond the theorem's reach. An axis that does not
move shows no approach, and nothing is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.capture import (
    LossFn,
    Mode,
    Only,
    Result,
    Several,
    in_mode,
    inputs_of,
    one_screen,
    output_tensor,
    preserved,
    resolve_loss,
)
from netvitals.singular.laws.prediction import Rates, predict_rates
from netvitals.singular.moments.factors import lambda_min
from netvitals.singular.moments.kronecker import KFAC, kfac
from netvitals.singular.orders.rates import RateFit, rate_fit
from netvitals.singular.orders.spectrum import operational_selection

AXES = ("given", "loss", "activations")
_SPAN = 0.15  # decades that t must move for an approach
_WINDOW = 5  # checkpoints behind a local slope


@dataclass(frozen=True, kw_only=True)
class RankSelection(Result):
    """What the spectrum of one layer says of its predicted rate.

    Part of what :meth:`SpectraHistory.select` returns.

    Attributes:
        layer: name of the layer.
        predicted: exponent.
        rank: which eigenvalue, 0 the smallest; None where none fits.
        fit: of that rank; None where there is none.
        floored: ranks that were left out as rounding.
        note: why, in words.
    """

    layer: str
    predicted: float
    rank: int | None
    fit: RateFit | None
    floored: int
    note: str

    @property
    def difference(self) -> float:
        """Observed minus predicted; NaN where no rank was taken."""
        return math.nan if self.fit is None else self.fit.slope - self.predicted

    @property
    def error(self) -> float:
        """Standard error of the slope; NaN where no rank was taken."""
        return math.nan if self.fit is None else self.fit.stderr

    def row(self) -> dict[str, Any]:
        """Names and numbers, for a table."""
        names = ("layer", "predicted", "rank", "difference", "error", "floored", "note")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        off = f", {self.difference:+.3f} ± {self.error:.3f}" if self.fit is not None else ""
        return f"{self.layer}: t^{self.predicted:g} predicted; {self.note}{off}"


@dataclass(frozen=True, kw_only=True)
class SpectraHistory(Result):
    """Both ends of the spectrum of G, by layer and checkpoint.

    Returned by :func:`spectra_history`.

    Attributes:
        steps: of the checkpoints, rising.
        values: eigenvalues by layer, (checkpoints, kept), rising at the first checkpoint.
        ranks: which eigenvalue each column is, by layer; 0 is the smallest.
        axes: t at every checkpoint, by name of the axis.
        predicted: what the model's anatomy predicts; None where it has no law.
        skipped: layer or axis → why it is not here.
    """

    steps: tuple[int, ...]
    values: dict[str, np.ndarray]
    ranks: dict[str, tuple[int, ...]]
    axes: dict[str, np.ndarray]
    predicted: Rates | None
    skipped: dict[str, str] = field(default_factory=dict)

    def fits(self, layer: str, axis: str) -> tuple[RateFit, ...]:
        """The exponent of every kept rank of a layer.

        Args:
            layer: name of the layer.
            axis: "given", "loss" or "activations".

        Returns:
            One fit a rank.
        """
        t, table = self._on(axis), self._of(layer)
        order = np.argsort(t)
        return tuple(rate_fit(t[order], np.maximum(column[order], 0), floor=0.0) for column in table.T)

    def local(self, layer: str, rank: int, axis: str, window: int = _WINDOW) -> list[dict[str, float]]:
        """Observed minus predicted at every checkpoint: the slope over the checkpoints around it.

        Args:
            layer: name of the layer.
            rank: which eigenvalue.
            axis: "given", "loss" or "activations".
            window: checkpoints behind each slope, three or more.

        Returns:
            Step, slope, its standard error and the difference, one dict a checkpoint that has a window.
        """
        t, table = self._on(axis), self._of(layer)
        if rank not in self.ranks[layer]:
            raise ValueError(
                f"eigenvalue number {rank} of {layer} was not recorded; there are {list(self.ranks[layer])}"
            )
        if window < 3:
            raise ValueError(f"a slope needs at least three checkpoints, got window={window}")
        column, half, rows = table[:, self.ranks[layer].index(rank)], window // 2, []
        predicted = None if self.predicted is None else self.predicted.G.get(layer)
        for i in range(half, len(t) - half):
            part = slice(i - half, i + half + 1)
            order = np.argsort(t[part])
            fit = rate_fit(t[part][order], np.maximum(column[part][order], 0), floor=0.0)
            off = math.nan if predicted is None else fit.slope - predicted
            rows.append({"step": self.steps[i], "slope": fit.slope, "error": fit.stderr, "difference": off})
        return rows

    def select(self, axis: str = "activations", tolerance: float = 0.25) -> Several[RankSelection]:
        """For every layer with a prediction, the rank that carries it, or why none does.

        Args:
            axis: "given", "loss" or "activations".
            tolerance: how far an exponent may be off.

        Returns:
            One selection a layer; layers without a law are in ``skipped``.
        """
        t = self._on(axis)
        if self.predicted is None:
            raise ValueError(f"there is no prediction for this model: {self.skipped.get('prediction', '')}")
        skipped = {
            n: "the decay rate of its smallest eigenvalue cannot be predicted"
            for n in self.values
            if self.predicted.G.get(n) is None
        }
        moving = t[t > 0]
        span = math.log10(moving.max() / moving.min()) if len(moving) else 0.0
        found = []
        for layer, table in self.values.items():
            if layer in skipped:
                continue
            predicted = self.predicted.G[layer]
            assert predicted is not None
            magnitudes = table.mean(0)
            floored = int((magnitudes <= 10 * np.finfo(float).eps * table.max()).sum())
            if span < _SPAN:
                note = f"no approach: t moves by {span:.2f} decades, and a rate needs {_SPAN}"
                place = None
            else:
                fits = self.fits(layer, axis)
                place, note = operational_selection(
                    [f.slope for f in fits], magnitudes.tolist(), predicted, tolerance=tolerance
                )
            rank = None if place is None else self.ranks[layer][place]
            fit = None if place is None else fits[place]
            found.append(
                RankSelection(layer=layer, predicted=predicted, rank=rank, fit=fit, floored=floored, note=note)
            )
        return Several(tuple(found), skipped)

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer, rank and checkpoint."""
        return [
            {"step": step, "layer": layer, "rank": rank, "value": float(self.values[layer][i, j])}
            for layer, ranks in self.ranks.items()
            for j, rank in enumerate(ranks)
            for i, step in enumerate(self.steps)
        ]

    def _on(self, axis: str) -> np.ndarray:
        if axis not in self.axes:
            why = self.skipped.get(f"axis {axis}", f"the axes are {', '.join(AXES)}")
            raise ValueError(f"the axis {axis!r} is not available: {why}; choose another axis")
        return self.axes[axis]

    def _of(self, layer: str) -> np.ndarray:
        if layer not in self.values:
            raise KeyError(f"there is no layer {layer!r}; the history has {', '.join(self.values)}")
        return self.values[layer]

    def __str__(self) -> str:
        head = f"{len(self.steps)} checkpoints, steps {self.steps[0]} to {self.steps[-1]}; axes {', '.join(self.axes)}"
        ends = [f"  {n:20s} λ₀ {v[0, 0]:.2e} → {v[-1, 0]:.2e}" for n, v in self.values.items()]
        return one_screen([head, *ends, *(f"  not here: {n}, {why}" for n, why in self.skipped.items())])


def spectra_history(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    checkpoints: Mapping[int, Mapping[str, Tensor]],
    mode: Mode = "eval",
    only: Only = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    fisher: str = "expected",
    keep: int = 16,
    times: Mapping[int, float] | None = None,
    least_loss: float = 0.0,
    follow: bool = False,
) -> SpectraHistory:
    """Record the largest and smallest eigenvalues of every layer's gradient covariance G at every checkpoint.

    Args:
        model: a model into which each checkpoint is loaded in turn.
        loss_fn: "mse", "ce", or torch's losses of that kind.
        batch: one batch as a data loader yields it; without a target there is no loss axis.
        checkpoints: step → state dict of ``model``.
        mode: "eval", "train" (batch statistics, dropout modules off) or "as_is".
        only: names or patterns of layers, or a function of a name.
        seed: seed of the labels drawn for "monte-carlo".
        progress: called with (checkpoints done, all).
        fisher: "expected", "monte-carlo" or "empirical"; rates are laws of the expected one.
        keep: eigenvalues of each end.
        times: step → t, where the path is known: the axis "given".
        least_loss: the loss at the singularity, such as the noise of the targets.
        follow: match eigenvectors from checkpoint to checkpoint, so that a crossing does not swap ranks.

    Returns:
        The history; its ``select`` finds the rank that carries the predicted rate.

    >>> net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)).double()
    >>> at = lambda t: dict.fromkeys(net.state_dict(), torch.diag(torch.tensor([1.0, t])))
    >>> kept = {i: at(0.5 ** i) for i in range(6)}
    >>> found = spectra_history(net, "mse", torch.eye(2).double(), checkpoints=kept)
    >>> [(s.layer, s.rank, round(s.difference, 6) + 0) for s in found.select("activations")]
    [('0', 0, 0.0), ('1', 0, 0.0)]
    """
    if not checkpoints or keep < 1:
        raise ValueError(
            "checkpoints= must be a mapping from step to state dict with at least one entry, and keep= must be at "
            "least 1"
        )
    steps = sorted(checkpoints)
    if times is not None and (missing := [s for s in steps if s not in times]):
        raise ValueError(f"times= has no entry for step {missing[0]}: give the time t of every checkpoint")
    recorder = _Recorder(keep, follow)
    losses: list[float] = []
    skipped: dict[str, str] = {}
    measure = resolve_loss(loss_fn)
    task = inputs_of(model, batch)
    with preserved(model, parameters=True), in_mode(model, mode):
        for i, step in enumerate(steps):
            try:
                model.load_state_dict(checkpoints[step])
            except RuntimeError as error:
                said = str(error).splitlines()[-1].strip()
                raise ValueError(
                    f"the checkpoint of step {step} does not fit {type(model).__name__}: {said}"
                ) from error
            recorder.add(kfac(model, loss_fn, batch, mode=mode, only=only, seed=seed, fisher=fisher))
            if task.targets and measure is not None:
                with torch.no_grad():
                    losses.append(float(measure(output_tensor(task.forward(), model), *task.targets)))
            if progress is not None:
                progress(i + 1, len(steps))
        predicted = _predicted(model, task.inputs, skipped)
    axes = recorder.axes(predicted, losses, least_loss, skipped)
    if times is not None:
        axes["given"] = np.array([times[s] for s in steps], float)
    else:
        skipped["axis given"] = "times= was not given"
    return SpectraHistory(
        steps=tuple(steps),
        values={n: np.stack(v) for n, v in recorder.values.items()},
        ranks=recorder.ranks,
        axes=axes,
        predicted=predicted,
        skipped={**recorder.skipped, **skipped},
    )


def _predicted(model: nn.Module, inputs: Any, skipped: dict[str, str]) -> Rates | None:
    try:
        return predict_rates(model, inputs)
    except ValueError as error:
        skipped["prediction"] = str(error)
        return None


class _Recorder:
    """What is kept of the factors of each checkpoint."""

    def __init__(self, keep: int, follow: bool) -> None:
        self.keep, self.follow = keep, follow
        self.values: dict[str, list[np.ndarray]] = {}
        self.ranks: dict[str, tuple[int, ...]] = {}
        self.floors: dict[str, list[float]] = {}  # σ_min of each layer's input
        self.skipped: dict[str, str] = {}
        self._vectors: dict[str, Tensor] = {}

    def add(self, factors: KFAC) -> None:
        self.skipped |= factors.skipped
        for name, factor in factors.layers.items():
            size = len(factor.G)
            ranks = tuple(sorted({*range(min(self.keep, size)), *range(max(size - self.keep, 0), size)}))
            values, vectors = torch.linalg.eigh(factor.G)
            values, vectors = values[list(ranks)], vectors[:, list(ranks)]
            if self.follow and name in self._vectors:
                from scipy.optimize import linear_sum_assignment

                _, order = linear_sum_assignment(-(self._vectors[name].T @ vectors).abs().numpy())
                values, vectors = values[order], vectors[:, order]
            self._vectors[name] = vectors
            self.ranks[name] = ranks
            self.values.setdefault(name, []).append(values.numpy())
            low, _ = lambda_min(factor.A, factor.A_spectrum, factor.floor)
            self.floors.setdefault(name, []).append(math.sqrt(low))

    def axes(
        self, predicted: Rates | None, losses: list[float], least: float, skipped: dict[str, str]
    ) -> dict[str, np.ndarray]:
        """The axes that this model and batch have."""
        out: dict[str, np.ndarray] = {}
        amplitude = None if predicted is None else predicted.stream[-1]
        if not losses:
            skipped["axis loss"] = "the batch has no target"
        elif not amplitude:
            skipped["axis loss"] = "the order of the loss is not known"
        else:
            out["loss"] = np.maximum(np.array(losses) - least, 0.0) ** (1 / (2 * amplitude))
        orders = {} if predicted is None else {n: a for n, a in predicted.A.items() if a and n in self.floors}
        if orders:
            deepest = max(orders, key=lambda n: orders[n])
            out["activations"] = np.array(self.floors[deepest]) ** (2 / orders[deepest])
        else:
            skipped["axis activations"] = "no layer's input has a rate"
        return out
