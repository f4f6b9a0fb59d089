"""What a watch has seen so far: measurements, sites, findings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from torch import nn

from netvitals.capture import ArrayMeasurement, Buffer, Measurement, Observers, Site, plain, warn
from netvitals.watching.description import activation_specs

if TYPE_CHECKING:
    from netvitals.checks import LoopChecks
    from netvitals.findings import Findings
    from netvitals.forecasts import Forecast
    from netvitals.runs import RunWriter
    from netvitals.watching.live_forecasts import LiveForecasts
    from netvitals.watching.step_counter import StepCounter


class WatchState:
    """The part of a watch that answers questions."""

    _model: nn.Module
    _observer: Observers
    _buffer: Buffer
    _writer: RunWriter | None
    _path: os.PathLike[str] | None
    _closed: bool
    every: int
    _between: StepCounter
    _forecasts: LiveForecasts | None
    _described: dict[str, Any]
    _checks: LoopChecks | None

    def _repr_html_(self) -> str:
        """In a notebook: how far it is, and what the measurements say now."""
        from html import escape

        return f"<div><code>{escape(repr(self))}</code>{self.findings()._repr_html_()}</div>"

    @property
    def measurements(self) -> list[Measurement]:
        """Measurements in memory: all recent ones, the past thinned out. A run on disk keeps every one."""
        return self._buffer.measurements()

    @property
    def arrays(self) -> list[ArrayMeasurement]:
        """The latest array of each series; a run on disk keeps those of every fifth measured step and the last."""
        return self._buffer.arrays()

    @property
    def sites(self) -> list[Site]:
        return list(self._observer.sites.values())

    @property
    def activations(self) -> dict[str, str]:
        """Which function acts at each site whose numbers are fixed, as a spec: ``softplus:20``."""
        return activation_specs(self._model, self.sites) | self._observer.specs

    @property
    def meta(self) -> dict[str, Any]:
        """What is known of the model and of who trains it, as a run notes it."""
        return {**self._described, "sites": plain(self.sites, odd=float), "skipped": self.skipped} | (
            {} if self._checks is None else {"checks": plain(self._checks.facts(), odd=float)}
        )

    @property
    def skipped(self) -> dict[str, str]:
        return dict(self._observer.skipped)

    @property
    def forecasts(self) -> list[Forecast]:
        """Every forecast so far, refused ones too; those of a run on disk are scored by ``netvitals.forecasts``."""
        self._buffer.settle()
        return [] if self._forecasts is None else self._forecasts.made

    @property
    def path(self) -> os.PathLike[str] | None:
        """The file of the run, when one is written."""
        return self._path

    def findings(self) -> Findings:
        """What the measurements say, in plain words, with advice."""
        from netvitals.findings import diagnose
        from netvitals.runs import open_run

        self._note_checks()
        self.flush()
        return diagnose(self if self._path is None else open_run(self._path))

    def _note_checks(self) -> None:
        """Note in the run what the checks of the first steps say."""
        if self._writer is not None and self._checks is not None:
            self._writer.note("checks", self._checks.facts())

    def _note_verdict(self) -> None:
        """Note in the run its most severe finding, which lists of runs show."""
        if self._writer is None:
            return
        try:
            self._writer.note("verdict", self.findings().verdict)
        except Exception as error:  # a run without a verdict is still a run
            warn(f"computing the findings failed: {type(error).__name__}: {error}", "findings-failed")

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until everything noted so far is on disk (it is after a second anyway); False if it is not."""
        self._buffer.settle()
        return self._writer is None or self._writer.flush(timeout)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"step {self._between.step}"
        return f"Watch({type(self._model).__name__}, {state}, {len(self.sites)} sites, every {self.every})"
