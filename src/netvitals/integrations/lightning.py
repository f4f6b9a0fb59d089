"""A Lightning callback: ``Trainer(callbacks=[VitalsCallback(run="runs/first")])``. Needs the extra ``lightning``."""

from __future__ import annotations

from typing import Any

from torch import nn

from netvitals._extras import missing
from netvitals.watch import Watch, watch

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    raise missing("the Lightning callback", "lightning") from None


class VitalsCallback(Callback):
    """Watches the network of a LightningModule while it is fitted.

    A LightningModule is seldom called itself: its ``training_step`` calls a network inside it. That network is watched.

    Args:
        module: dotted name of the network inside the LightningModule; found by itself where only one child has
            parameters.
        options: passed to :func:`netvitals.watch` (``run``, ``every``, ``probe``, ``vitals``).
    """

    def __init__(self, module: str | None = None, **options: Any) -> None:
        self.module, self.options = module, options
        self.vitals: Watch | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.vitals = watch(network(pl_module, self.module), optimizer=trainer.optimizers, **self.options)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.vitals is not None:
            self.vitals.step(outputs["loss"] if isinstance(outputs, dict) else outputs)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._close("finished")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._close("failed")

    def _close(self, status: str) -> None:
        if self.vitals is not None:
            self.vitals.close(status)


def network(module: nn.Module, name: str | None = None) -> nn.Module:
    """The network that a wrapper's training step calls."""
    if name is not None:
        return module.get_submodule(name)
    inside = {n: m for n, m in module.named_children() if any(True for _ in m.parameters())}
    own = any(True for _ in module.parameters(recurse=False))
    if len(inside) == 1 and not own:
        return next(iter(inside.values()))
    raise ValueError(
        f"{type(module).__name__} has {len(inside)} children with parameters "
        f"({', '.join(inside) or 'none'}); say which one training_step calls: VitalsCallback(module='…')"
    )
