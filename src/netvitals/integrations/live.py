"""Trackers that a watch can send to while it trains: ``nv.watch(model, optimizer, log=…)``.

A tracker is known by what it can do, so none has to be installed. None of them is begun or ended: that is the user's.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from netvitals._help import hint

Target = Callable[[int, dict[str, float], list[str]], None]  # (step, numbers, findings)

STEP = "netvitals/step"
FINDING = "netvitals/finding"
LONGEST = 5000  # characters of a tag in MLflow
LATER = 10_000  # rows that wait at most where a user logs nothing to wandb


def target_of(log: Any) -> Target:
    """Where ``log`` sends a measured step to.

    Args:
        log: a wandb run (or ``wandb`` itself), ``mlflow`` or ``(client, run_id)``, a ``SummaryWriter``, ``trackio`` or
            one of its runs, or a function of (step, numbers).

    Returns:
        A function of (step, numbers, findings); where it has a method ``close``, the end of the watch calls it.

    >>> target_of(lambda step, numbers: print(step, numbers))(3, {"netvitals/loss": 0.5}, ["warning: …"])
    3 {'netvitals/loss': 0.5, 'netvitals/finding': 'warning: …'}
    """
    name = getattr(log, "__name__", "")
    if isinstance(log, tuple) and len(log) == 2 and hasattr(log[0], "log_metric"):
        return _mlflow_client(*log)
    if hasattr(log, "add_scalar") and hasattr(log, "add_text"):
        return _summary_writer(log)
    if hasattr(log, "log_metrics") and hasattr(log, "active_run"):
        return _mlflow(log)
    if name == "wandb" or (hasattr(log, "define_metric") and hasattr(log, "log")):
        return _Wandb(log)
    if hasattr(log, "log") and callable(log.log):
        return _trackio(log)
    if hasattr(log, "log_metric"):
        raise TypeError("an MLflow client can write to many runs, so the run must be named: give log=(client, run_id)")
    if callable(log):
        return lambda step, numbers, findings: log(step, _with_findings(numbers, findings))
    raise TypeError(
        "log= must be a wandb run, mlflow or (client, run_id), a SummaryWriter, trackio, or a function of (step, "
        f"numbers), got a {type(log).__name__}"
    )


def _with_findings(numbers: dict[str, float], findings: list[str]) -> dict[str, Any]:
    return {**numbers, FINDING: "\n".join(findings)} if findings else dict(numbers)


class _Wandb:
    """Rows join the user's own next row, one each: a row of our own would move the steps of theirs.

    Of the measured steps between two rows of the user the first is sent. Where the user has logged nothing by the end
    of the watch, there are no steps to move, and all rows are sent then.
    """

    def __init__(self, log: Any) -> None:
        self._log = log
        self._run: Any = None
        self._first = self._step = None  # of the user's rows: at the first measured step, and when we last joined one
        self._later: deque[dict[str, Any]] = deque(maxlen=LATER)
        self._findings: list[str] = []  # those in the row that waits for the user

    def __call__(self, step: int, numbers: dict[str, float], findings: list[str]) -> None:
        run = getattr(self._log, "run", None) if getattr(self._log, "__name__", "") == "wandb" else self._log
        if run is None:
            raise ValueError(f"wandb has no active run; call wandb.init() before nv.watch {hint('tracker-not-open')}")
        now = run.step
        if self._run is not run:
            run.define_metric(STEP)
            run.define_metric("netvitals/*", step_metric=STEP)
            self._run, self._first, self._step = run, now, None
            self._later.clear()
        joins = now != self._step
        self._findings = findings if joins else [*self._findings, *findings]
        row = {STEP: step, **numbers}
        if joins:
            self._step = now
            run.log(_with_findings(row, findings), commit=False)
            return
        if findings:
            run.log({FINDING: "\n".join(self._findings)}, commit=False)
        if now == self._first and numbers:
            self._later.append(row)

    def close(self) -> None:
        """Send the rows that waited for a user who has logged nothing."""
        rows, run = list(self._later), self._run
        self._later.clear()
        if not rows or run.step != self._first:
            return
        run.log({}, commit=True)
        self._step = None
        if all(name.startswith(("netvitals/", "_")) for name in dict(run.summary)):  # else they have, with step=0
            for row in rows:
                run.log(row, commit=True)


def _trackio(log: Any) -> Target:
    """Rows at our step; the count that gives the user's own rows their step goes on where it was."""

    def send(step: int, numbers: dict[str, float], findings: list[str]) -> None:
        run = log
        if getattr(log, "__name__", "") == "trackio":
            run = log.context_vars.current_run.get() or log  # without a run, trackio's own error says so
        count = getattr(run, "_next_step", None)
        run.log(_with_findings(numbers, findings), step=step)
        if count is not None:
            run._next_step = count

    return send


def _summary_writer(writer: Any) -> Target:
    def send(step: int, numbers: dict[str, float], findings: list[str]) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)
        for text in findings:
            writer.add_text(FINDING, text, step)

    return send


def _mlflow(module: Any) -> Target:
    count = 0

    def send(step: int, numbers: dict[str, float], findings: list[str]) -> None:
        nonlocal count
        if module.active_run() is None:  # it would begin one of its own
            raise ValueError(
                f"MLflow has no active run; call mlflow.start_run() before nv.watch {hint('tracker-not-open')}"
            )
        module.log_metrics(allowed(numbers), step=step)
        for text in findings:
            module.set_tag(f"netvitals.finding.{count}", f"step {step}: {text}"[:LONGEST])
            count += 1

    return send


def _mlflow_client(client: Any, run_id: str) -> Target:
    count = 0

    def send(step: int, numbers: dict[str, float], findings: list[str]) -> None:
        nonlocal count
        for name, value in allowed(numbers).items():
            client.log_metric(run_id, name, value, step=step)
        for text in findings:
            client.set_tag(run_id, f"netvitals.finding.{count}", f"step {step}: {text}"[:LONGEST])
            count += 1

    return send


def allowed(numbers: dict[str, float]) -> dict[str, float]:
    """As MLflow takes them: letters, digits and a few signs in a name, finite values.

    >>> allowed({"gates/density@0.01": 0.5, "loss": float("nan")})
    {'gates/density_0.01': 0.5}
    """
    plain = lambda name: "".join(c if c.isalnum() or c in "/_-. " else "_" for c in name)
    return {plain(name): value for name, value in numbers.items() if math.isfinite(value)}
