"""Many seeds of one small network, trained at once.

A small network spends most of a training step on the way to its few multiplications. Stacked, K seeds share that way:
one batched product per layer, one optimiser step over all. The numbers are those of a loop over seeds, up to rounding.
Adam magnifies rounding where a gradient is zero in theory, as for a bias in front of a batch norm: there the two agree
in what the network computes, not in that bias.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from netvitals_lab import models
from netvitals_lab.data import Dataset, Split, crop_flip, order, steps_per_epoch
from netvitals_lab.training.ensemble_history import EnsembleEvaluation, EnsembleHistory, EnsembleMoment
from netvitals_lab.training.losses import correct, loss_named, per_example
from netvitals_lab.training.optimizer import make_optimizer, set_rate
from netvitals_lab.training.recipe import Recipe, multiplier, steps_of
from netvitals_lab.training.stacked import stacked_forward

Hook = Callable[[EnsembleMoment], Any]


class Ensemble:
    """K seeds of one network with stacked parameters.

    ``parameters`` and ``buffers`` hold, under the names of one network, tensors with the seeds along the first
    dimension. Calling the ensemble on inputs (N, ...) gives outputs (K, N, ...).

    >>> from netvitals_lab import data
    >>> ensemble = Ensemble("mlp:64-32-10", seeds=range(4))
    >>> history = ensemble.train(data.load("digits"), Recipe(epochs=3))
    >>> history.loss.shape, bool(history.accuracy.min() > 0.8)
    (torch.Size([36, 4]), True)
    """

    def __init__(self, spec: Any, seeds: Sequence[int], *, data: Dataset | None = None, **overrides: Any):
        self.seeds = tuple(int(s) for s in seeds)
        if not self.seeds:
            raise ValueError("an ensemble needs at least one seed")
        if isinstance(spec, list | tuple):
            members = list(spec)
            if len(members) != len(self.seeds):
                raise ValueError(f"{len(members)} networks need as many seeds, got {len(self.seeds)}")
        else:
            members = [models.build(spec, seed=s, data=data, **overrides) for s in self.seeds]
        self.template: nn.Module = copy.deepcopy(members[0])
        shapes = [{n: t.shape for n, t in m.state_dict().items()} for m in members]
        if any(s != shapes[0] for s in shapes):
            raise ValueError("the networks of an ensemble must have the same parameters and shapes")
        self.parameters = {
            n: torch.stack([m.get_parameter(n).detach() for m in members]).requires_grad_()
            for n, _ in members[0].named_parameters()
        }
        self.buffers = {
            n: torch.stack([m.get_buffer(n).detach() for m in members]) for n, _ in members[0].named_buffers()
        }
        self._forward = stacked_forward(self.template)

    def __len__(self) -> int:
        return len(self.seeds)

    def __call__(self, x: Tensor, *, each: bool = False) -> Tensor:
        """Outputs (K, N, ...) for inputs (N, ...), or for (K, N, ...) when ``each`` seed has its own inputs."""
        return self._forward(self.parameters, self.buffers, x, each=each)

    @property
    def device(self) -> torch.device:
        return next(iter(self.parameters.values())).device

    def train_mode(self, mode: bool = True) -> Ensemble:
        self.template.train(mode)
        return self

    def member(self, index: int) -> nn.Module:
        """A network of its own with the values of one seed, to be measured or saved."""
        network = copy.deepcopy(self.template)
        values = {**self.parameters, **self.buffers}
        network.load_state_dict(
            {n: values[n][index].detach().clone() for n in network.state_dict() if n in values}, strict=False
        )
        for p in network.parameters():
            p.grad = None
        return network

    def members(self) -> list[nn.Module]:
        return [self.member(k) for k in range(len(self))]

    @torch.no_grad()
    def evaluate(
        self, split: Split, loss: str = "ce", *, batch: int = 1024, step: int = 0, epoch: int = -1
    ) -> EnsembleEvaluation:
        """Loss and accuracy of every seed, in eval mode."""
        modes = [(m, m.training) for m in self.template.modules()]
        self.template.eval()
        total, right = torch.zeros(2, len(self), device=self.device)
        entries = 0
        try:
            for x, y in zip(split.x.split(batch), split.y.split(batch)):
                outputs = self(x.to(self.device))
                targets = y.to(self.device).expand(len(self), *y.shape)
                total += per_example(loss, outputs, targets).sum(1)
                hits = correct(outputs, targets)
                if hits is not None:
                    right, entries = right + hits.flatten(1).sum(1), entries + y.numel()
        finally:
            for module, mode in modes:
                module.training = mode
        return EnsembleEvaluation(step, epoch, total / len(split), right / entries if entries else None)

    def train(
        self,
        data: Dataset,
        recipe: Recipe,
        *,
        callback: Hook | None = None,
        on_step: Hook | None = None,
        rows: Tensor | None = None,
    ) -> EnsembleHistory:
        """Train every seed as :func:`netvitals_lab.training.train` would with ``recipe.seed`` set to that seed.

        A seed whose loss is not finite keeps the weights it had before and is named in ``diverged``; the others
        go on.
        """
        if recipe.accumulate > 1 or recipe.autocast is not None or recipe.optimizer == "muon":
            raise ValueError(
                "an ensemble trains with sgd, adam or adamw, without accumulation or autocast; "
                f"got optimizer={recipe.optimizer!r}, accumulate={recipe.accumulate}, "
                f"autocast={recipe.autocast!r}"
            )
        if rows is not None:
            if rows.ndim != 3 or len(rows) != len(self):
                raise ValueError(f"rows must be (seeds={len(self)}, steps, batch), got {tuple(rows.shape)}")
            recipe = replace(recipe, steps=rows.shape[1], batch=rows.shape[2])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seeds[0])
            return _Training(self, data, recipe, callback, on_step, rows).go()


class _Training:
    """The moving parts of one call of :meth:`Ensemble.train`."""

    def __init__(
        self,
        ensemble: Ensemble,
        data: Dataset,
        recipe: Recipe,
        callback: Hook | None,
        on_step: Hook | None,
        rows: Tensor | None,
    ):
        self.ensemble, self.data, self.recipe, self.rows = ensemble, data, recipe, rows
        self.callback, self.on_step = callback, on_step
        loss = loss_named(recipe.loss, data)
        self.loss_name = loss.__name__.replace("_", "-")
        self.total, self.per_epoch = steps_of(recipe, data)
        self.leaves = list(ensemble.parameters.values())
        self.ones = torch.ones(len(ensemble), dtype=self.leaves[0].dtype, device=ensemble.device)
        options = {"fused": True} if ensemble.device.type == "cpu" else {}
        self.optimizer = make_optimizer(ensemble.template, recipe, ensemble.parameters, **options)
        self.generators = [torch.Generator().manual_seed(s) for s in ensemble.seeds]
        self.step, self.epoch = 0, -1
        self.loss: list[Tensor] = []
        self.lr: list[float] = []
        self.evaluations: list[EnsembleEvaluation] = []
        self.diverged: dict[int, int] = {}
        self.kept: dict[int, tuple[dict[str, Tensor], dict[str, Tensor]]] = {}
        self.stopped: str | None = None

    def go(self) -> EnsembleHistory:
        ensemble, recipe = self.ensemble, self.recipe
        modes = [(m, m.training) for m in ensemble.template.modules()]
        try:
            self._evaluate()
            self._tell(self.callback)
            while self.step < self.total and self.stopped is None:
                ensemble.template.train()
                for x, y in self._batches():
                    self._advance(x, y)
                    if self.step == self.total or self.stopped is not None:
                        break
                self.epoch += 1
                if not recipe.evaluate_every or self.step == self.total:
                    self._evaluate()
                self._tell(self.callback)
        finally:
            self._put_back()
            for module, mode in modes:
                module.training = mode
        decay = math.fsum(self.lr) * recipe.lr * recipe.weight_decay
        losses = torch.stack(self.loss) if self.loss else torch.zeros(0, len(ensemble))
        return EnsembleHistory(
            seeds=ensemble.seeds,
            loss=losses,
            lr=tuple(self.lr),
            evaluations=tuple(self.evaluations),
            steps=self.step,
            total=self.total,
            decay=decay / (1 - recipe.momentum) if recipe.optimizer == "sgd" else decay,
            diverged=self.diverged,
            stopped=self.stopped,
        )

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(K, B, ...) inputs and (K, B, ...) targets, every seed in its own order."""
        data, recipe = self.data, self.recipe
        if recipe.fresh:
            if data.draw is None:
                raise ValueError(f"{data.name} is a fixed set of examples and cannot be drawn afresh")
            for _ in range(steps_per_epoch(len(data.train), recipe.batch)):
                drawn = [data.draw(recipe.batch, g) for g in self.generators]
                yield torch.stack([x for x, _ in drawn]), torch.stack([y for _, y in drawn])
            return
        for index in self._numbers():
            flat = index.reshape(-1)
            x = data.train.x.index_select(0, flat).unflatten(0, index.shape)
            y = data.train.y.index_select(0, flat).unflatten(0, index.shape)
            yield (self._augmented(x) if recipe.augment else x), y

    def _numbers(self) -> Iterator[Tensor]:
        if self.rows is not None:
            yield from self.rows[:, self.step : self.step + self.per_epoch].unbind(1)
            return
        pieces = [order(len(self.data.train), self.recipe.batch, g) for g in self.generators]
        yield from (torch.stack(part) for part in zip(*pieces))

    def _augmented(self, x: Tensor) -> Tensor:
        return torch.stack([crop_flip(images, g, fill=self.data.black) for images, g in zip(x, self.generators)])

    def _advance(self, x: Tensor, y: Tensor) -> None:
        ensemble, recipe = self.ensemble, self.recipe
        loss = per_example(self.loss_name, ensemble(x.to(ensemble.device), each=True), y.to(ensemble.device)).mean(1)
        detached = loss.detach()
        if not torch.isfinite(detached.sum()):
            self._note_divergence(detached)
        for p, gradient in zip(self.leaves, torch.autograd.grad(loss, self.leaves, self.ones)):
            p.grad = gradient.contiguous()  # the fused optimisers read memory in order, whatever the strides say
        if recipe.clip is not None:
            self._clip(recipe.clip)
        factor = multiplier(recipe, self.step, self.total, self.per_epoch)
        set_rate(self.optimizer, factor)
        self.optimizer.step()
        self.step += 1
        self.loss.append(detached)
        self.lr.append(factor)
        self._tell(self.on_step)
        if recipe.evaluate_every and self.step % recipe.evaluate_every == 0:
            self._evaluate()
        if len(self.diverged) == len(ensemble):
            self.stopped = f"the loss of every seed became non-finite by step {self.step - 1}; lower the learning rate"

    @torch.no_grad()
    def _clip(self, largest: float) -> None:
        """Clip the gradient of each seed by its own norm."""
        grads = [p.grad for p in self.leaves if p.grad is not None]
        norm = torch.stack([g.flatten(1).square().sum(1) for g in grads]).sum(0).sqrt()
        factor = (largest / (norm + 1e-6)).clamp(max=1.0)
        for g in grads:
            g.mul_(factor.view(-1, *[1] * (g.ndim - 1)))

    def _note_divergence(self, loss: Tensor) -> None:
        ensemble = self.ensemble
        for k, value in enumerate(loss.tolist()):
            seed = ensemble.seeds[k]
            if not math.isfinite(value) and seed not in self.diverged:
                self.diverged[seed] = self.step
                self.kept[k] = (
                    {n: p[k].detach().clone() for n, p in ensemble.parameters.items()},
                    {n: b[k].clone() for n, b in ensemble.buffers.items()},
                )

    @torch.no_grad()
    def _put_back(self) -> None:
        for p in self.leaves:
            p.grad = None
        for k, (parameters, buffers) in self.kept.items():
            for n, value in parameters.items():
                self.ensemble.parameters[n][k] = value
            for n, value in buffers.items():
                self.ensemble.buffers[n][k] = value

    def _evaluate(self) -> None:
        done = self.evaluations and self.evaluations[-1].step == self.step
        if done or self.recipe.evaluate_on == 0:
            return
        test = self.data.test if self.recipe.evaluate_on is None else self.data.test[: self.recipe.evaluate_on]
        self.evaluations.append(self.ensemble.evaluate(test, self.loss_name, step=self.step, epoch=self.epoch))

    def _tell(self, hook: Hook | None) -> None:
        if hook is None or self.stopped is not None:
            return
        last = self.evaluations[-1] if self.evaluations and self.evaluations[-1].step == self.step else None
        if (
            hook(
                EnsembleMoment(
                    step=self.step,
                    epoch=self.epoch,
                    ensemble=self.ensemble,
                    loss=self.loss[-1] if self.loss else None,
                    evaluation=last,
                )
            )
            is True
        ):
            self.stopped = f"a hook ended the run after {self.step} of {self.total} steps"
