"""Reading a run, finished or not, also while somebody else writes it."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netvitals.runs.checked import ArrayHead, Batch, Tables, opened
from netvitals.runs.checksum import Summary
from netvitals.runs.finding import Finding
from netvitals.runs.lock import FileLock, this_machine
from netvitals.runs.store import run_file

if TYPE_CHECKING:
    import polars as pl

    from netvitals.capture import ArrayMeasurement

SILENT_S = 60.0  # a writer on another machine that says nothing for so long is taken for dead (it speaks every 10 s)

Choice = str | Sequence[str] | None


Judge = Callable[["Run"], Sequence[Finding]]


def open_run(path: str | os.PathLike[str], *, judge: Judge | None = None) -> Run:
    """Open a stored run for reading, from its folder or file.

    Args:
        path: the run's folder or file.
        judge: function that computes findings if none are stored; ``netvitals.open_run`` uses
            ``netvitals.findings.diagnose``.

    Returns:
        The run; every call reads the file again.

    >>> import tempfile
    >>> from netvitals.capture import Measurement
    >>> from netvitals.runs import RunWriter
    >>> folder = tempfile.mkdtemp() + "/first"
    >>> with RunWriter(folder, meta={"model": "MLP"}) as writer:
    ...     writer.write([Measurement(0, "loss", "", "loss", 2.5)])
    >>> run = open_run(folder)
    >>> run.meta["model"], run.series, run.summary.measurements
    ('MLP', [('loss', '', 'loss')], 1)
    """
    return Run(run_file(path), judge)


class Run:
    """A stored run. Every call reads the file again, so a run that is still being written shows its latest state.

    Returned by :func:`open_run`.

    Args:
        file: the run's SQLite file.
        judge: function that computes findings if none are stored with the run.
    """

    def __init__(self, file: Path, judge: Judge | None = None) -> None:
        with opened(file):
            pass
        self.path = file
        self._judge = judge
        self._series: tuple[Any, list[tuple[int, str, str, str]]] | None = None  # of the last reading

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.status})"

    def _repr_html_(self) -> str:
        """In a notebook: how the run stands, with its loss as a small curve."""
        from html import escape

        summary = self.summary
        line = summary.shown.get("loss") or {}
        means = [m for m in line.get("means", ()) if m is not None]
        picture = ""
        if len(means) > 1:
            low, span = min(means), (max(means) - min(means)) or 1.0
            path = "L".join(
                f"{160 * i / (len(means) - 1):.1f} {30 - 28 * (m - low) / span:.1f}" for i, m in enumerate(means)
            )
            picture = (
                '<svg width="160" height="32" role="img" aria-label="loss"><path fill="none" stroke="currentColor" '
                f'stroke-width="1.5" d="M{path}"/></svg> loss {line.get("last")}'
            )
        facts = f"{status_of(summary, self.path)}, step {summary.last_step:,}, {summary.measurements:,} measurements"
        return f"<div><b>{escape(self.name)}</b> ({escape(facts)})<br>{picture}</div>"

    @property
    def name(self) -> str:
        """The folder's name, or the file's when it is not called run.sqlite."""
        return self.path.parent.resolve().name if self.path.name == "run.sqlite" else self.path.stem

    @property
    def meta(self) -> dict[str, Any]:
        """All metadata: what the writer was told, versions, status, times."""
        with opened(self.path) as tables:
            found, shown = tables.meta(), tables.summary().shown
        found.setdefault("heartbeat", shown.get("heartbeat", 0.0))
        return found

    @property
    def summary(self) -> Summary:
        """How much there is, and what a list of runs shows of it; cheap, however long the run is."""
        with opened(self.path) as tables:
            return tables.summary()

    @property
    def status(self) -> str:
        """``running``, ``finished``, what :meth:`RunWriter.close` was given, or ``interrupted`` for a dead writer."""
        return status_of(self.summary, self.path)

    @property
    def steps(self) -> list[int]:
        """Every step that has a measurement, in order."""
        with opened(self.path) as tables:
            begins = _begins(tables)
            parts = [np.unique(batch.steps) for batch in _current(tables.batches(), begins)]
            parts.append(np.array([h.step for h in tables.array_heads() if _is_current(h, begins)], np.int64))
        return np.unique(np.concatenate(parts)).tolist()

    @property
    def series(self) -> list[tuple[str, str, str]]:
        """Every (vital, site, metric) of which there is a number."""
        with opened(self.path) as tables:
            names = tables.series()
            parts = [np.unique(batch.series) for batch in _current(tables.batches(), _begins(tables))]
        known = set(np.concatenate(parts).tolist()) if parts else set()
        return [(vital, site, metric) for number, vital, site, metric in names if number in known]

    def verify(self) -> None:
        """Read the whole run and check its checksums; raises :class:`RunDamaged` if any part is damaged."""
        with opened(self.path) as tables:
            tables.meta(), tables.series(), tables.findings(), tables.forecasts()
            for _ in tables.batches():
                pass
            for head in tables.array_heads():
                tables.array(head)

    def frame(
        self, vital: Choice = None, site: Choice = None, metric: Choice = None, *, abandoned: bool = False
    ) -> pl.DataFrame:
        """Return measurements as a polars data frame with columns step, vital, site, metric and value.

        Args:
            vital: a name, several names, or a pattern with ``*`` and ``?``; None takes all.
            site: the same for site names.
            metric: the same for metric names.
            abandoned: return the measurements that became invalid when the run was resumed at an earlier step, instead
                of the valid ones.

        Returns:
            One row per measurement, in the order of steps.
        """
        import polars as pl

        names, steps, series, values = self._columns(vital, site, metric, abandoned=abandoned)
        order = np.argsort(steps, kind="stable")
        table = pl.DataFrame(
            names, schema={"series": pl.Int64, "vital": pl.String, "site": pl.String, "metric": pl.String}, orient="row"
        )
        return (
            pl.DataFrame({"step": steps[order], "series": series[order], "value": values[order]})
            .join(table, on="series", how="left", maintain_order="left")
            .select("step", "vital", "site", "metric", "value")
        )

    def by_series(self) -> Iterator[tuple[str, str, str, np.ndarray, np.ndarray]]:
        """Return every series as (vital, site, metric, steps, values), in the order of first appearance."""
        names, steps, series, values = self._columns(None, None, None)
        order = np.lexsort((steps, series))  # stable: measurements of one step stay in the order they came
        steps, series, values = steps[order], series[order], values[order]
        edges = np.flatnonzero(np.diff(series)) + 1
        known = {number: (vital, site, metric) for number, vital, site, metric in names}
        for start, stop in pairwise((0, *edges.tolist(), len(series)) if len(series) else ()):
            yield *known[int(series[start])], steps[start:stop], values[start:stop]

    def _columns(
        self, vital: Choice, site: Choice, metric: Choice, *, abandoned: bool = False
    ) -> tuple[list[tuple[int, str, str, str]], np.ndarray, np.ndarray, np.ndarray]:
        """The names of the chosen series, and their measurements as columns in the order they were written."""
        with opened(self.path) as tables:
            names = self._chosen(tables, vital, site, metric)
            everything = vital is None and site is None and metric is None
            wanted = np.array([n[0] for n in names], np.int64)
            pieces = []
            for batch in _current(tables.batches(), _begins(tables), abandoned=abandoned):
                here = slice(None) if everything else np.isin(batch.series, wanted)
                pieces.append((batch.steps[here], batch.series[here], batch.values[here]))
        if not pieces:
            return names, np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        steps, numbers, values = (np.concatenate(column) for column in zip(*pieces))
        return names, steps, numbers, values

    def arrays(
        self,
        vital: Choice = None,
        site: Choice = None,
        metric: Choice = None,
        *,
        first: bool = False,
        last: bool = False,
    ) -> list[ArrayMeasurement]:
        """Return array measurements in the order of their steps, with original dtype and shape.

        Args:
            vital: a name, several names or a pattern, as in :meth:`frame`.
            site: the same for site names.
            metric: the same for metric names.
            first: only the earliest array of each series.
            last: only the latest array of each series.

        Returns:
            The arrays.
        """
        if first and last:
            raise ValueError("give first=True or last=True, not both at once")
        return list(self._arrays(vital, site, metric, "min" if first else "max" if last else ""))

    def _arrays(self, vital: Choice, site: Choice, metric: Choice, end: str) -> Iterator[ArrayMeasurement]:
        from netvitals.capture import ArrayMeasurement  # brings torch, which the rest does without

        with opened(self.path) as tables:
            by_id = {n[0]: n for n in self._chosen(tables, vital, site, metric)}
            begins = _begins(tables)
            heads = [h for h in tables.array_heads() if h.series in by_id and _is_current(h, begins)]
            if end:
                ordered = heads if end == "max" else heads[::-1]
                heads = list({h.series: h for h in ordered}.values())  # the last of each series in that order
            for head in sorted(heads, key=lambda h: (h.step, h.id)):
                _, vital_name, site_name, metric_name = by_id[head.series]
                yield ArrayMeasurement(head.step, vital_name, site_name, metric_name, tables.array(head))

    def _chosen(self, tables: Tables, vital: Choice, site: Choice, metric: Choice) -> list[tuple[int, str, str, str]]:
        """Number and name of the chosen series; a series is never renamed, so they are kept."""
        summary = tables.summary()
        key = (summary.shown.get("started"), summary.series)  # a run may also be overwritten by another
        if self._series is None or self._series[0] != key:
            self._series = key, tables.series()
        every = self._series[1]
        if vital is None and site is None and metric is None:
            return every
        for kind, choice, at in (("vital", vital, 1), ("site", site, 2), ("metric", metric, 3)):
            names = sorted({str(n[at]) for n in every})
            for one in [choice] if isinstance(choice, str) else choice or ():
                if names and one not in names and "*" not in one and "?" not in one:
                    near = difflib.get_close_matches(one, names, 3) or names[:8]
                    raise LookupError(f"the run has no {kind} {one!r}; did you mean {', '.join(map(repr, near))}?")
        return [n for n in every if _fits(n[1], vital) and _fits(n[2], site) and _fits(n[3], metric)]

    def findings(self) -> Sequence[Finding]:
        """Return the findings stored with the run. If none are stored, compute them with the function ``judge``, if one
        was passed.
        """
        with opened(self.path) as tables:
            stored = [Finding.from_dict(record) for record in tables.findings()]
        return stored if stored or self._judge is None else self._judge(self)

    def forecasts(self) -> list[dict[str, Any]]:
        """Return every forecast as it was stored, except those from before the run was resumed at an earlier step.
        ``netvitals.forecasts.forecast_log`` scores them.
        """
        with opened(self.path) as tables:
            begins = _begins(tables)
            made = [(_end(segment, begins), record) for segment, record in tables.forecasts()]
        return [record for end, record in made if end is None or int(record["made_at"]) < end]


def status_of(summary: Summary, file: Path) -> str:
    """How a run stands: what its writer said last, or that the writer is gone.

    A writer on this machine holds a lock, which the system takes back when its process ends, however it ends: no clock
    is asked. Of a copy, and of a writer on another machine, only the last sign of life is known, with the time of that
    machine.

    Args:
        summary: of the run, as :attr:`Run.summary` reads it.
        file: the run's file.

    Returns:
        ``running``, ``finished``, another word of its writer, or ``interrupted``.

    >>> status_of(Summary(shown={"status": "running", "heartbeat": 0.0}), Path("elsewhere"))  # silent since 1970
    'interrupted'
    """
    status = str(summary.shown.get("status", "unknown"))
    if status != "running" or FileLock.holder(file) is not None:
        return status
    spoke = summary.shown.get("heartbeat", 0.0)
    near = summary.shown.get("machine") in (None, this_machine()) and FileLock.was_held(file)
    if near or not isinstance(spoke, int | float) or not abs(time.time() - spoke) <= SILENT_S:
        return "interrupted"
    return status


def _begins(tables: Tables) -> list[int]:
    """The first step of each segment: the run itself, and every time it was resumed."""
    return [int(step) for step in tables.meta().get("segments", [0])]


def _end(segment: int, begins: Sequence[int]) -> int | None:
    """The first step of a segment that a later one has written anew; None if there is none."""
    return min(begins[segment + 1 :], default=None)


def _is_current(head: ArrayHead, begins: Sequence[int]) -> bool:
    end = _end(head.segment, begins)
    return end is None or head.step < end


def _current(batches: Iterable[Batch], begins: Sequence[int], *, abandoned: bool = False) -> Iterator[Batch]:
    """The measurements that count, or those of abandoned branches."""
    for batch in batches:
        end = _end(batch.segment, begins)
        if end is None:
            if not abandoned:
                yield batch
            continue
        here = batch.steps >= end if abandoned else batch.steps < end
        yield Batch(batch.segment, batch.steps[here], batch.series[here], batch.values[here])


def _fits(name: str, choice: Choice) -> bool:
    if choice is None:
        return True
    return any(
        name == c or (("*" in c or "?" in c) and fnmatchcase(name, c))
        for c in ([choice] if isinstance(choice, str) else choice)
    )
