"""Other tools that diagnose training, through the same runs of the clinic: an alarm is a warning or worse at the
end."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netvitals_lab import clinic

GRAVE = ("warning", "critical", "error", "high", "severe")


class Torchmortem:
    """An autopsy with collectors and detectors; findings have a severity and layers."""

    def __init__(self, model: Any, optimizer: Any) -> None:
        from torchmortem import Autopsy

        self.tool = Autopsy(model, optimizer=optimizer)
        self.tool.attach()

    def step(self, step: int, loss: float) -> None:
        self.tool.step(loss=loss)

    def alarms(self) -> list[str]:
        self.tool.detach()
        with tempfile.TemporaryDirectory() as folder:
            report = self.tool.report(str(Path(folder) / "report.html"))
        return [str(f.title) for f in report.findings if _name(f.severity) in GRAVE]


class Observatory:
    """Hooks with thresholds: dead neurons, gradient health, drift, spikes."""

    def __init__(self, model: Any, optimizer: Any) -> None:
        from neural_observatory import Observatory as Tool

        self.tool = Tool(model)
        self.tool.watch()

    def step(self, step: int, loss: float) -> None:
        self.tool.step(step)

    def alarms(self) -> list[str]:
        results = self.tool.report().results
        self.tool.stop()
        return [f"{r.analyzer_name}: {r.layer_name}" for r in results if _name(r.status) in GRAVE]


class Trainscope:
    """A debugger of loss spikes with a change-point detector."""

    def __init__(self, model: Any, optimizer: Any) -> None:
        from trainscope import TrainScope, TrainScopeConfig

        self.folder = tempfile.TemporaryDirectory()
        self.tool = TrainScope(model, optimizer, TrainScopeConfig(run_dir=self.folder.name)).attach()
        self.spikes: list[str] = []

    def step(self, step: int, loss: float) -> None:
        found = self.tool.step(loss)
        if found is not None:
            self.spikes.append(f"spike at step {step}")

    def alarms(self) -> list[str]:
        self.tool.detach()
        self.folder.cleanup()
        return self.spikes


@dataclass(frozen=True)
class Rival:
    """A tool by name, and what runs it beside a training loop."""

    name: str
    package: str
    make: Any

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None


RIVALS = (
    Rival("torchmortem", "torchmortem", Torchmortem),
    Rival("neural-observatory", "neural_observatory", Observatory),
    Rival("trainscope", "trainscope", Trainscope),
)


def _name(severity: Any) -> str:
    return str(getattr(severity, "name", severity)).lower().rsplit(".", 1)[-1]


def examined(rival: Rival, case: Any, grade: str, seed: int, size: int) -> dict[str, Any]:
    """One run with a rival beside it instead of netvitals.

    Args:
        rival: the tool.
        case: a disease or a control.
        grade: of the disease; empty for a control.
        seed: of the run.
        size: of the networks.

    Returns:
        Whether it alarmed, and with what.
    """
    session = case.session(seed, grade, size) if grade else case.session(seed, size)
    made: list[Any] = []

    def companion(model: Any, optimizer: Any) -> Any:
        made.append(rival.make(model, optimizer))
        return made[0]

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        clinic.course(session, seed, watched=False, companion=companion)
        alarms = made[0].alarms()
    kind = "disease" if grade else "control"
    return {"rival": rival.name, "set": kind, "name": case.name, "alarm": bool(alarms), "said": alarms[:3]}
