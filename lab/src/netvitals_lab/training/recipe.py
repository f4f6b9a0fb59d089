r"""How a network is trained, as one value: optimiser, rates, schedule, decay, batches, seed.

The integrated decay

.. math:: S = \sum_t \frac{η_t λ}{1 − μ} \text{ (SGD)}, \qquad S = \sum_t η_t λ \text{ (AdamW, Muon)}

is what decides how far weight decay alone shrinks a parameter: by the factor e^{−S}. A short run that is to show what
a long one shows needs the same S, not the same λ; :func:`match_decay` finds that λ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from netvitals_lab import spec as grammar
from netvitals_lab.data import Dataset, steps_per_epoch

OPTIMIZERS = ("sgd", "adam", "adamw", "muon")
SCHEDULES = ("cosine", "cosine-epoch", "constant", "trapezoid")


@dataclass(frozen=True)
class Group:
    """Parameters with a learning rate and decay of their own.

    A parameter belongs to the first group whose ``names`` (a regular expression) is found in its name and whose
    ``kinds`` holds its kind: ``matrix``, ``bias``, ``norm`` or ``embedding``.
    """

    names: str = ""
    kinds: tuple[str, ...] = ("matrix", "bias", "norm", "embedding")
    lr: float = 1.0  # times the recipe's rate
    weight_decay: float | None = None  # instead of the recipe's


@dataclass(frozen=True)
class Recipe:
    """The defaults are those of the gate-density paper: Nesterov SGD, cosine from 0.1, decay on every parameter."""

    epochs: int = 25
    steps: int | None = None  # optimiser steps; instead of epochs
    batch: int = 128
    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 5e-4  # coupled for sgd and adam, decoupled for adamw and muon
    groups: tuple[Group, ...] = ()
    muon_lr: float | None = None  # of hidden matrices; a tenth of lr when None
    schedule: str = "cosine"
    warmup: int = 0  # steps
    warmdown: int = 0  # steps, for the trapezoid
    clip: float | None = None  # largest gradient norm
    accumulate: int = 1  # batches per optimiser step
    loss: str = "auto"
    augment: bool | str = False  # crop and flip; "resized" for random parts of 70 to 100 % of the area
    fresh: bool = False  # draw synthetic examples anew at every step
    autocast: str | None = None  # bfloat16 or float16
    evaluate_every: int | None = None  # optimiser steps between evaluations; every epoch when None
    evaluate_on: int | None = None  # test examples used: all when None, no evaluation when 0
    checkpoint_every: int | None = None  # epochs between checkpoints, when there is a folder for them
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, known in (("optimizer", self.optimizer, OPTIMIZERS), ("schedule", self.schedule, SCHEDULES)):
            if value not in known:
                raise ValueError(f"there is no {name} {value!r}; did you mean {grammar.nearest(value, known)}?")
        for name in ("batch", "accumulate"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.epochs < 0 or (self.steps is not None and self.steps < 0):
            raise ValueError(f"a recipe needs epochs >= 0 or steps >= 0, got epochs={self.epochs}, steps={self.steps}")
        if not self.lr >= 0 or not self.weight_decay >= 0 or not 0 <= self.momentum < 1:
            raise ValueError(
                f"a recipe needs lr >= 0, weight_decay >= 0 and 0 <= momentum < 1, got lr={self.lr}, "
                f"weight_decay={self.weight_decay}, momentum={self.momentum}"
            )

    @property
    def hidden_lr(self) -> float:
        """The rate of the hidden matrices: Muon's own, or the one of everything else."""
        if self.optimizer != "muon":
            return self.lr
        return 0.1 * self.lr if self.muon_lr is None else self.muon_lr


# the papers' own settings, under the names of their studies
RECIPES: dict[str, Recipe] = {
    "gate-density": Recipe(augment=True),
    "gate-density-adam": Recipe(optimizer="adam", lr=1e-3, augment=True),
    "gate-density-adamw": Recipe(optimizer="adamw", lr=1e-3, augment=True),
    "fine-tune": Recipe(epochs=5, batch=64, lr=0.01),
    "dag-hessian": Recipe(epochs=50, lr=0.01, nesterov=False, weight_decay=1e-4, schedule="cosine-epoch", clip=1.0),
    "dag-hessian-resnet": Recipe(epochs=100, nesterov=False, schedule="cosine-epoch", augment=True),
    "dag-hessian-attention": Recipe(
        epochs=30, optimizer="adam", lr=1e-3, weight_decay=1e-4, schedule="cosine-epoch", clip=1.0, loss="mse"
    ),
    "gpt-nano": Recipe(
        steps=7168,
        batch=16,
        accumulate=16,
        optimizer="muon",
        lr=5e-3,
        muon_lr=5e-4,
        betas=(0.9, 0.95),
        weight_decay=0.0,
        schedule="trapezoid",
        warmup=2000,
        warmdown=2028,
        loss="lm",
        evaluate_every=1024,
        evaluate_on=512,
        autocast="bfloat16",
    ),
    "gpt-micro": Recipe(
        steps=250,
        batch=16,
        optimizer="muon",
        lr=5e-3,
        muon_lr=2e-3,
        betas=(0.9, 0.95),
        weight_decay=0.0,
        schedule="trapezoid",
        warmup=25,
        warmdown=70,
        loss="lm",
    ),
}


def recipe_named(name: str = "gate-density", **overrides: Any) -> Recipe:
    """A paper's recipe by name, with some fields changed.

    >>> recipe_named("dag-hessian", epochs=20).clip
    1.0
    """
    if name not in RECIPES:
        raise ValueError(f"there is no recipe {name!r}; did you mean {grammar.nearest(name, RECIPES)}?")
    return replace(RECIPES[name], **overrides)


def steps_of(recipe: Recipe, data: Dataset | int) -> tuple[int, int]:
    """(optimiser steps in all, per epoch) of a recipe on a dataset, or on a loader of so many batches.

    >>> steps_of(Recipe(epochs=25), 391)
    (9775, 391)
    """
    batches = data if isinstance(data, int) else steps_per_epoch(len(data.train), recipe.batch)
    epoch = math.ceil(batches / recipe.accumulate)
    return (recipe.steps if recipe.steps is not None else recipe.epochs * epoch), epoch


def multiplier(recipe: Recipe, step: int, total: int, per_epoch: int) -> float:
    """The factor on the learning rate at a step t of T.

    ``cosine`` ½(1 + cos πt/T) by step, ``cosine-epoch`` the same by whole epochs, ``constant`` 1, ``trapezoid``
    (t+1)/warmup, then 1, then (T−t)/warmdown. Any schedule may begin with a warm-up, which counts as steps of its own.

    >>> trapezoid = Recipe(schedule="trapezoid", warmup=4, warmdown=5)
    >>> [multiplier(trapezoid, t, 12, 1) for t in (0, 3, 4, 6, 7, 11)]
    [0.25, 1.0, 1.0, 1.0, 1.0, 0.2]
    """
    if step < recipe.warmup:
        return (step + 1) / recipe.warmup
    if recipe.schedule == "constant":
        return 1.0
    if recipe.schedule == "trapezoid":
        return min(1.0, (total - step) / recipe.warmdown) if recipe.warmdown else 1.0
    done, span = step - recipe.warmup, total - recipe.warmup
    if recipe.schedule == "cosine-epoch":
        done, span = done // per_epoch, math.ceil(span / per_epoch)
    return 0.5 * (1 + math.cos(math.pi * done / max(span, 1)))


def integrated_decay(recipe: Recipe, data: Dataset | int) -> float:
    """S over the whole schedule; ``data`` is a dataset or the number of batches in an epoch.

    For ``muon`` it is the S of the hidden matrices. For ``adam`` the decay goes through the preconditioner and does
    not shrink a parameter by e^(−S): the sum Ση_tλ returned is only its name-sake.

    >>> round(integrated_decay(Recipe(), 391), 2)
    2.44
    """
    return _rate_sum(recipe, data) * recipe.weight_decay


def match_decay(recipe: Recipe, target: float, data: Dataset | int) -> Recipe:
    """The same recipe with the weight decay that makes the integrated decay equal to ``target``.

    >>> short = match_decay(Recipe(epochs=2), 2.44, 20)
    >>> round(short.weight_decay, 4), round(integrated_decay(short, 20), 2)
    (0.119, 2.44)
    """
    if not target >= 0:
        raise ValueError(f"the integrated decay cannot be negative, got {target}")
    rates = _rate_sum(recipe, data)
    if rates == 0:
        raise ValueError("this recipe takes no step with a positive learning rate, so no decay can be matched")
    return replace(recipe, weight_decay=target / rates)


def _rate_sum(recipe: Recipe, data: Dataset | int) -> float:
    total, epoch = steps_of(recipe, data)
    rates = recipe.hidden_lr * math.fsum(multiplier(recipe, t, total, epoch) for t in range(total))
    return rates / (1 - recipe.momentum) if recipe.optimizer == "sgd" else rates
