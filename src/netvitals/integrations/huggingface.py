"""A Hugging Face callback: ``Trainer(…, callbacks=[VitalsCallback(run="runs/first")])``. Needs the extra ``hf``."""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any

from torch import Tensor

from netvitals._extras import missing
from netvitals.integrations.callback import begin
from netvitals.integrations.preflight_first import PreflightFirst
from netvitals.watching import Watch

try:
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError:
    raise missing("the Hugging Face callback", "transformers") from None


class VitalsCallback(TrainerCallback):
    """Watches the model of a Hugging Face Trainer.

    Steps are the Trainer's: however many micro-batches one takes, and going on where a checkpoint was left. The loss of
    each step is that of the Trainer, whatever ``logging_steps`` is. A training that ends by Ctrl-C or an error closes
    the watch, and may simply be started again. (The Trainer has no event for that: where the callback is given to the
    Trainer when it is made, its ``train`` is guarded; else the watch is closed when training starts again.)

    Args:
        options: passed to :func:`netvitals.watch` (``run``, ``every``, ``probe``, ``vitals``, ``log``).

    >>> callback = VitalsCallback(run="runs/first", every=100)  # give it to Trainer(…, callbacks=[callback])
    >>> callback.options["every"]
    100
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.vitals: Watch | None = None
        self._trainer: weakref.ref[Trainer] | None = None
        self._total: Tensor | float = 0.0  # the Trainer's sum of losses when it was last asked
        self._logged: float | None = None

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        trainer = _caller()
        if trainer is not None:
            _guard(trainer, weakref.ref(self))

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        optimizer: Any = None,
        **_: Any,
    ) -> None:
        if self.vitals is not None:
            self.vitals.close("interrupted")
        trainer = _caller()
        self._trainer = None if trainer is None else weakref.ref(trainer)
        self._total, self._logged = 0.0, None
        options = self.options if state.is_world_process_zero else {**self.options, "run": None, "log": None}
        self.vitals = begin(model, optimizer, state.global_step, options)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        if "loss" in (logs or {}):
            self._logged = (logs or {})["loss"]
            self._total = 0.0  # the Trainer begins its sum anew

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.vitals is not None:
            self.vitals.step(self._loss())

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.vitals is not None:
            self.vitals.close()

    def _loss(self) -> Tensor | float | None:
        """What the Trainer has added to its sum of losses on this step; else what it last logged."""
        trainer = self._trainer() if self._trainer is not None else None
        total = getattr(trainer, "_tr_loss", None)
        if not isinstance(total, Tensor):
            loss, self._logged = self._logged, None
            return loss
        before, self._total = self._total, total.detach().clone()
        return self._total - before


class PreflightCallback(PreflightFirst, TrainerCallback):
    """Checks a Trainer's model before its first step (:func:`netvitals.preflight`); a failed check ends the training.

    Args:
        stop: raise ``PreflightFailed`` where a check failed; False leaves it to you to read ``result``.
        options: passed to :func:`netvitals.preflight` (``batches``, ``seconds``, ``validation``).

    >>> PreflightCallback(stop=False).result is None  # give it to Trainer(callbacks=[...])
    True
    """

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        optimizer: Any = None,
        train_dataloader: Any = None,
        **_: Any,
    ) -> None:
        self.check(state.global_step, model, train_dataloader, optimizer)


def _guard(trainer: Trainer, callback: weakref.ref[VitalsCallback]) -> None:
    """Close the watch when the Trainer's ``train`` ends by an exception, which passes on."""
    train = trainer.train

    @functools.wraps(train)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return train(*args, **kwargs)
        except BaseException as error:
            known = callback()
            if known is not None and known.vitals is not None:
                known.vitals.close("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
            raise

    trainer.train = guarded


def _caller() -> Trainer | None:
    """The Trainer that called the callback, which is not told who it is."""
    frame = sys._getframe(1)
    for _ in range(12):
        found = frame.f_locals.get("self")
        if isinstance(found, Trainer):
            return found
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None
