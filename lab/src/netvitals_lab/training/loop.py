"""The one training loop."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from netvitals_lab.data import Dataset, Split, batches
from netvitals_lab.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from netvitals_lab.training.history import Evaluation, History, Moment
from netvitals_lab.training.losses import Loss, correct, loss_named
from netvitals_lab.training.optimizer import make_optimizer, set_rate
from netvitals_lab.training.recipe import Recipe, multiplier, steps_of

TOKENS = 65_536  # that are evaluated at once: 32 windows of 2048, as the GPT recipe has it
Batches = Iterable[tuple[Tensor, Tensor]]
Hook = Callable[[Moment], Any]


def train(
    model: nn.Module,
    data: Dataset | Batches,
    recipe: Recipe,
    *,
    watch: Any = None,
    callback: Hook | None = None,
    on_step: Hook | None = None,
    optimizer: Optimizer | None = None,
    folder: str | Path | None = None,
    resume: str | Path | None = None,
) -> History:
    """Train ``model`` by ``recipe`` and say what happened.

    With one seed the run is the same every time, and torch's own generator is left as it was. A loss that is not
    finite ends the run before it reaches the weights; the history up to there is returned.

    >>> from netvitals_lab import data, models
    >>> digits = data.load("digits")
    >>> history = train(models.build("mlp:64-32-10", seed=0), digits, Recipe(epochs=3))
    >>> history.steps, history.accuracy > 0.8
    (36, True)
    """
    start = load_checkpoint(resume) if resume is not None else None
    modes = [(m, m.training) for m in model.modules()]
    with torch.random.fork_rng(devices=_accelerators(model)):
        torch.manual_seed(recipe.seed)
        run = _Run(model, data, recipe, optimizer, Path(folder) if folder is not None else None, start)
        made = watch is not None and not hasattr(watch, "step")
        run.watch = watch(model, run.optimizer) if made else watch
        run.callback, run.on_step = callback, on_step
        try:
            return run.go()
        finally:
            if made and hasattr(run.watch, "close"):
                run.watch.close()
            for module, mode in modes:
                module.training = mode


class _Run:
    """The moving parts of one call of :func:`train`."""

    watch: Any = None
    callback: Hook | None = None
    on_step: Hook | None = None

    def __init__(
        self,
        model: nn.Module,
        data: Dataset | Batches,
        recipe: Recipe,
        optimizer: Optimizer | None,
        folder: Path | None,
        start: Checkpoint | None,
    ):
        self.model, self.data, self.recipe, self.folder = model, data, recipe, folder
        self.loss_fn: Loss = loss_named(recipe.loss, data if isinstance(data, Dataset) else None)
        self.total, self.per_epoch = steps_of(recipe, data if isinstance(data, Dataset) else _length(data, recipe))
        self.optimizer = make_optimizer(model, recipe) if optimizer is None else optimizer
        for group in self.optimizer.param_groups:
            group.setdefault("base_lr", group["lr"])
        self.order = torch.Generator().manual_seed(recipe.seed)
        self.device = next(model.parameters()).device
        self.step, self.epoch = 0, -1
        self.loss: list[float] = []
        self.lr: list[float] = []
        self.grad_norm: list[float] = []
        self.evaluations: list[Evaluation] = []
        self.checkpoints: list[Path] = []
        self.stopped: str | None = None
        self.resumed = start is not None
        if start is not None:
            self._restore(start)

    def go(self) -> History:
        if not self.resumed:
            self._evaluate()
            self._save("init.pt")
            self._tell(self.callback)
        while self.step < self.total and self.stopped is None:
            before = self.step
            self.model.train()
            for group in _grouped(self._batches(), self.recipe.accumulate):
                if not self._advance(group) or self.step == self.total:
                    break
            if self.step > before:
                self._close_epoch()
            passed = self.recipe.steps is None and self.epoch + 1 >= self.recipe.epochs
            if (self.step == before or (passed and self.step < self.total)) and self.stopped is None:
                self.stopped = f"the loader ended early, after {self.step} of {self.total} steps"
        self._save("last.pt")
        recipe = self.recipe
        decay = math.fsum(self.lr) * recipe.hidden_lr * recipe.weight_decay
        return History(
            loss=tuple(self.loss),
            lr=tuple(self.lr),
            grad_norm=tuple(self.grad_norm),
            evaluations=tuple(self.evaluations),
            steps=self.step,
            total=self.total,
            decay=decay / (1 - recipe.momentum) if recipe.optimizer == "sgd" else decay,
            stopped=self.stopped,
            checkpoints=tuple(self.checkpoints),
        )

    def _batches(self) -> Batches:
        if isinstance(self.data, Dataset):
            return batches(
                self.data, self.recipe.batch, self.order, augment=self.recipe.augment, fresh=self.recipe.fresh
            )
        return self.data

    def _advance(self, group: list[tuple[Tensor, Tensor]]) -> bool:
        """One optimiser step over a group of batches; False when the run has to end."""
        total = 0.0
        self.optimizer.zero_grad()
        for x, y in group:
            with _autocast(self.recipe, self.device):
                loss = self.loss_fn(self.model(x.to(self.device)), y.to(self.device)) / len(group)
            value = loss.item()
            total += value
            if not math.isfinite(value):
                self.loss.append(total)
                self.lr.append(0.0)
                self.stopped = (
                    f"the loss became {value} at step {self.step} (epoch {self.epoch + 1}); lower the "
                    f"learning rate ({self.recipe.lr:g}), clip gradients, or warm up"
                )
                self.optimizer.zero_grad()
                return False
            loss.backward()
        if self.recipe.clip is not None:
            self.grad_norm.append(nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip).item())
        factor = multiplier(self.recipe, self.step, self.total, self.per_epoch)
        set_rate(self.optimizer, factor)
        self.optimizer.step()
        self.step += 1
        self.loss.append(total)
        self.lr.append(factor)
        self._tell(self.on_step)
        self.optimizer.zero_grad()
        if self.watch is not None:
            self.watch.step(total)
        if self.recipe.evaluate_every and self.step % self.recipe.evaluate_every == 0:
            self._evaluate()
            self.model.train()
        return self.stopped is None

    def _close_epoch(self) -> None:
        self.epoch += 1
        if not self.recipe.evaluate_every or self.step == self.total:
            self._evaluate()
        self._tell(self.callback)
        every = self.recipe.checkpoint_every
        if every and (self.epoch + 1) % every == 0:
            self._save(f"epoch-{self.epoch + 1:04d}.pt")

    def _evaluate(self) -> None:
        done = self.evaluations and self.evaluations[-1].step == self.step
        if isinstance(self.data, Dataset) and not done and self.recipe.evaluate_on != 0:
            self.evaluations.append(
                evaluate(
                    self.model,
                    self.data.test,
                    self.loss_fn,
                    step=self.step,
                    epoch=self.epoch,
                    examples=self.recipe.evaluate_on,
                )
            )

    def _tell(self, hook: Hook | None) -> None:
        if hook is None or self.stopped is not None:
            return
        last = self.evaluations[-1] if self.evaluations and self.evaluations[-1].step == self.step else None
        moment = Moment(
            step=self.step,
            epoch=self.epoch,
            loss=self.loss[-1] if self.loss else math.nan,
            model=self.model,
            optimizer=self.optimizer,
            evaluation=last,
        )
        if hook(moment) is True:
            self.stopped = f"a hook ended the run after {self.step} of {self.total} steps"

    def _save(self, name: str) -> None:
        if self.folder is not None:
            path = save_checkpoint(
                self.folder / name,
                self.model,
                self.optimizer,
                self.recipe,
                step=self.step,
                epoch=self.epoch,
                order=self.order,
                loss=self.loss,
                lr=self.lr,
                grad_norm=self.grad_norm,
                evaluations=self.evaluations,
            )
            self.checkpoints.append(path)

    def _restore(self, start: Checkpoint) -> None:
        self.model.load_state_dict(start.model)
        self.optimizer.load_state_dict(start.optimizer)
        self.order.set_state(start.order)
        torch.set_rng_state(start.rng)
        self.step, self.epoch = start.step, start.epoch
        self.loss, self.lr, self.grad_norm = list(start.loss), list(start.lr), list(start.grad_norm)
        self.evaluations = list(start.evaluations)


def gradient_step(optimizer: Optimizer, loss: Tensor) -> None:
    """One step of an optimizer down the gradient of ``loss``; whatever gradients there were are dropped.

    >>> weight = nn.Parameter(torch.ones(1))
    >>> optimizer = torch.optim.SGD([weight], lr=0.1)
    >>> for _ in range(2):
    ...     gradient_step(optimizer, weight.square().sum())
    >>> round(weight.item(), 2)
    0.64
    """
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@torch.no_grad()
def evaluate(
    model: nn.Module,
    split: Split,
    loss: Loss | str = "ce",
    *,
    batch: int = 1024,
    step: int = 0,
    epoch: int = -1,
    examples: int | None = None,
) -> Evaluation:
    """Loss and accuracy on a split, in eval mode; modes are put back. Long token windows go in fewer at a time."""
    loss_fn = loss_named(loss) if isinstance(loss, str) else loss
    device = next(model.parameters()).device
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    if len(split) and not split.x.is_floating_point():
        batch = min(batch, max(1, TOKENS // split.x[0].numel()))
    count = len(split) if examples is None else min(examples, len(split))
    total, right, entries = 0.0, 0.0, 0
    try:
        for begin in range(0, count, batch):
            x, y = split.x[begin : min(begin + batch, count)], split.y[begin : min(begin + batch, count)]
            outputs, y = model(x.to(device)), y.to(device)
            total += loss_fn(outputs, y).item() * len(x)
            hits = correct(outputs, y)
            if hits is not None:
                right, entries = right + hits.sum().item(), entries + hits.numel()
    finally:
        for module, mode in modes:
            module.training = mode
    return Evaluation(
        step=step,
        epoch=epoch,
        loss=total / max(count, 1),
        accuracy=right / entries if entries else None,
        examples=count,
    )


def _length(data: Batches, recipe: Recipe) -> int:
    try:
        return len(data)  # type: ignore[arg-type]
    except TypeError:
        if recipe.steps is None:
            raise ValueError("this loader does not say how long it is; give the recipe its number of steps") from None
        return max(recipe.steps * recipe.accumulate, 1)


def _grouped(pairs: Batches, size: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
    iterator = iter(pairs)
    while group := list(itertools.islice(iterator, size)):
        yield group


def _autocast(recipe: Recipe, device: torch.device) -> AbstractContextManager[Any]:
    if recipe.autocast is None:
        return nullcontext()
    return torch.autocast(device.type, getattr(torch, recipe.autocast))


def _accelerators(model: nn.Module) -> list[int]:
    return sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
