"""A Lightning callback: ``Trainer(callbacks=[VitalsCallback(run="runs/first")])``. Needs the extra ``lightning``.

With Fabric no callback is needed: ``nv.watch(model, optimizer)`` after ``fabric.setup``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netvitals._extras import missing
from netvitals.integrations.callback import begin, network
from netvitals.integrations.preflight_first import PreflightFirst
from netvitals.watching import Watch

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    raise missing("the Lightning callback", "lightning") from None


class VitalsCallback(Callback):
    """Watches the network of a LightningModule while it is fitted.

    A LightningModule is seldom called itself: its ``training_step`` calls networks inside it, and these are measured.
    Steps are those of the optimizers (``accumulate_grad_batches`` micro-batches each), and go on where a checkpoint was
    left.

    Args:
        module: dotted name of the network inside the LightningModule; the one child that has parameters, or the whole
            LightningModule, if left out.
        options: passed to :func:`netvitals.watch` (``run``, ``every``, ``probe``, ``vitals``, ``log``).

    >>> callback = VitalsCallback(run="runs/first", every=100)  # give it to Trainer(callbacks=[callback])
    >>> callback.options["every"]
    100
    """

    def __init__(self, module: str | None = None, **options: Any) -> None:
        self.module, self.options = module, options
        self.vitals: Watch | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._close("interrupted")
        step = trainer.global_step // max(1, len(trainer.optimizers))  # it counts each optimizer's
        options = self.options if trainer.is_global_zero else {**self.options, "run": None, "log": None}
        self.vitals = begin(network(pl_module, self.module), trainer.optimizers, step, options)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.vitals is None:
            return
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is not None and pl_module.automatic_optimization:
            loss = loss * trainer.accumulate_grad_batches  # Lightning has divided it
        self.vitals.step(loss)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._close("finished")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._close("interrupted" if isinstance(exception, KeyboardInterrupt) else "failed")

    def _close(self, status: str) -> None:
        if self.vitals is not None:
            self.vitals.close(status)


class PreflightCallback(PreflightFirst, Callback):
    """Checks a LightningModule before its first step (:func:`netvitals.preflight`); a failed check ends the fit.

    Args:
        stop: raise ``PreflightFailed`` where a check failed; False leaves it to you to read ``result``.
        options: passed to :func:`netvitals.preflight` (``batches``, ``seconds``, ``validation``).

    >>> PreflightCallback(stop=False).result is None  # give it to Trainer(callbacks=[...])
    True
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.check(trainer.global_step, pl_module, trainer.train_dataloader, list(trainer.optimizers))
