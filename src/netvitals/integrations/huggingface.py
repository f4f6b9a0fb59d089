"""A Hugging Face callback: ``Trainer(…, callbacks=[VitalsCallback(run="runs/first")])``. Needs the extra ``hf``."""

from __future__ import annotations

from typing import Any

from netvitals._extras import missing
from netvitals.watch import Watch, watch

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError:
    raise missing("the Hugging Face callback", "transformers") from None


class VitalsCallback(TrainerCallback):
    """Watches the model of a Hugging Face Trainer. The loss arrives with the Trainer's own logs.

    Args:
        options: passed to :func:`netvitals.watch` (``run``, ``every``, ``probe``, ``vitals``).
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.vitals: Watch | None = None
        self._loss: float | None = None

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        optimizer: Any = None,
        **_: Any,
    ) -> None:
        inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper takes no hooks of its own
        self.vitals = watch(model, optimizer=inner, **self.options)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        self._loss = (logs or {}).get("loss", self._loss)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.vitals is not None:
            loss, self._loss = self._loss, None
            self.vitals.step(loss)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.vitals is not None:
            self.vitals.close()
