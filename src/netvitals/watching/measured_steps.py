"""What a watch does on a measured step: arm the observers, take in what they saw, hand it on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from netvitals._help import hint
from netvitals.capture import (
    Buffer,
    Observers,
    OptimizerHooks,
    Recorder,
    Schedule,
    StepColumns,
    detached_context,
    parameter_view,
    task_of,
    warn,
)
from netvitals.capture import probe as observe_with
from netvitals.checks import LoopChecks
from netvitals.watching import registry
from netvitals.watching.description import note_places
from netvitals.watching.eager_replay import INSIDE, EagerReplay, compiled_form_of, has_compiled
from netvitals.watching.live_forecasts import LiveForecasts
from netvitals.watching.live_log import LiveLog
from netvitals.watching.micro_batches import MicroBatches
from netvitals.watching.ranks import Ranks
from netvitals.watching.shared_steps import SharedSteps
from netvitals.watching.state import WatchState

if TYPE_CHECKING:
    from netvitals.runs import RunWriter


class MeasuredSteps(WatchState):
    """The part of a watch that measures."""

    _model: nn.Module
    _bare: nn.Module  # without wrappers
    _initial: Mapping[str, Tensor]
    _given: Mapping[str, Tensor]  # trained in the place of the model's own
    _probe: tuple[Any, Any, Any] | None
    _schedule: Schedule
    _observer: Observers
    _hooks: OptimizerHooks
    _buffer: Buffer
    _batches: MicroBatches
    _ranks: Ranks | None
    _shared: SharedSteps | None
    _twin: EagerReplay | None
    _replays: bool  # the model is looked at through its eager copy, or not at all
    _checks: LoopChecks | None
    _writer: RunWriter | None
    _recorder: Recorder | None
    _log: LiveLog | None
    _forecasts: LiveForecasts | None
    _observations: int
    _noted: int
    _missed: bool
    _wrote: set[str]  # vital signs that have measured something
    _lossless: bool  # no loss was given so far
    _late: bool
    _probe_failed: bool

    @property
    def _step(self) -> int:
        return self._between.step

    @_step.setter
    def _step(self, value: int) -> None:
        self._between.step = value

    def _begin(self, first: bool = False) -> None:
        recorder = Recorder(self._step)
        self._schedule.select(self._observations, self._step)
        self._observations += 1
        try:
            if self._shared is not None:
                self._shared.arm(recorder)
            if self._twin is not None:
                self._twin.arm(self._observer.notes)
            if self._probe is None:
                if not self._replays and (self._shared is None or self._shared.looks):
                    self._observer.arm(recorder)
            elif not self._probe_failed:
                task = task_of(self._model, self._probe[2], self._probe[:2])
                held = observe_with(self._observer.whole, recorder, task, mode="train", parameters=False)
                if held is not None:
                    recorder.vital = "loss"
                    recorder.write("model", ("held",), held.reshape(1))
            if self._schedule.wants("parameters"):
                self._hooks.arm(registry.weak_method(self._moved), keep=self._schedule.reads_steps)
            if self._twin is not None:
                self._hooks.attend()
                self._hooks.about_to_step = partial(self._replay, recorder)
        except Exception as error:
            self._disarm()
            if first and self._probe is not None:
                raise ValueError(
                    f"the batch of probe= could not be measured ({type(error).__name__}: {error}). Give probe=(x, y) "
                    "or (x, y, loss_fn) such that model(x) and loss_fn(output, y) work; give several arguments as a "
                    f"tuple x {hint('probe-failed')}"
                ) from error
            if first:
                raise  # nothing has been trained yet: better to know now
            self._probe_failed = True
            warn(
                f"measuring step {self._step} failed, and activations are not measured any more: "
                f"{type(error).__name__}: {error}",
                "measurement-failed",
            )
        self._recorder = recorder

    def _moved(self, grads: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> None:
        if self._recorder is None:
            return
        try:
            with detached_context():
                modules = self._observer.modules if self._bare is self._model else {}
                modules = modules or dict(self._bare.named_modules())
                pieces = {} if self._ranks is None else self._ranks.pieces
                known = self._observer.anatomy
                skipped = self._recorder.skipped
                view = parameter_view(modules, self._initial, grads, before, known, pieces, skipped, self._given)
                self._schedule.show("parameters", self._recorder, view)
        except Exception as error:
            warn(f"measuring the parameters failed: {type(error).__name__}: {error}", "measurement-failed")

    def _replay(self, recorder: Recorder) -> None:
        """Look at the compiled pass of this step, unless the model was called uncompiled."""
        if self._twin is not None and self._twin.called and (self._replays or not self._observer.observed):
            self._replays = True  # from here on our hooks stay off what is compiled
            self._observer.whole.disarm()
            self._twin.look(self._observer, recorder)

    def _found_compiled(self) -> EagerReplay | None:
        """The replay of a compiled form of the model that the watch was not given."""
        found = compiled_form_of(self._bare)
        return None if found is None else EagerReplay(found, self._bare)

    def _heard(self, columns: StepColumns) -> None:
        self._wrote.update(entry[0] for entry in (*columns.layout, *columns.array_layout))

    def _heard_loss(self, *_: Any) -> None:
        self._lossless = False

    def _trains_compiled(self) -> bool:
        """Gradients have arrived though no pass was seen, and torch.compile was at work."""
        return self._observer.whole.traces > 0 and any(p.grad is not None for p in self._bare.parameters())

    def _not_called(self, step: int) -> None:
        """No pass was seen on a step that was to be measured."""
        how = self._observer.compiled
        if how or (not self._observer.raised and self._trains_compiled()):
            self._replays = True
            self._twin = EagerReplay(self._bare, self._bare) if how == "partly" else self._found_compiled()
            if self._twin is None:
                self._observer.notes["model"] = INSIDE
                warn(f"the activations of this model cannot be measured: {INSIDE}", "compiled-part")
            if self._checks is not None:
                self._checks.leave()
        elif not self._missed and not self._observer.raised:
            self._missed = True
            warn(
                f"step {step} could not be measured, because the watched model was not called with autograd on; watch "
                "the module that the training loop calls" + (f" (or {INSIDE})" if has_compiled() else ""),
                "model-not-called",
            )

    def _finish(self) -> None:
        recorder = self._recorder
        assert recorder is not None
        self._hooks.settle()
        seen, stripped = self._observer.observed, self._observer.whole.stripped
        self._disarm()
        looks = self._probe is None and not self._replays and (self._shared is None or self._shared.looks)
        expected = looks and not self._late and "model" not in self._observer.skipped
        if stripped and not seen:
            self._observer.notes[f"step {recorder.step}"] = "not measured, because the model was scripted just before"
        elif expected and not seen:
            self._not_called(recorder.step)
        try:
            (self._shared or self._buffer).observe(recorder)
        except Exception as error:
            warn(
                f"the measurements of step {recorder.step} are lost: {type(error).__name__}: {error}",
                "measurement-failed",
            )
        self._observer.notes.update(recorder.skipped)
        if left_out := self._batches.left_out:
            why = "the optimizer was not called; a GradScaler skips steps whose gradients are not finite"
            self._observer.notes["optimizer steps"] = f"{left_out} skipped; {why}"
        note_places(self)
        if self._forecasts is not None:
            self._forecasts.run_lookahead(recorder.step)

    def _send(self) -> None:
        if self._shared is not None:
            self._shared.exchange()
        if self._log is not None:
            try:
                self._log.send()
            except Exception as error:  # of ours: those of a tracker are caught where they arise
                warn(f"sending measurements to the tracker failed: {type(error).__name__}: {error}", "tracker-failed")

    def _disarm(self) -> None:
        self._observer.disarm()
        self._hooks.disarm()
        if self._twin is not None:
            self._twin.disarm()
        self._recorder = None
