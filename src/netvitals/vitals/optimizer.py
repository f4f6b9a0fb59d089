r"""The optimizer: its settings group by group on each measured step, and what its schedule still holds.

With learning rate $\eta_t$ and decay $\lambda_t$: ``decay`` is the share of a weight that a step takes away:
$\eta\lambda$ for decoupled decay, $\eta\lambda/(1-\mu)$ for SGD with momentum μ, and
$\eta\lambda\,\overline{1/(\sqrt{\hat v}+\epsilon)}$ for Adam with decay in the gradient.
``decay_past`` and ``decay_rest`` are its sums since the watch began and to the end of
training, the integrated decay.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from netvitals.capture import Metric, ParameterView, Recorder, Vital, WatchContext, local
from netvitals.optim import FutureRates, RatePlan, group_settings

MOMENTS_EVERY = 2  # looks: the second moments of Adam are read in one pass over the parameters

KEPT = 64  # looks may wait that long to be finished
SETTINGS = ("lr", "weight_decay", "momentum", "beta2")

Spent = tuple[RatePlan, np.ndarray, np.ndarray]  # from here on; sums of rates and of decays until here


class OptimizerSettings(Vital):
    """Learning rate, decay, momentum and β₂ of every group (sites ``group 0``, ``group 1``, …), what they come to, and
    what the schedule holds from here to the end, where the length of training is known.

    ``plan`` is the latest :class:`~netvitals.optim.schedules.RatePlan`. Several optimizers are counted through.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    >>> with netvitals.watch(net, opt, every=1, vitals=["optimizer"]) as seen:
    ...     for _ in range(2):
    ...         loss = net(torch.randn(16, 4)).square().mean()
    ...         opt.zero_grad(); loss.backward(); opt.step()
    >>> {r.metric: r.value for r in seen.measurements if r.metric in ("lr", "momentum")}
    {'lr': 0.1, 'momentum': 0.9}
    """

    name = "optimizer"
    title = "Optimizer"
    meaning = (
        "Settings of each parameter group, and how much learning rate and weight decay the schedule still applies "
        "until the end of training. They limit how much the weights can still change."
    )
    metrics: ClassVar = {
        "lr": Metric("learning rate at this step"),
        "weight_decay": Metric("weight decay coefficient"),
        "momentum": Metric("momentum of SGD, or β₁ of Adam"),
        "beta2": Metric("coefficient β₂ of Adam, or α of RMSprop"),
        "effective_lr": Metric("update per gradient: lr/(1 − momentum) for SGD, mean of lr/(√v + ε) for Adam"),
        "decay": Metric("fraction of each weight that weight decay removes in this step", "share"),
        "lr_past": Metric("sum of learning rates since the start of watching"),
        "decay_past": Metric("integrated weight decay since the start of watching"),
        "lr_rest": Metric("sum of the learning rates from now to the end of training"),
        "decay_rest": Metric("integrated weight decay from now to the end of training"),
    }
    absent = "no torch optimizer that holds parameters of the model was seen"
    headline = ("lr", "decay_rest", "effective_lr")
    default = True
    training_only = True
    every = 2
    reads_steps = False
    takes_pieces = True

    def __init__(self) -> None:
        self.plan: RatePlan | None = None  # of the first optimizer, as of the last look
        self.plans: dict[int, RatePlan] = {}  # the same by step, of the last looks
        self._futures: list[FutureRates] = []
        self._of: list[Any] = []
        self._context: WatchContext | None = None
        self._looks = 0
        self._last: list[tuple[int, RatePlan]] = []
        self._past: list[tuple[np.ndarray, np.ndarray]] = []  # sums of rates and of decays, by optimizer
        self._sizes: dict[tuple[int, int], float] = {}  # 1/(√v + ε) by optimizer and group

    def begin(self, context: WatchContext) -> None:
        self.__init__()  # type: ignore[misc]  # a vital sign may be used for one watch after another
        self._context = context

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        optimizers = () if self._context is None else self._context.known_optimizers()
        if not optimizers:
            return
        if [id(o) for o in optimizers] != [id(o) for o in self._of]:
            self._follow(optimizers)
        number, due = 0, self._looks % MOMENTS_EVERY == 0
        self._looks += 1
        for place, optimizer in enumerate(optimizers):
            sites = [f"group {number + i}" for i in range(len(optimizer.param_groups))]
            number += len(sites)
            moments = [t for i, g in enumerate(optimizer.param_groups) if (t := _moments(optimizer, g, i, due))[1]]
            tensors = [one for _, found in moments for one in found]
            indices = [i for i, found in moments for _ in found]
            settings = self._settings(optimizer)
            spent = self._note(recorder.step, place, optimizer, settings)
            recorder.on_host(tensors, partial(self._finish, recorder, place, sites, indices, settings, spent))

    def _follow(self, optimizers: tuple[Any, ...]) -> None:
        assert self._context is not None
        scheduler, total = self._context.scheduler, self._context.total_steps
        given = list(scheduler) if isinstance(scheduler, list | tuple) else [scheduler]
        mine = lambda o: next((s for s in given if getattr(s, "optimizer", None) is o), None)
        only = given[0] if len(optimizers) == 1 else None
        self._futures = [FutureRates(o, only if only is not None else mine(o), total) for o in optimizers]
        self._of, self._last, self._past = list(optimizers), [], []

    def _settings(self, optimizer: Any) -> list[dict[str, float]]:
        name = type(optimizer).__name__
        return [{k: float(v) for k, v in group_settings(g, name).items()} for g in optimizer.param_groups]

    def _note(self, step: int, place: int, optimizer: Any, settings: list[dict[str, float]]) -> Spent:
        """The plan of this step, and the sums of rates and decays since the watch began."""
        gains = [self._gain(s, place, i) for i, s in enumerate(settings)]
        decays = [s["weight_decay"] * (1.0 if s["decoupled"] else g) for s, g in zip(settings, gains)]
        plan = self._futures[place].plan(optimizer, step, gains, decays)
        if place < len(self._last):
            last, before = self._last[place]
            spent = before.rates(last, step) if before.source != "constant" else _trapezoid(before, plan, last, step)
            rates, past = self._past[place]
            self._past[place] = (rates + spent, past + spent * np.array(before.decay))
            self._last[place] = (step, plan)
        else:
            self._last.append((step, plan))
            self._past.append((np.zeros(plan.groups), np.zeros(plan.groups)))
        if place == 0:
            self.plan = self.plans[step] = plan
            if len(self.plans) > KEPT:
                self.plans.pop(next(iter(self.plans)))
        return plan, *self._past[place]

    def _gain(self, settings: dict[str, float], place: int, group: int) -> float:
        if math.isfinite(settings["beta2"]):
            return self._sizes.get((place, group), 1.0)
        return 1 / (1 - settings["momentum"]) if settings["momentum"] < 1 else math.inf

    def _finish(
        self,
        recorder: Recorder,
        place: int,
        sites: list[str],
        indices: list[int],
        settings: list[dict[str, float]],
        spent: Spent,
        *moments: np.ndarray,
    ) -> None:
        for group in set(indices):
            found = [m for i, m in zip(indices, moments) if i == group]  # (sum of 1/(√v + ε), entries)
            self._sizes[place, group] = float(sum(m[0] for m in found) / max(1.0, sum(m[1] for m in found)))
        plan, rates, past = spent
        for i, (site, s) in enumerate(zip(sites, settings)):
            gain = self._gain(s, place, i)
            numbers = {key: s[key] for key in SETTINGS if math.isfinite(s[key])}
            numbers["effective_lr"] = s["lr"] * gain
            numbers["decay"] = s["lr"] * s["weight_decay"] * (1.0 if s["decoupled"] else gain)
            numbers["lr_past"], numbers["decay_past"] = float(rates[i]), float(past[i])
            if plan.end is not None and plan.end >= recorder.step:
                numbers["lr_rest"] = float(plan.rates(recorder.step, plan.end)[i])
                numbers["decay_rest"] = float(plan.decays(recorder.step, plan.end)[i])
            recorder.put(site, tuple(numbers), np.array(list(numbers.values())))
        recorder.skipped.update(plan.skipped)


def _moments(optimizer: Any, group: Any, index: int, due: bool) -> tuple[int, list[Tensor]]:
    """For a group of Adam's: the sum of 1/(√v̂ + ε) and the number of entries, by tensor, still on the device."""
    if not due or "betas" not in group:
        return index, []
    found = []
    for p in group["params"]:
        state = optimizer.state.get(p) or {}
        v = state.get("exp_avg_sq")
        v = local(v) if isinstance(v, Tensor) else v  # of a tensor in pieces the mean over this rank's stands for all
        if isinstance(v, Tensor) and v.numel():
            step = state.get("step", 1)
            corrected = 1 - group["betas"][1] ** torch.as_tensor(step, dtype=torch.float64, device=v.device)
            size = (v / corrected.to(v.dtype)).sqrt_().add_(group.get("eps", 0.0)).reciprocal_()
            found.append(torch.stack([size.sum(), size.new_tensor(float(size.numel()))]))
    return index, found


def _trapezoid(before: RatePlan, now: RatePlan, first: int, last: int) -> np.ndarray:
    """Sum of rates between two looks where nobody knows what was between."""
    return (before.lr[0] + now.lr[0]) / 2 * (last - first)
