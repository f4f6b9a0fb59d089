"""One checkpoint, everything at once: every vital sign, and the curvature between layers, on one batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from netvitals._help import hint
from netvitals.capture import (
    ArrayMeasurement,
    LossFn,
    Measurement,
    Mode,
    Result,
    Site,
    Task,
    Vital,
    check_finite,
    inputs_of,
    likelihood_of,
    mapped,
    observe,
    task_of,
    tensors,
    uncompiled,
    undisturbed,
)

if TYPE_CHECKING:
    from netvitals.curvature import InterlayerCurvature
    from netvitals.findings import Findings
    from netvitals.saddle import EscapeForecast
    from netvitals.singular import DeadDirections

CURVATURE_TIMED = 200_000  # parameters from which a product is timed first, to keep to the seconds that are allowed
CURVATURE_EXAMPLES = 64  # examples of the batch behind the curvature
CURVATURE_PROBES = 10  # products spent on each node
CURVATURE_METRICS = ("resonance", "gn_gap", "stable_rank")


@dataclass(frozen=True, kw_only=True, repr=False)
class Checkup(Result):
    """The result of a checkup: all vital signs of a model on one batch, with findings.

    Returned by :func:`checkup`.

    Attributes:
        model: class name of the model.
        loss: the loss of the batch, as the model stands.
        measurements: every number that was measured, with its site and metric.
        arrays: measurements that are arrays, such as histograms and spectra.
        sites: the places that were measured.
        meta: what a diagnosis needs besides numbers: roles, shapes, activations, versions.
        skipped: place that could not be measured → reason.
        curvature: the Hessian between layers; None where it was not asked for or would take too long.
        curvature_note: why there is none, or what it rests on.
        singular: dead directions, if they were asked for.
        plateau: when the loss leaves its plateau, or why nobody can tell; None without an optimizer.
    """

    model: str
    loss: float
    measurements: tuple[Measurement, ...]
    arrays: tuple[ArrayMeasurement, ...]
    sites: tuple[Site, ...]
    meta: Mapping[str, Any]
    skipped: Mapping[str, str] = field(default_factory=dict)
    curvature: InterlayerCurvature | None = None
    curvature_note: str = ""
    singular: DeadDirections | None = None
    plateau: EscapeForecast | None = None

    def findings(self) -> Findings:
        """Return the findings of this checkup: problems that the measurements show, with advice."""
        return self._found

    @cached_property
    def _found(self) -> Findings:
        from netvitals.findings import diagnose

        return diagnose(self)

    def to_html(self, path: str | os.PathLike[str]) -> os.PathLike[str]:
        """Write the whole result as one HTML page that opens offline, and return its path.

        Args:
            path: the HTML file; a folder gets ``report.html``.
        """
        from netvitals.report import write

        return write(self, path)

    def __repr__(self) -> str:
        return (
            f"Checkup({self.model}, loss {self.loss:.6g}, {len(self.measurements)} numbers at {len(self.sites)} sites)"
        )

    def __str__(self) -> str:
        kinds: dict[str, int] = {}
        for site in self.sites:
            kinds[site.kind] = kinds.get(site.kind, 0) + 1
        lines = [
            f"Checkup of {self.model}: loss {self.loss:.6g}, {len(self.measurements)} measurements at "
            f"{len(self.sites)} sites ({', '.join(f'{n} {kind}' for kind, n in kinds.items())})"
        ]
        lines.append(f"  curvature: {self.curvature_note}")
        lines.append(f"  plateau: {self.plateau or 'not asked for, give optimizer= or a learning rate'}")
        if self.singular is not None:
            lines += [f"  dead directions: {line}" for line in str(self.singular).splitlines()]
        lines.append(str(self.findings()))
        return "\n".join(lines)


@undisturbed
def checkup(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "train",
    vitals: Iterable[Vital | str] | None = None,
    curvature: bool = True,
    curvature_seconds: float = 60.0,
    singular: bool = False,
    optimizer: torch.optim.Optimizer | float | None = None,
    progress: Callable[[int, int], None] | None = None,
    forward: Callable[[nn.Module, Any], Any] | None = None,
) -> Checkup:
    """Measure every vital sign of a model on one batch, without changing the model.

    Args:
        model: the model as it stands.
        loss_fn: a function of (output, target) that gives one number, its name, or None if the model's output contains
            its own loss.
        batch: one batch as a data loader yields it: ``(x, y)``, several inputs and a target, a dict.
        mode: ``"train"``: BatchNorm uses the statistics of the batch, dropout modules are off; ``"eval"``; ``"as_is"``.
        vitals: vital signs, or their names; all that are on by default if left out, ``"default"`` among names.
        curvature: also the curvature between layers.
        curvature_seconds: approximate time limit in seconds; a large model is measured on fewer examples and with fewer
            probes then, and ``curvature_note`` says what was left out.
        singular: also the dead directions that need no rate: norm kernels, the stream's floor, V–O, redundant units.
        optimizer: what will train the model, or the learning rate of plain gradient descent: with it the end of the
            plateau is forecast that a network of small layers begins with (:func:`netvitals.saddle.plateau`).
        progress: called with (products done, products planned) while curvature is measured.
        forward: how to run the model on a batch of any other kind, ``forward(model, batch)``; ``loss_fn`` is a function
            of (output, batch) then, and with None what ``forward`` returns is the loss or holds it.

    Returns:
        Readings, findings and, where asked for, curvature and dead directions.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
    >>> found = checkup(net, nn.MSELoss(), (torch.ones(16, 4), torch.zeros(16, 1)), vitals=["gates"], curvature=False)
    >>> [site.name for site in found.sites if site.kind == "activation"]
    ['1']
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"checkup needs a torch.nn.Module, got a {type(model).__name__}")
    from netvitals.vitals import choose

    task = task_of(model, loss_fn, batch, forward)
    check_finite((task.args, dict(task.kwargs)), "the input of the batch")
    check_finite(task.targets, "the target of the batch")
    _check_batch_size(model, task, mode)
    signs = choose(vitals, training=False)
    seen = observe(model, loss_fn, batch, vitals=signs, mode=mode, forward=forward)
    if not any(site.kind == "activation" for site in seen.sites) and not seen.skipped:
        raise ValueError(
            f"no activation was found in {type(model).__name__}; an activation module of your own counts if it has "
            f"the attribute elementwise = True {hint('nothing-seen')}"
        )
    if seen.loss is None:
        raise TypeError(
            "no loss_fn was given, and the model's output contains no loss. Give loss_fn, or a batch with labels "
            f"from which the model computes its loss {hint('no-loss')}"
        )
    if not torch.isfinite(torch.tensor(seen.loss)):
        raise ValueError(
            f"the loss on this batch is {seen.loss}, but a checkup needs a finite loss. Check the parameters for NaN "
            f"or infinity {hint('not-finite')}"
        )
    loss = Measurement(0, "loss", "model", "loss", seen.loss)
    bare = uncompiled(model)
    asked = next((v for v in signs if v.name == "curvature"), None)  # then its measurements are there already
    if asked is not None:
        curved = Curved(asked.history[-1][1] if asked.history else None, "measured as a vital sign")
    else:
        curved = (
            _curvature(task, bare, batch, mode, progress, curvature_seconds)
            if curvature
            else Curved(note="not asked for")
        )
    if singular and forward is not None:
        raise ValueError(
            "singular=True runs the model on the batch directly, which does not work with forward=: leave out "
            "singular or forward"
        )
    dead = _dead_directions(bare, loss_fn, batch) if singular else None
    ahead = _plateau(bare, loss_fn, batch, mode, optimizer, forward)
    meta = {
        "model": type(bare).__name__,
        "parameters": sum(p.numel() for p in bare.parameters()),
        "architecture": str(bare)[:20_000],
        "kind": "checkup",
    }
    return Checkup(
        model=type(bare).__name__,
        loss=seen.loss,
        measurements=(
            loss,
            *seen.measurements,
            *curved.measurements,
            *(dead.measurements() if dead is not None else ()),
            *_dates(ahead),
        ),
        arrays=(*seen.arrays, *curved.arrays),
        sites=seen.sites,
        skipped={**seen.skipped} if ahead is None or ahead.known else {**seen.skipped, "plateau": ahead.reason},
        meta=meta,
        curvature=curved.result,
        curvature_note=curved.note,
        singular=dead,
        plateau=ahead,
    )


def _plateau(
    model: nn.Module, loss_fn: Any, batch: Any, mode: Mode, optimizer: Any, forward: Any
) -> EscapeForecast | None:
    """When the loss leaves its plateau under this optimizer, or why nobody can tell from one look."""
    from netvitals.saddle import LEAVES, escape_rollout, no_forecast

    if optimizer is None:
        return None
    refuse = lambda why: no_forecast(0, why, drop=LEAVES, level=0.8)
    if forward is not None:
        return refuse("it needs a batch that the model takes itself")
    try:
        return escape_rollout(model, loss_fn, batch, optimizer=optimizer, mode=mode)
    except Exception as error:  # a model that cannot be followed still has its vital signs
        return refuse(f"the look failed: {type(error).__name__}: {error}")


def _dates(ahead: EscapeForecast | None) -> tuple[Measurement, ...]:
    """A forecast as measurements of the vital sign ``plateau``."""
    if ahead is None or not ahead.known:
        return ()
    numbers = {"escape": ahead.step, "low": ahead.low, "high": ahead.high, "small_layers": float(ahead.r)}
    numbers |= {"drop": ahead.drop, "rest": ahead.rest, "coverage": ahead.level}
    return tuple(Measurement(0, "plateau", "model", metric, value) for metric, value in numbers.items())


def _dead_directions(model: nn.Module, loss_fn: Any, batch: Any) -> DeadDirections:
    from netvitals.singular import DeadDirections, measure

    targets = inputs_of(model, batch).targets
    for given in (loss_fn, None):  # a loss of the user's own is judged by its target: whole numbers are classes
        try:
            kind = likelihood_of(given, targets[0] if targets else None)
        except ValueError as error:
            why = str(error)
        else:
            return measure(model, kind, batch)
    return DeadDirections(skipped={"dead directions": why})


def _curvature(
    task: Task,
    model: nn.Module,
    batch: Any,
    mode: Mode,
    progress: Callable[[int, int], None] | None,
    seconds: float,
) -> Curved:
    """Curvature between the blocks of the model on the first examples of the batch, or why there is none."""
    from netvitals.curvature import between_layers

    if task.call is not None:
        return Curved(note="left out, it needs a batch that the model takes itself")
    have = task.examples
    first = lambda count: mapped(batch, lambda t: t[:count] if t.ndim and t.shape[0] == have else t)
    few, probes, why = min(have, CURVATURE_EXAMPLES), CURVATURE_PROBES, ""
    try:
        if sum(p.numel() for p in model.parameters() if p.requires_grad) > CURVATURE_TIMED:
            few, probes, why = _affordable(model, task.loss_fn, first, few, mode, seconds)
        if not few:
            return Curved(note=why)
        found = between_layers(model, task.loss_fn, first(few), mode=mode, probes=probes, progress=progress)
    except Exception as error:  # a model that cannot be differentiated twice still has its vital signs
        return Curved(note=f"could not be measured: {type(error).__name__}: {error}")
    measurements = tuple(
        Measurement(0, "curvature", node, metric, float(getattr(found, metric)[i, i]))
        for i, node in enumerate(found.nodes)
        for metric in CURVATURE_METRICS
    )
    arrays = tuple(
        ArrayMeasurement(0, "curvature", "model", metric, getattr(found, metric))
        for metric in (*CURVATURE_METRICS, "coupling")
    )
    note = f"{len(found.nodes)} nodes, {found.probes} probes each, {few} examples, "
    note += f"{found.cost:.0f} gradient-equivalents{why}"
    return Curved(found, note, measurements, arrays)


def _affordable(
    model: nn.Module, loss_fn: Any, first: Callable[[int], Any], few: int, mode: Mode, seconds: float
) -> tuple[int, int, str]:
    """Examples and probes that fit the time, by a timed product; and in words what was left out, or why all of it."""
    from netvitals.curvature import cost

    wanted, probes = few, CURVATURE_PROBES
    took = cost(model, loss_fn, first(few), mode=mode, probes=probes).seconds
    if took > seconds and few > 1:
        few = max(1, min(few - 1, int(few * seconds / took)))
        took = cost(model, loss_fn, first(few), mode=mode, probes=probes).seconds
    if took > seconds:
        probes = max(4, int(probes * seconds / took))
        took *= probes / CURVATURE_PROBES
    if took > 2 * seconds:
        return 0, 0, f"left out, even one example would take {took:.0f} s, and {seconds:g} s are allowed"
    left = [f"{few} of {wanted} examples"] * (few < wanted) + [f"{probes} of {CURVATURE_PROBES} probes"] * (
        probes < CURVATURE_PROBES
    )
    return few, probes, f"; {' and '.join(left)}, to keep to {seconds:g} s" if left else ""


class Curved(NamedTuple):
    """The part of a checkup that curvature gives."""

    result: InterlayerCurvature | None = None
    note: str = ""
    measurements: tuple[Measurement, ...] = ()
    arrays: tuple[ArrayMeasurement, ...] = ()


def _check_batch_size(model: nn.Module, task: Task, mode: Mode) -> None:
    first = next(tensors((task.args, dict(task.kwargs))), None)
    if first is None or first.ndim == 0:
        return
    if first.shape[0] == 0:
        raise ValueError(f"the batch is empty: give at least two examples {hint('batch-empty')}")
    counts = lambda m: isinstance(m, nn.BatchNorm1d) and (m.training if mode == "as_is" else mode == "train")
    flat = [n for n, m in model.named_modules() if counts(m)]
    if first.shape[0] == 1 and flat:
        raise ValueError(
            f"BatchNorm1d {flat[0]!r} cannot compute statistics of a batch of one example; give at least two "
            f"{hint('batch-empty')}"
        )
