"""From measurements to findings: every rule is asked, and what was asked is told as well."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from netvitals.checks import ANSWERS, THINGS, Answer, Check
from netvitals.findings import (
    attention,
    dead_directions,
    dead_units,
    depth,
    drift,
    exact,
    forecasts,
    gates,
    gradients,
    imbalance,
    initialisation,
    inputs,
    loss,
    loss_curve,
    objective,
    precision,
    rank,
    ranks,
    sparsity,
    spikes,
    step_size,
    training_loop,
    updates,
    variance,
)
from netvitals.findings.causes import diagnosed
from netvitals.findings.progress import Progress, progress
from netvitals.findings.rules import NAMED, Context, Rule, names
from netvitals.findings.series import Measurements, table
from netvitals.findings.status import Status, status_of_vitals
from netvitals.runs import Finding, Run
from netvitals.runs import open_run as open_file

RULES: tuple[Rule, ...] = (
    *exact.RULES,
    *loss.RULES,
    *loss_curve.RULES,
    *inputs.RULES,
    *training_loop.RULES,
    *objective.RULES,
    *precision.RULES,
    *initialisation.RULES,
    *updates.RULES,
    *step_size.RULES,
    *dead_units.RULES,
    *variance.RULES,
    *depth.RULES,
    *rank.RULES,
    *spikes.RULES,
    *imbalance.RULES,
    *gradients.RULES,
    *attention.RULES,
    *dead_directions.RULES,
    *gates.RULES,
    *sparsity.RULES,
    *drift.RULES,
    *forecasts.RULES,
    *ranks.RULES,
)


# what is merely unusual, whatever the loss does
UNUSUAL = frozenset(
    [
        "anisotropy",
        "gate density falls",
        "sparsity cliff",
        "spikes",
        "loss spike",
        "negative drift",
        "edge of stability",
        "stream growth",
        "gate forecast",
        "imbalance growth",
        "rank collapse",
        "unbalanced layers",
        "stream floor",
    ]
)
# identities: they need no loss to show harm
CERTAIN = frozenset(
    {"loss not finite", "input not finite", "learning rate at zero", "learning rate too low", "weights shrink"}
)


ABSENT = re.compile("no .* (found|met)")  # why something could not be measured: the model has none of it


@dataclass(frozen=True)
class Checked:
    """A question that was asked, and how much there was to look at.

    Part of :class:`Findings`.

    Attributes:
        rule: name of the rule.
        question: what it asks.
        series: curves that it looked at; 0 where the measurements that it needs were not there.
        needs: the vital signs that it reads.
        trouble: what went wrong when the rule looked.
        applicable: False where the loop has nothing that the question is about.
    """

    rule: str
    question: str
    series: int
    needs: str
    trouble: str = ""
    applicable: bool = True


@dataclass(frozen=True)
class Findings(Sequence[Finding]):
    """A list of findings, the most severe first, with all checks that were made.

    Returned by :func:`diagnose`.

    Attributes:
        items: the findings; what follows from one stands below it, not here.
        checked: every question that was asked, whatever the answer.
        skipped: place that could not be measured → reason.
        status: how each vital sign stands.
        progress: whether the loss falls.
    """

    items: tuple[Finding, ...]
    checked: tuple[Checked, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, Status] = field(default_factory=dict)
    progress: Progress = field(default_factory=lambda: Progress("unknown"))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.items)

    @property
    def alarming(self) -> tuple[Finding, ...]:
        """Those that ask for action: critical ones and warnings."""
        return tuple(f for f in self.items if f.severity in ("critical", "warning"))

    @property
    def all(self) -> tuple[Finding, ...]:
        """Every finding, those that follow from others too."""
        return tuple(x for f in self.items for x in (f, *f.below()))

    def to_dicts(self) -> list[dict[str, Any]]:
        return [f.to_dict() for f in self.items]

    @property
    def checks(self) -> tuple[Check, ...]:
        """Every question with its status: failed, passed, not applicable or not enough data."""
        failed = {f.rule for f in self.all if f.severity != "info"}
        return tuple(_check(c, c.rule in failed) for c in self.checked)

    def __str__(self) -> str:
        tail = []
        checks = self.checks
        if checks:
            counts = Counter(c.status for c in checks)
            tail.append(f"{len(checks)} checks: " + ", ".join(f"{counts[s]} {s}" for s in ANSWERS if counts[s]) + ".")
        missing = [c.name for c in checks if c.status == "not enough data"]
        if missing:
            more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
            tail.append(f"Not enough data for: {', '.join(missing[:NAMED])}{more}.")
        tail += self._hidden()
        tail += [f"The check {c.rule!r} could not run: {c.trouble}" for c in self.checked if c.trouble]
        items = [str(f) if f in self.alarming or not self.alarming else f.brief() for f in self._shown()]
        return "\n".join([*self._head(), *items, *tail])

    def _shown(self) -> list[Finding]:
        """What is printed: beside something alarming, no infos."""
        return [f for f in self.items if f.severity != "info" or not self.alarming]

    def _repr_html_(self) -> str:
        """In a notebook: one paragraph a finding, the most severe first."""
        from html import escape

        tones = {"critical": "#b8283a", "warning": "#9a5400", "note": "#2563a6", "info": "#5f6a78"}
        parts = [f"<p><b>{escape(line)}</b></p>" for line in self._head()]
        for f in self._shown():
            mark = f'<b style="color:{tones[f.severity]}">{f.severity}</b>'
            below = "".join(f"<li>{escape(line)}</li>" for line in f.effects())
            advice = f"<br><i>fix: {escape(f.advice)}</i>" if f.advice else ""
            parts.append(
                f"<p>{mark} {escape(f.what)}{escape(f.dated)}{advice}</p>" + (f"<ul>{below}</ul>" if below else "")
            )
        return "".join(parts)

    def __rich__(self) -> Any:
        """The same in colour, for a rich console; advice for everything, reasons for what is alarming."""
        from rich.console import Group
        from rich.table import Table as Grid
        from rich.text import Text

        tones = {"critical": "bold red", "warning": "bold yellow", "note": "bold blue", "info": "dim"}
        grid = Grid.grid(padding=(0, 2))
        for f in self._shown():
            lines = [Text(f.what + f.dated, style="bold")] + [Text(f"why: {f.why}", style="dim")] * (f in self.alarming)
            lines += [Text(f"fix: {f.advice}")] * (bool(f.advice) and f.severity != "info")
            lines += [Text(line, style="dim") for line in f.effects()]
            grid.add_row(Text(f.severity, style=tones[f.severity]), Group(*lines, ""))
        counts = Counter(c.status for c in self.checks)
        foot = f"{len(self.checked)} checks: " + ", ".join(f"{counts[s]} {s}" for s in ANSWERS if counts[s]) + "."
        return Group(
            *(Text(h, style="bold green") for h in self._head()),
            grid,
            *(Text(line, style="dim") for line in (foot, *self._hidden())),
        )

    @property
    def verdict(self) -> dict[str, str]:
        """The most severe finding that asks for action, or the headline, as a list of runs shows it."""
        severe = next(iter(self.alarming), None)
        if severe is None:
            return {"severity": "", "what": self.headline}
        return {"severity": severe.severity, "what": severe.what}

    @property
    def headline(self) -> str:
        """One sentence where nothing alarms: what is known, and whether the loss falls; empty where something does."""
        return next(iter(self._head()), "")

    def _head(self) -> list[str]:
        if self.alarming:
            return []
        if self.checked and not any(c.series for c in self.checked):
            return ["Nothing could be checked: there are no measurements yet."]
        if self.progress.harm:
            return [self._not_learning()]
        ran = sum(1 for c in self.checked if c.series and not c.trouble)
        apply = sum(1 for c in self.checked if c.applicable)
        if 2 * ran < apply:
            return [f"No problem found, but only {ran} of {apply} checks could run."]
        count = len(self.items)
        return [f"Nothing alarming; {count} note{'s' * (count > 1)}." if count else "Nothing alarming."]

    def _not_learning(self) -> str:
        """What is known where the loss does not fall and no check says why."""
        p = self.progress
        loss = {
            "diverged": "The loss diverged",
            "not learning": "Not learning: the loss does not fall beyond its noise",
        }.get(p.state, f"The loss was {p.astray:.0f} times the loss of guessing")
        numbers = f" ({p.first:.4g} at the start, {p.last:.4g} at the end)" if math.isfinite(p.last) else ""
        passed = sum(1 for c in self.checked if c.series and not c.trouble and c.rule in exact.EXACT)
        out = f", and {passed} checks of the training loop passed" if passed else ""
        return (
            f"{loss}{numbers}. The cause is unknown{out}. Try next: overfit one small batch, change the learning rate "
            "by 10×, and print one batch of inputs and labels."
        )

    def _hidden(self) -> list[str]:
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.skipped.items():
            by_reason.setdefault("" if ABSENT.fullmatch(reason) else reason, []).append(name)
        absent = by_reason.pop("", [])
        lines = [f"Not measured: {names(places)}: {reason}." for reason, places in by_reason.items()]
        return lines + [f"Not in this model: {', '.join(absent)}."] * bool(absent)


def diagnose(source: Any, *, activations: Mapping[str, Any] | None = None) -> Findings:
    """Ask every rule of the measurements in ``source``.

    Args:
        source: a :class:`~netvitals.runs.Run`, a checkup, a frame in long form, or a list of measurements.
        activations: activation function (or its registered name) by site, for forecasts; by default what the run's
            metadata says.

    Returns:
        The findings, most severe first, with what was checked and what could not be measured.

    >>> from netvitals.capture import Measurement
    >>> falling = [Measurement(i, "loss", "model", "loss", 2.0 / (1 + i)) for i in range(30)]
    >>> print(diagnose(falling))  # doctest: +ELLIPSIS
    No problem found, but only ... checks could run.
    ...
    """
    measurements = table(source)
    context = Context(measurements, activations_of(measurements, activations))
    found: list[Finding] = []
    checked = []
    without = THINGS if (measurements.meta.get("checks") or {}).get("steps") else frozenset()
    for rule in RULES:
        if rule.optional and not rule.needs_in(measurements):
            continue
        series, trouble = rule.series(measurements), ""
        if series:
            try:
                found += rule.observe(context)
            except Exception as error:  # one rule that stumbles must not hide what the others found
                trouble = f"{type(error).__name__}: {error}"
        checked.append(Checked(rule.name, rule.question, series, str(rule), trouble, rule.lacks not in without))
    last = measurements.steps[-1] if measurements.steps else 0
    state = progress(measurements)
    found = _harmful(_once(found), state)
    return Findings(
        tuple(diagnosed(found, last)),
        tuple(checked),
        dict(measurements.meta.get("skipped") or {}),
        status_of_vitals(measurements, found, checked, RULES),
        state,
    )


def _check(asked: Checked, failed: bool) -> Check:
    if failed:
        return Check(asked.rule, asked.question, "failed")
    if asked.trouble:
        return Check(asked.rule, asked.question, "not applicable", asked.trouble)
    if asked.series:
        return Check(asked.rule, asked.question, "passed")
    status: Answer = "not enough data" if asked.applicable else "not applicable"
    return Check(asked.rule, asked.question, status, f"it needs {asked.needs}")


def _once(found: Sequence[Finding]) -> list[Finding]:
    """One finding for each rule and site where an exact check and a measurement say the same."""
    exact_ones = {f.rule for f in found if f.rule in exact.EXACT and f.vital == "training" and not f.evidence}
    return [f for f in found if f.rule not in exact_ones or not f.evidence]


def _harmful(found: Sequence[Finding], state: Progress) -> list[Finding]:
    """A statistic that is merely unusual is a note: a warning needs an exact violation, or a loss that shows harm."""
    trusted = state.state == "unknown" or state.harm
    return [
        replace(f, severity="note")
        if f.severity in ("critical", "warning")
        and f.rule not in exact.EXACT
        and f.rule not in CERTAIN
        and not (f.rule == "dead units" and f.severity == "critical")  # most of a layer does nothing
        and (not trusted or f.rule in UNUSUAL)
        else f
        for f in found
    ]


def activations_of(measurements: Measurements, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """By site: what the caller says, else the spec of its module, else what the operation's name says, where the
    registry knows it.

    Args:
        measurements: the table, whose metadata lists the sites.
        given: activation (module, function or registered name) by site, which goes before the metadata; None for none.

    Returns:
        An activation by the name of its site; sites whose activation is unknown are left out.

    >>> measurements = Measurements(series={}, meta={"sites": [{"name": "1", "kind": "activation", "op": "relu"}]})
    >>> activations_of(measurements)
    {'1': ReLU()}
    """
    from netvitals import activations as registry

    out: dict[str, Any] = {}
    specs = measurements.meta.get("activations") or {}
    for site in measurements.meta.get("sites", ()):
        if site.get("kind") == "activation" and site.get("op"):
            try:
                out[str(site["name"])] = registry.get(str(specs.get(site["name"], site["op"])))
            except (ValueError, LookupError, TypeError):
                continue
    for name, f in (given or {}).items():
        out[name] = registry.get(f) if isinstance(f, str) else f
    return out


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open the stored run at ``path`` for reading. This is ``netvitals.open_run``.

    Args:
        path: a run's folder or its SQLite file.

    Returns:
        The run; its ``findings()`` are those stored with it or, where none are, what :func:`diagnose` says of it now.

    >>> import netvitals, tempfile
    >>> from netvitals.capture import Measurement
    >>> from netvitals.runs import RunWriter
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> with RunWriter(folder) as writer:
    ...     writer.write([Measurement(step, "loss", "", "loss", 1.0 / (1 + step)) for step in range(3)])
    >>> run = netvitals.open_run(folder)
    >>> run.status, run.steps, run.frame(metric="loss")["value"].to_list()[0]
    ('finished', [0, 1, 2], 1.0)
    """
    return open_file(path, judge=diagnose)
