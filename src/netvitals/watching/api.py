"""Watch a model while it trains: one line around a user's loop, nothing else changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from netvitals._help import hint
from netvitals.capture import (
    Buffer,
    Observers,
    OptimizerHooks,
    Recorder,
    Schedule,
    Vital,
    WatchContext,
    copies,
    uncompiled,
    unwrapped,
    warn,
)
from netvitals.checks import LoopChecks
from netvitals.watching import registry
from netvitals.watching.arguments import (
    FOREIGN,
    Together,
    before_training,
    check_model,
    check_resume,
    check_total,
    checked_lookahead,
    checked_optimizers,
    checked_parameters,
    checked_probe,
    together,
)
from netvitals.watching.description import described, note_places, open_run_of, silent_vitals
from netvitals.watching.eager_replay import eager_replay_of
from netvitals.watching.live_forecasts import LiveForecasts
from netvitals.watching.live_log import LiveLog, live_log
from netvitals.watching.measured_steps import MeasuredSteps
from netvitals.watching.micro_batches import MicroBatches
from netvitals.watching.ranks import ranks_of
from netvitals.watching.replicas import Replicas
from netvitals.watching.shared_steps import shared_steps
from netvitals.watching.step_counter import StepCounter

if TYPE_CHECKING:
    from netvitals.forecasts import Lookahead
    from netvitals.preflights import Preflight
    from netvitals.runs import RunWriter


def watch(
    model: nn.Module | Sequence[nn.Module] | Mapping[str, nn.Module],
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    *,
    run: str | os.PathLike[str] | None = None,
    every: int = 50,
    probe: tuple[Any, ...] | None = None,
    vitals: Iterable[Vital | str] | None = None,
    resume: bool | int = False,
    overwrite: bool = False,
    log: Any = None,
    on_finding: Any = None,
    panel: bool = False,
    scheduler: Any = None,
    total_steps: int | None = None,
    forecasts: bool = True,
    lookahead: bool | Lookahead = False,
    checks: bool = True,
    preflight: Any = None,
    parameters: Mapping[str, Tensor] | None = None,
) -> Watch:
    """Measure the vital signs of a model while it trains, on every ``every``-th step of the training loop.

    A step is one step of the optimizer, which may use several micro-batches. Gradients and updates are those of the
    optimizer step, and activations are those of the first micro-batch. The loss is the mean of all values passed to
    :meth:`Watch.step` in this step. Without an optimizer, each call of :meth:`Watch.step` counts as a step. Training
    with a watch is bit-identical to training without. Between measured steps, the watch costs only an integer
    comparison.

    Args:
        model: the model that is trained, or several in a list or dict. Its calls are measured, and those of its parts
            where the loop calls them instead: a whole ``LightningModule``, a container without ``forward``.
        optimizer: the optimizer, or several, also inside a trainer's wrapper; its steps are the steps of the run, and
            :meth:`Watch.step` need not be called. Left out, torch optimizers that hold parameters of the model are
            noticed. With several, a step is over when all have stepped, or one steps again.
        run: a folder to write the run to, for ``netvitals report`` and :func:`netvitals.open_run`.
        every: number of steps from one measured step to the next.
        probe: ``(x, y, loss_fn)`` or ``(x, y)``: look at this batch instead of the loop's own, as the model stands
            before a measured step. Without ``loss_fn`` there are no gradients of activations.
        vitals: vital signs, or their names; all that are on by default if left out, ``["default", "plateau"]`` adds
            to these. ``netvitals vitals`` lists them; some need ``probe`` or ``optimizer``, and say so at once.
        resume: True continues the run at ``run`` after its last step (or begins it, where there is none); a number
            continues at that step, as a checkpoint has it: what was read from there on before is kept, but marked.
        overwrite: replace the run at ``run``. Without it and without ``resume`` a run that exists is left alone, and
            this one is written to ``run-2``, ``run-3``, …; ``watch.path`` says where.
        log: send each measured step on while it trains: a wandb run, ``mlflow`` or ``(client, run_id)``, a
            ``SummaryWriter``, ``trackio``, or a function of (step, numbers). Your run is never begun or ended.
        on_finding: called with each finding when it is first made, while it trains; or the address of a web hook.
        panel: show loss, vital signs and findings in the terminal or notebook; in a log file, a line a minute.
        scheduler: learning-rate scheduler; detected if left out. A copy of it is used to compute future rates.
        total_steps: how many steps the training will have, for forecasts to its end.
        forecasts: make forecasts, store them with the run, and score them once their target step is reached.
        lookahead: before a divergence is forecast, confirm it by training a copy of the model, on the batch of
            ``probe`` or on the batches of a :class:`netvitals.forecasts.Lookahead`. This costs additional training
            steps.
        checks: look at the loss's graph, the gradients and the batches of the first 50 steps, for mistakes that can be
            read off exactly. Once or twice the model is run on a copy of a batch, and left as it was; say False where
            ``forward`` changes anything outside of the model.
        preflight: the loader, or ``(loss_fn, loader)`` where the model's output does not hold its own loss: run
            :func:`netvitals.preflight` on it first. Failures are warned of; :attr:`Watch.preflight` has the result.
        parameters: the tensors that are trained in the place of the model's own, by the names that
            ``torch.func.functional_call`` is given; the optimizer moves them in place.

    Returns:
        A context whose ``step(loss)`` ends each training step and whose ``measurements`` are what was measured.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> opt = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> with watch(net, opt, every=2, vitals=["gates"]) as vitals:
    ...     for _ in range(4):
    ...         loss = net(torch.ones(16, 4)).square().mean()
    ...         opt.zero_grad(); loss.backward(); opt.step()
    ...         vitals.step(loss)
    >>> sorted({r.step for r in vitals.measurements if r.vital == "gates"})
    [0, 2]
    """
    before = before_training(model, optimizer, preflight)
    watching = Watch(
        model,
        optimizer=optimizer,
        run=run,
        every=every,
        probe=probe,
        vitals=vitals,
        resume=resume,
        overwrite=overwrite,
        log=log,
        on_finding=on_finding,
        panel=panel,
        scheduler=scheduler,
        total_steps=total_steps,
        forecasts=forecasts,
        lookahead=lookahead,
        checks=checks,
        parameters=parameters,
    )
    watching.preflight = before
    return watching


class Watch(MeasuredSteps):
    """A watch that measures a model during training. Call :meth:`step` once per training step.

    ``sites`` lists the measured places; ``skipped`` maps the places that could not be measured to the reason.

    Returned by :func:`watch`, and built with the same arguments.
    """

    preflight: Preflight | None = None  # what was found before training, where it was asked for

    def __init__(
        self,
        model: nn.Module | Sequence[nn.Module] | Mapping[str, nn.Module],
        optimizer: Optimizer | Sequence[Optimizer] | None = None,
        *,
        run: str | os.PathLike[str] | None = None,
        every: int = 50,
        probe: tuple[Any, ...] | None = None,
        vitals: Iterable[Vital | str] | None = None,
        resume: bool | int = False,
        overwrite: bool = False,
        log: Any = None,
        on_finding: Any = None,
        panel: bool = False,
        scheduler: Any = None,
        total_steps: int | None = None,
        forecasts: bool = True,
        lookahead: bool | Lookahead = False,
        checks: bool = True,
        parameters: Mapping[str, Tensor] | None = None,
    ) -> None:
        root: nn.Module = together(model)
        check_model(root, every)
        check_total(total_steps)
        check_resume(run, resume, overwrite)
        self.every = int(every)
        self._ranks = ranks_of(root)
        if self._ranks is not None and self._ranks.rank:  # the first writes and sends for all
            run = log = on_finding = None
            panel = False
        self._probe = checked_probe(probe)
        planned = checked_lookahead(lookahead, self._probe, forecasts)
        cut = self._ranks is not None and self._ranks.pieces  # to run these once more would take collectives
        self._twin = eager_replay_of(unwrapped(root), uncompiled(root)) if probe is None and not cut else None
        self._model = uncompiled(root) if probe is not None or self._twin is not None else unwrapped(root)
        self._replays = self._twin is not None
        self._cell = registry.cell()
        if words := registry.take_over(self._model):
            warn(words, "already-watched")
        self._given = checked_parameters(parameters, uncompiled(root))
        trained: dict[str, Any] = {**dict(uncompiled(root).named_parameters()), **self._given}
        self._bare = uncompiled(root)
        if self._twin is None and probe is None and self._ranks is None:
            self._twin = self._found_compiled()
        self._initial = {**copies(self._bare), **{n: p.detach().clone() for n, p in self._given.items()}}
        optimizers, foreign = checked_optimizers(optimizer, trained)
        from netvitals.vitals import choose

        chosen = ["default", "ranks"] if vitals is None and self._ranks is not None else vitals
        self._schedule = Schedule(choose(chosen))
        self._schedule.begin(
            WatchContext(
                model=self._bare,
                optimizers=tuple(optimizers),
                probe=self._probe,
                scheduler=scheduler,
                total_steps=total_steps,
                found=registry.weak_method(self._optimizers),
                given=self._given,
            )
        )
        self._observer = Observers(self._model, self._schedule, passive=self._probe is None and not self._replays)
        self._observer.notes.update({type(o).__name__: f"it {FOREIGN}" for o in foreign})
        self._hooks = OptimizerHooks(trained, optimizers, registry.weak_method(self._stepped))
        self._observations = 0
        self._recorder: Recorder | None = None  # open on a measured step
        self._buffer = Buffer()
        self._wrote, self._lossless = set(), True
        self._buffer.finished.append(registry.weak_method(self._heard))
        self._buffer.heard.append(registry.weak_method(self._heard_loss))
        self._shared = shared_steps(
            self._ranks, self._buffer, self._model, self._schedule, self._observer.notes, self._replays
        )
        self._batches = MicroBatches((self._shared or self._buffer).loss)
        self._buffer.closing = self._batches.flush
        self._between = between = StepCounter(self._hooks, self._batches, self._buffer.loss)
        self._buffer.steps = lambda: between.step
        if self._shared is not None:
            self._shared.batches = self._batches
            self._buffer.closing, self._observer.also = self._shared.leave, self._shared.disarm
        self._log: LiveLog | None = None
        self._forecasts: LiveForecasts | None = None
        self.yields = False  # the next watch of the model may close this one
        self._noted = 0  # sites and skipped places already noted in the run
        self._writer: RunWriter | None = None
        self._missed = self._late = self._probe_failed = self._closed = self._entered = False
        self._path: os.PathLike[str] | None = None
        self._checks: LoopChecks | None = None
        self._described = described(self, self._bare, optimizers)
        try:
            self._log = live_log(self, log, on_finding, panel)
            self._sends = self._shared is not None or self._log is not None
            self._forecasts = LiveForecasts(self, planned) if forecasts else None
            if run is not None:
                open_run_of(self, run, resume, overwrite, optimizers)
            if self._ranks is not None and resume is not False:
                self._step = self._ranks.first_step(self._step)
                self._observations = -(-self._step // self.every)
            if self._step % self.every == 0:
                self._begin(first=True)
        except BaseException:
            self._disarm()
            self._hooks.close()
            if self._writer is not None:
                self._writer.close("failed")
            raise
        if checks and self._given:
            self._observer.notes["checks of the loop"] = (
                "the checks read the model's own parameters, but other tensors are trained"
            )
        elif checks and cut:
            self._observer.notes["checks of the loop"] = "layers are sharded over ranks"
        elif checks and (self._ranks is None or not self._ranks.rank):  # the first rank writes for all
            plain = self._ranks is None and self._twin is None and self._model is self._bare
            roots = list(self._bare.children()) if isinstance(self._bare, Together) else [self._bare]
            found = (
                registry.weak_list(foreign) if foreign and not optimizers else registry.weak_method(self._optimizers)
            )
            self._checks = LoopChecks(self._bare, roots, found, passes=plain)
            self._checks.begin()
        if self._shared is not None and self._ranks is not None and not cut:
            self._shared.replicas = Replicas(self._bare)
            self._shared.replicas.record = None if self._checks is None else self._checks.record
        parts = (self._observer, self._hooks, self._buffer, self._writer, self._checks)
        self._finalizer = registry.add(self, self._model, parts)

    def _optimizers(self) -> list[Optimizer]:
        return self._hooks.optimizers

    # ---------------------------------------------------------------- the training loop

    def step(self, loss: Tensor | float | None = None) -> None:
        """End a training step or one of its micro-batches, and record its ``loss`` without synchronising the device.

        With a known optimizer, ``optimizer.step()`` ends the training step, and this call is optional. The recorded
        loss is the mean over all calls of this training step. A call right after ``optimizer.step()`` still counts for
        the step just made.

        Args:
            loss: the loss of this step or micro-batch; None if it is not available.
        """
        if self._closed:
            raise ValueError(f"this watch is closed; start a new one with netvitals.watch(model) {hint('closed')}")
        if self._checks is not None and self._checks.open:
            self._checks.end_step(loss, busy=self._recorder is not None)
        if self._forecasts is not None and self._forecasts.waits:
            self._forecasts.meet(loss)
        if self._between.take(loss):
            return
        self._between.plain = plain = self._hooks.plainly_stepped()
        if plain:
            self._batches.add(self._step - 1, loss, last=True)
            if self._sends:
                self._send()
            return
        if not self._hooks.lead():
            self._batches.add(self._step, loss, last=True)
            self._end_step()
            self._send()
            return
        over = self._hooks.just_stepped(waits=not self._batches.early)
        if over and self._hooks.incomplete:
            self._hooks.end()
        self._batches.add(self._step - 1 if over else self._step, loss, last=over)
        if over and self._sends:
            self._send()

    def go_on_at(self, step: int) -> None:
        """Set the number of the next ``step``, when training continues from a checkpoint. Call ``go_on_at`` before the
        first step.
        """
        self._disarm()
        self._step = step
        self._observations = -(-step // self.every)
        if step % self.every == 0:
            self._begin()

    def _stepped(self, late: bool) -> None:
        """An optimizer has ended a step; an error of ours must not end the user's."""
        try:
            self._between.settle(stepped=True)
            if self._recorder is None and not self._sends:  # the usual step
                self._batches.stepped(0)
                self._step = step = self._step + 1
                self._late = late
                if step % self.every == 0:
                    self._begin()
                elif not late:
                    self._between.rest(self.every - 1 - step % self.every)
                return
            passes = self._observer.passes if self._recorder is not None else 0
            if self._recorder is not None and passes and any(v.name == "training" for v in self._schedule.vitals):
                self._recorder.vital = "training"
                self._recorder.put("model", ("passes",), np.array([passes]))
            self._batches.stepped(passes)
            if self._sends:
                self._send()  # what no loss came for
            self._end_step(late)
        except Exception as error:
            warn(
                f"the end of step {self._step} could not be processed: {type(error).__name__}: {error}",
                "measurement-failed",
            )

    def _end_step(self, late: bool = False) -> None:
        if self._recorder is not None:
            self._finish()
        self._step += 1
        self._late = late
        if self._step % self.every == 0:
            self._begin()

    # ---------------------------------------------------------------- the end

    def close(self, status: str = "finished") -> None:
        """Remove all hooks and close the run; closing twice has no effect.

        Args:
            status: how the run ended, stored with it: ``finished``, or a word of your own such as ``stopped``.
        """
        if self._closed:
            return
        self._closed = True
        if self._checks is not None:
            self._checks.close()
        self._between.settle()
        self._disarm()
        self._hooks.close()
        self._finalizer.detach()
        registry.remove(self, self._model)
        if self._shared is not None:
            self._batches.flush()
            self._shared.close(status)
            note_places(self)
        self._buffer.settle()
        if self._ranks is None or not self._ranks.rank:
            self._observer.notes.update(silent_vitals(self))
            note_places(self)
        self._buffer.close()
        self._note_verdict()
        if self._log is not None:
            self._log.close()
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close(status)

    def __enter__(self) -> Watch:
        self._entered = True  # the block will close it
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stopped = kind is not None and issubclass(kind, KeyboardInterrupt)
        self.close("finished" if kind is None else "interrupted" if stopped else "failed")
