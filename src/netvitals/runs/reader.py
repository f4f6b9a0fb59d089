"""Reading a run, finished or not, also while somebody else writes it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netvitals.capture import ArrayReading
from netvitals.runs.finding import Finding
from netvitals.runs.store import connect, run_file

if TYPE_CHECKING:
    import polars as pl

SILENT_S = 60.0  # a writer that says nothing for so long is taken for dead (it speaks every 10 s)

CHUNK = 1000  # rows taken at a time: short-lived tuples are cheap, a million of them are not

Choice = str | Sequence[str] | None


Judge = Callable[["Run"], Sequence[Finding]]


def open_run(path: str | os.PathLike[str], *, judge: Judge | None = None) -> Run:
    """Open the run at ``path`` (the folder or the file) for reading.

    Args:
        path: the run's folder or file.
        judge: whom :meth:`Run.findings` asks where no findings are stored; ``netvitals.open_run`` names
            ``netvitals.findings.diagnose``.

    Returns:
        The run; every call looks at the file anew.
    """
    return Run(run_file(path), judge)


class Run:
    """One run on disk. Every call looks at the file anew, so a run that is being written shows its latest state."""

    def __init__(self, file: Path, judge: Judge | None = None) -> None:
        connect(file).close()
        self.path = file
        self._judge = judge

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.status})"

    @property
    def name(self) -> str:
        """The folder's name, or the file's when it is not called run.sqlite."""
        return self.path.parent.resolve().name if self.path.name == "run.sqlite" else self.path.stem

    @property
    def meta(self) -> dict[str, Any]:
        """All metadata: what the writer was told, versions, status, times."""
        with closing(connect(self.path)) as run:
            found = {key: json.loads(value) for key, value in run.execute("SELECT key, value FROM meta ORDER BY key")}
        if "unseen" in found:  # the key of older runs: a list of {name, reason}
            old = {str(u["name"]): str(u["reason"]) for u in found.pop("unseen")}
            found.setdefault("skipped", old)
        return found

    @property
    def status(self) -> str:
        """``running``, ``finished``, what :meth:`RunWriter.close` was given, or ``interrupted`` for a dead writer."""
        meta = self.meta
        status = str(meta.get("status", "unknown"))
        if status == "running" and time.time() - float(meta.get("heartbeat", 0.0)) > SILENT_S:
            return "interrupted"
        return status

    @property
    def steps(self) -> list[int]:
        """Every step that has a reading, in order."""
        with closing(connect(self.path)) as run:
            return [s for (s,) in run.execute("SELECT step FROM reading UNION SELECT step FROM array ORDER BY step")]

    @property
    def series(self) -> list[tuple[str, str, str]]:
        """Every (vital, site, metric) of which there is a number."""
        with closing(connect(self.path)) as run:
            return list(
                run.execute(
                    "SELECT vital, site, metric FROM series WHERE id IN "
                    "(SELECT DISTINCT series FROM reading) ORDER BY id"
                )
            )

    def frame(self, vital: Choice = None, site: Choice = None, metric: Choice = None) -> pl.DataFrame:
        """Readings in long form: step, vital, site, metric, value.

        Args:
            vital: a name, several names, or a pattern with ``*`` and ``?``; None takes all.
            site: the same for sites.
            metric: the same for metrics.

        Returns:
            One row a reading, in the order of steps.
        """
        import polars as pl

        names, steps, series, values = self._columns(vital, site, metric)
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
        """Every series as (vital, site, metric, steps, values), in the order in which they first appeared."""
        names, steps, series, values = self._columns(None, None, None)
        order = np.lexsort((steps, series))  # stable: readings of one step stay in the order they came
        steps, series, values = steps[order], series[order], values[order]
        edges = np.flatnonzero(np.diff(series)) + 1
        known = {number: (vital, site, metric) for number, vital, site, metric in names}
        for start, stop in pairwise((0, *edges.tolist(), len(series)) if len(series) else ()):
            yield *known[int(series[start])], steps[start:stop], values[start:stop]

    def _columns(
        self, vital: Choice, site: Choice, metric: Choice
    ) -> tuple[list[tuple[Any, ...]], np.ndarray, np.ndarray, np.ndarray]:
        """The names of the chosen series, and their readings as columns in the order they were written."""
        pieces: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        with closing(connect(self.path)) as run:
            names, where = self._chosen(run, vital, site, metric)
            rows = run.execute(f"SELECT step, series, value FROM reading{where}")
            while chunk := rows.fetchmany(CHUNK):
                step, number, value = zip(*chunk)
                pieces.append(
                    (
                        np.array(step, dtype=np.int64),
                        np.array(number, dtype=np.int64),
                        np.array(value, dtype=np.float64),
                    )
                )  # NULL becomes NaN
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
    ) -> list[ArrayReading]:
        """Array readings, in the order of their steps, with the dtype and shape they were written with.

        Args:
            vital: a name, several names or a pattern, as in :meth:`frame`.
            site: the same for sites.
            metric: the same for metrics.
            first: only the earliest array of each series.
            last: only the latest array of each series.

        Returns:
            The arrays.
        """
        if first and last:
            raise ValueError("ask for the first or for the last arrays, not for both at once")
        return list(self._arrays(vital, site, metric, "min" if first else "max" if last else ""))

    def _arrays(self, vital: Choice, site: Choice, metric: Choice, end: str) -> Iterator[ArrayReading]:
        with closing(connect(self.path)) as run:
            names, where = self._chosen(run, vital, site, metric)
            if end:
                where = f" WHERE rowid IN (SELECT {end}(rowid) FROM array{where} GROUP BY series)"
            by_id = {number: (vital, site, metric) for number, vital, site, metric in names}
            for step, series, dtype, shape, data in run.execute(
                f"SELECT step, series, dtype, shape, data FROM array{where} ORDER BY step, rowid"
            ):
                value = np.frombuffer(data, dtype).reshape(json.loads(shape)).copy()
                yield ArrayReading(step, *by_id[series], value)

    def findings(self) -> Sequence[Finding]:
        """The findings that were stored with the run; where none were, what the judge says of it now, if one was
        named."""
        with closing(connect(self.path)) as run:
            records = run.execute("SELECT record FROM finding ORDER BY id").fetchall()
        stored = [Finding.from_dict(json.loads(record)) for (record,) in records]
        return stored if stored or self._judge is None else self._judge(self)

    @staticmethod
    def _chosen(run: Any, vital: Choice, site: Choice, metric: Choice) -> tuple[list[tuple[Any, ...]], str]:
        names = list(run.execute("SELECT id, vital, site, metric FROM series"))
        if vital is None and site is None and metric is None:
            return names, ""
        names = [n for n in names if _fits(n[1], vital) and _fits(n[2], site) and _fits(n[3], metric)]
        return names, f" WHERE series IN ({','.join(str(n[0]) for n in names)})"


def _fits(name: str, choice: Choice) -> bool:
    if choice is None:
        return True
    return any(
        name == c or (("*" in c or "?" in c) and fnmatchcase(name, c))
        for c in ([choice] if isinstance(choice, str) else choice)
    )
