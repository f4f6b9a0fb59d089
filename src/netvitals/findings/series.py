"""Measurements from wherever they are (a run on disk, a checkup, a list, a frame) in one shape that rules can ask."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from netvitals.capture import ArrayMeasurement, Measurement, plain
from netvitals.runs import Evidence, Run

WINDOW = 0.1  # "start" and "end" of a series are its first and last tenth, so that one odd step decides nothing
COUNTED = ("gates", "sparsity", "preactivations")  # vital signs whose shares count entries
HIDDEN = ("", "hidden activation")  # roles of sites that are judged as hidden units; older runs tell none
POOLED = "model"  # sites of this name, or below it, hold numbers of the whole model


@dataclass(frozen=True)
class Series:
    """One metric at one site over the steps at which it was measured.

    Part of :class:`Measurements`.

    Attributes:
        vital: name of the vital sign.
        site: where it was measured; the whole model has a name of its own (:func:`is_pooled`).
        metric: name of the number.
        steps: measured steps, rising.
        values: the numbers at these steps; NaN where one could not be measured.
    """

    vital: str
    site: str
    metric: str
    steps: np.ndarray
    values: np.ndarray

    @cached_property
    def finite(self) -> np.ndarray:
        return self.values[np.isfinite(self.values)]

    @property
    def last(self) -> float:
        return float(self.values[-1])

    @cached_property
    def start(self) -> float:
        """Median of the first tenth of the finite values."""
        return _typical(self.finite[: self._window])

    @cached_property
    def end(self) -> float:
        """Median of the last tenth of the finite values."""
        return _typical(self.finite[-self._window :])

    @property
    def _window(self) -> int:
        return max(1, round(WINDOW * len(self.finite)))

    def evidence(
        self, *, change: bool = False, value: float | None = None, step: int | None = None, metric: str = ""
    ) -> Evidence:
        """This series as the ground of a finding: its end, and with ``change`` its start as well; ``value``, ``step``
        and ``metric`` replace what it says of itself.

        Args:
            change: whether change is the point.
            value: the number to name instead of the end.
            step: where that number is; by default the last finite one.
            metric: what the number is, where it is not the metric itself.

        Returns:
            The evidence.
        """
        good = self.steps[np.isfinite(self.values)]
        return Evidence(
            vital=self.vital,
            site=self.site,
            metric=metric or self.metric,
            step=int((good if len(good) else self.steps)[-1]) if step is None else step,
            value=self.end if value is None else value,
            before=self.start if change else None,
        )


class Totals(NamedTuple):
    """What thinned curves cannot tell.

    Part of :class:`Measurements`.

    Attributes:
        measured_steps: those with a measurement besides the loss.
        broken_losses: losses that are NaN or infinite.
        first_loss: the loss that was measured first.
        lowest_loss: the lowest finite one.
    """

    measured_steps: int
    broken_losses: int
    first_loss: float
    lowest_loss: float


@dataclass
class Measurements:
    """All series of a source, with sites in the order of the model's depth.

    Returned by :func:`table`.

    Attributes:
        series: a curve by (vital, site, metric).
        arrays: the latest of each series.
        meta: the metadata of the run: sites, roles, shapes, optimizers.
        totals: counts of all that was measured, where the curves are thinned.
    """

    series: dict[tuple[str, str, str], Series]
    arrays: dict[tuple[str, str, str], ArrayMeasurement] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    totals: Totals | None = None

    def get(self, vital: str, site: str, metric: str) -> Series | None:
        """The curve of ``metric`` of ``vital`` at ``site``; None if there is none."""
        return self.series.get((vital, site, metric))

    def at(self, vital: str, metric: str, *, pooled: bool = False, finite: bool = True) -> list[Series]:
        """``metric`` of ``vital`` at every site, in order of depth; the rows of the whole model instead with
        ``pooled``; also series without any finite number with ``finite=False``.
        """
        found = self.by_metric.get((vital, metric), ())
        return [s for s in found if is_pooled(s.site) == pooled and (len(s.finite) or not finite)]

    @cached_property
    def by_metric(self) -> dict[tuple[str, str], list[Series]]:
        """The curves by (vital, metric), in order of depth."""
        out: dict[tuple[str, str], list[Series]] = {}
        for (vital, _, metric), s in self.series.items():
            out.setdefault((vital, metric), []).append(s)
        return out

    def array(self, vital: str, site: str, metric: str) -> np.ndarray | None:
        """The latest array ``metric`` of ``vital`` at ``site``; None if there is none."""
        found = self.arrays.get((vital, site, metric))
        return None if found is None else found.value

    def op(self, site: str) -> str:
        """The operation at ``site`` (``relu``, ``GELU``), where the metadata of the run tells it."""
        return self._ops.get(site, "")

    @cached_property
    def _ops(self) -> dict[str, str]:
        sites = reversed(list(self.meta.get("sites", ())))  # the first of a name counts
        return {str(s.get("name")): str(s.get("op", "")) for s in sites}

    @cached_property
    def roles(self) -> dict[str, str]:
        """What each site is there for, where the run's metadata tells it."""
        return {str(s.get("name")): str(s.get("role", "")) for s in self.meta.get("sites", ())}

    @cached_property
    def norms(self) -> frozenset[str]:
        """Names of the sites and modules that are norms, where the run's metadata tells it."""
        found = [s for s in self.meta.get("sites", ()) if s.get("kind") == "norm"]
        return frozenset(str(s.get(key)) for s in found for key in ("name", "module"))

    def units(self, vital: str, metric: str) -> list[Series]:
        """``metric`` of ``vital`` at the hidden units, in order of depth: a sigmoid at the output, a soft-cap, a router
        or an attention weight is shut for good reasons, and nothing behind it starves.
        """
        return [s for s in self.at(vital, metric) if self.roles.get(s.site, "") in HIDDEN]

    @property
    def optimizers(self) -> tuple[str, ...]:
        """Names of the optimizers in use, where the metadata tells them."""
        given = self.meta.get("optimizer") or ()
        return tuple(str(o.get("name", "")) for o in given if isinstance(o, Mapping))

    @property
    def adaptive(self) -> bool:
        """Whether updates are normalised by the size of gradients, as Adam and its kin do."""
        return any(word in name.lower() for name in self.optimizers for word in ("adam", "lion", "muon", "rmsprop"))

    def shape(self, parameter: str) -> tuple[int, ...]:
        """The shape of a ``parameter`` with two or more dimensions, where the metadata tells it."""
        return tuple(int(n) for n in (self.meta.get("shapes") or {}).get(parameter, ()))

    @cached_property
    def _matrices(self) -> frozenset[str]:
        return frozenset(site for vital, site, metric in self.series if (vital, metric) == ("gradients", "grad_rms"))

    def is_matrix(self, parameter: str) -> bool:
        """Whether a ``parameter`` has two or more dimensions: a bias or a norm's shift may begin at zero, which makes
        ratios meaningless. Runs that do not tell it go by the name.
        """
        return parameter in self._matrices if self._matrices else parameter.split(".")[-1] == "weight"

    @cached_property
    def steps(self) -> list[int]:
        return _steps(self.series.values())

    def counted(self) -> Totals:
        """The totals; counted in the curves where these are whole."""
        if self.totals is not None:
            return self.totals
        loss = self.loss
        if loss is None or not len(loss.values):
            numbers = 0, math.nan, math.nan
        else:
            lowest = float(loss.finite.min()) if len(loss.finite) else math.nan
            numbers = len(loss.values) - len(loss.finite), float(loss.values[0]), lowest
        return Totals(len(_steps(s for s in self.series.values() if s.vital != "loss")), *numbers)

    @cached_property
    def loss(self) -> Series | None:
        given = self.by_metric.get(("loss", "loss")) or [s for s in self.series.values() if s.vital == "loss"]
        return given[0] if given else None


def table(source: Any) -> Measurements:
    """The measurements of anything that holds them, gathered into curves.

    Args:
        source: a Run, a Table, a polars frame in long form, measurements, or anything that carries ``.measurements``
        (and perhaps ``.arrays`` and ``.meta``), such as a checkup.

    Returns:
        A curve by (vital, site, metric), the last array of each, and the metadata; a Table is returned as it is.

    >>> from netvitals.capture import Measurement
    >>> curves = table([Measurement(step, "gates", "fc1", "density@0.01", 1.0 - 0.1 * step) for step in range(5)])
    >>> curve = curves.get("gates", "fc1", "density@0.01")
    >>> curve.steps.tolist(), round(curve.last, 2)
    ([0, 1, 2, 3, 4], 0.6)
    """
    if isinstance(source, Measurements):
        return source
    if isinstance(source, Run):
        columns = {(vital, site, metric): (steps, values) for vital, site, metric, steps, values in source.by_series()}
        meta = {**source.meta, "forecasts": source.forecasts()}
        return measurements_by_run(columns, source.arrays(last=True), meta)
    if hasattr(source, "iter_rows") and hasattr(source, "columns"):
        missing = {"step", "vital", "site", "metric", "value"} - set(source.columns)
        if missing:
            raise ValueError(
                "a data frame of measurements needs the columns step, vital, site, metric and value; this one has no "
                f"{', '.join(sorted(missing))}"
            )
        return _gathered(source.select("step", "vital", "site", "metric", "value").iter_rows(), (), {})
    given = getattr(source, "measurements", None)
    if given is not None:
        given = given() if callable(given) else given
        arrays = getattr(source, "arrays", ())
        return table_of(given, arrays() if callable(arrays) else arrays, _meta(source))
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | Mapping):
        return table_of(source)
    raise TypeError(
        "findings can be computed from a run, a checkup, a data frame or a list of measurements, got "
        f"{type(source).__name__}; open a run with netvitals.open_run(path)"
    )


def table_of(
    measurements: Iterable[Any], arrays: Iterable[ArrayMeasurement] = (), meta: Mapping[str, Any] | None = None
) -> Measurements:
    """A table from ``measurements`` in memory, with ``arrays`` and ``meta``; array measurements among them are told
    apart."""
    scalars: list[Measurement] = []
    kept = list(arrays)
    for reading in measurements:
        if isinstance(reading, Measurement):
            scalars.append(reading)
        elif isinstance(reading, ArrayMeasurement):
            kept.append(reading)
        else:
            raise TypeError(f"expected Measurement or ArrayMeasurement, got {type(reading).__name__}: {reading!r:.60}")
    return _gathered(((r.step, r.vital, r.site, r.metric, r.value) for r in scalars), kept, meta or {})


def _meta(source: Any) -> dict[str, Any]:
    """Metadata of something in memory; sites and places that were not seen may be attributes of their own."""
    meta = dict(getattr(source, "meta", None) or {})
    places = getattr(source, "sites", None)
    if places and "sites" not in meta:
        meta["sites"] = plain(list(places), odd=float)
    skipped = getattr(source, "skipped", None)
    if isinstance(skipped, Mapping) and skipped and "skipped" not in meta:
        meta["skipped"] = dict(skipped)
    made = getattr(source, "forecasts", None)
    if isinstance(made, list) and "forecasts" not in meta:
        meta["forecasts"] = [f.to_dict() for f in made]
    specs = getattr(source, "activations", None)
    if isinstance(specs, Mapping) and "activations" not in meta:
        meta["activations"] = dict(specs)
    return meta


def is_pooled(site: str) -> bool:
    """Whether a site's numbers are those of the whole model.

    Args:
        site: the name of a site in a measurement.

    Returns:
        True for numbers of the whole model, False for those of one place.

    >>> is_pooled("model"), is_pooled("blocks.0.act")
    (True, False)
    """
    return site in ("", POOLED) or site.startswith(f"{POOLED}/")


def _gathered(
    rows: Iterable[tuple[int, str, str, str, float]], arrays: Iterable[ArrayMeasurement], meta: Mapping[str, Any]
) -> Measurements:
    columns: dict[tuple[str, str, str], tuple[list[int], list[float]]] = {}
    for step, vital, site, metric, value in rows:
        steps, values = columns.setdefault((vital, site, metric), ([], []))
        steps.append(step)
        values.append(value)
    return measurements_by_run(columns, arrays, meta)


def measurements_by_run(
    columns: Mapping[tuple[str, str, str], tuple[Any, Any]],
    arrays: Iterable[ArrayMeasurement],
    meta: Mapping[str, Any],
    totals: Totals | None = None,
) -> Measurements:
    """A table of ``columns`` (steps, values) by (vital, site, metric), with ``meta``; of several ``arrays`` of a series
    the latest counts. ``totals`` are those of all measurements, where the columns are thinned.
    """
    latest: dict[tuple[str, str, str], ArrayMeasurement] = {}
    for a in arrays:
        key = (a.vital, a.site, a.metric)
        if key not in latest or a.step >= latest[key].step:
            latest[key] = a
    depth = _depth(meta, columns)
    series = {key: _series(key, *columns[key]) for key in sorted(columns, key=lambda key: depth[key[1]])}
    return _without_broken(Measurements(series, latest, meta, totals))


def _without_broken(table: Measurements) -> Measurements:
    """Where the inputs of an activation are NaN or infinite, a share counted there means nothing: a NaN is neither an
    open gate nor a zero, and would be told as a dead unit."""
    broken = {
        s.site: set(s.steps[~np.isfinite(s.values)].tolist())
        for s in table.series.values()
        if (s.vital, s.metric) == ("preactivations", "mean")
    }
    for key, s in table.series.items():
        steps = broken.get(s.site)
        if steps and s.vital in COUNTED:
            void = np.isin(s.steps, list(steps))
            table.series[key] = Series(*key, s.steps, np.where(void, np.nan, s.values))
    kept = {key: a for key, a in table.arrays.items() if a.vital not in COUNTED or a.step not in broken.get(a.site, ())}
    return Measurements(table.series, kept, table.meta, table.totals)


def _series(key: tuple[str, str, str], steps: Any, values: Any) -> Series:
    at, numbers = np.asarray(steps), np.asarray(values, dtype=np.float64)
    if len(at) > 1 and not (at[1:] >= at[:-1]).all():
        order = np.argsort(at, kind="stable")
        at, numbers = at[order], numbers[order]
    return Series(*key, at, numbers)


def _depth(meta: Mapping[str, Any], keys: Iterable[tuple[str, str, str]]) -> dict[str, tuple[int, int, int]]:
    """Order of sites: the input; then as the metadata lists them; parameters and pairs beside the module they belong
    to; what is not listed as it first appears; numbers of the whole model last."""
    place = {"input": -1}  # of a residual stream, which no module outputs
    for site in meta.get("sites", ()):
        for name in (str(site.get("name", "")), str(site.get("module", ""))):
            place.setdefault(name, len(place))
    depth: dict[str, tuple[int, int, int]] = {}
    for _, site, _ in keys:
        if site not in depth:
            owner = site.partition("→")[0]
            known = next((place[n] for n in (site, owner, owner.rpartition(".")[0]) if n and n in place), len(place))
            depth[site] = (int(is_pooled(site)), known, len(depth))
    return depth


def _steps(curves: Iterable[Series]) -> list[int]:
    parts = [c.steps for c in curves]
    return np.unique(np.concatenate(parts)).astype(int).tolist() if parts else []


def _typical(values: np.ndarray) -> float:
    if len(values) == 1:  # as in most series of a short run
        return float(values[0])
    return float(np.median(values)) if len(values) else float("nan")
