r"""The sign of the gradient at initialisation, over re-initialisations of a model.

All examples of one initialisation share the weights downstream, so only a new initialisation is a new draw. For K of
them: one forward and one backward pass over the same batch, and the gradient-sign statistics of every activation

$$g_{pos} = E[g \mid p > 0], \quad g_{all} = E[g], \quad \rho = \frac{\sum g}{\sum |g|}, \quad
\mathrm{slope} = \frac{\sum a g}{\sum a^2}$$

together with the split $E[g x] = E[g]E[x] + \mathrm{Cov}$ of every weight's mean gradient; $g$ is the gradient of one
example's loss with respect to the pre-activation $p$, and $a$ the activation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from netvitals._plot import Plot, Series
from netvitals.capture import (
    ActivationView,
    LinearView,
    LossFn,
    Mode,
    Only,
    Progress,
    Recorder,
    Result,
    TensorView,
    Vital,
    observe,
    one_screen,
    picked,
    rng_state,
    set_rng_state,
    skipped_lines,
    task_of,
)
from netvitals.drift.gradients import SIGN_METRICS, SPLIT_METRICS, Reduction, SignWriter
from netvitals.stats import Mean, mean

FEWEST = 2  # a spread needs two initialisations; 32 or more make a statement
SURE = 2.0  # standard errors that a positive push must be above zero
DRIFTS = 3.0  # standard errors that a mean gradient must be from zero, to give a weight a direction


class SignObservation(Vital):
    """The gradient's part of the vital sign ``drift``, without the parameter tables."""

    name = "drift"
    together = True

    def __init__(self, reduction: Reduction = "mean") -> None:
        self._signs = SignWriter(reduction)

    def gradient(self, recorder: Recorder, view: ActivationView | LinearView | TensorView, g: Tensor) -> None:
        self._signs.gradient(recorder, view, g)


@dataclass(frozen=True)
class LayerSigns:
    """One site over K initialisations.

    Part of :class:`SignAnalysis`.

    Attributes:
        site: the place of the activation.
        kind: ``activation``, or ``linear`` for a linear or convolution layer.
        statistics: metric -> mean with its standard error over initialisations.
    """

    site: str
    kind: str
    statistics: dict[str, Mean]

    def __getitem__(self, metric: str) -> Mean:
        return self.statistics[metric]

    def __str__(self) -> str:
        shown = ("g_pos", "rho_pos", "rho_all", "slope") if self.kind == "activation" else SPLIT_METRICS
        return f"{self.site}: " + ", ".join(f"{m} {self[m].value:+.3e} ± {self[m].stderr:.0e}" for m in shown)


@dataclass(frozen=True)
class SignAnalysis(Result):
    """Gradient signs of a model at initialisation; sites in the order of the forward pass.

    Returned by :func:`signs`.

    Attributes:
        activations: the signs at the input of each activation.
        layers: linear and convolution layers: tot, prod and cov of their weight's mean gradient.
        push: ⟨o, ∇ℓ⟩ of an example; NaN where no gradient reached the output itself.
        inits: how many models were made; each costs one forward and one backward pass.
        samples: examples of the batch.
        skipped: place without signs → reason.
    """

    activations: dict[str, LayerSigns]
    layers: dict[str, LayerSigns]
    push: Mean
    inits: int
    samples: int
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def positive(self) -> bool:
        """Whether every activation's ``g_pos`` is above zero by more than two standard errors."""
        return all(s["g_pos"].value > SURE * s["g_pos"].stderr for s in self.activations.values())

    @property
    def drifts(self) -> dict[str, int]:
        """Sign that a descent step gives each layer's mean weight; 0 within three standard errors of none.

        The sign test on positive pre-activations alone is no evidence of drift: it is positive for tanh too.
        """
        return {
            name: 0 if abs(s["tot"].z(0.0)) < DRIFTS else -1 if s["tot"].value > 0 else 1
            for name, s in self.layers.items()
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a site and statistic: mean and standard error over initialisations."""
        return [
            {"site": s.site, "kind": s.kind, "metric": m, "mean": v.value, "stderr": v.stderr, "inits": v.n}
            for group in (self.activations, self.layers)
            for s in group.values()
            for m, v in s.statistics.items()
        ]

    def plot(self) -> Plot:
        """ρ on positive and on all pre-activations, with two standard errors, in the order of the forward pass."""
        sites = list(self.activations.values())
        at = [float(i + 1) for i in range(len(sites))]
        return Plot(
            "activation, in the order of the model",
            "mean gradient over mean |gradient|",
            [
                Series(name, at, [s[m].value for s in sites], error=[SURE * s[m].stderr for s in sites])
                for m, name in (("rho_pos", "where p > 0"), ("rho_all", "everywhere"))
            ]
            + [Series("zero", [0.5, len(sites) + 0.5], [0.0, 0.0], line=True, dashed=True, tone=7)],
        )

    def __str__(self) -> str:
        head = (
            f"{self.inits} initialisations, {self.samples} examples: ⟨o, ∇ℓ⟩ = {self.push}; the expected gradient on "
            f"positive pre-activations is {'positive everywhere' if self.positive else 'not positive everywhere'}"
        )
        ways = {-1: "down", 0: "neither up nor down", 1: "up"}
        lines = [f"  {s}" for s in self.activations.values()]
        lines += [f"  {name}: a first step moves the mean weight {ways[d]}" for name, d in self.drifts.items()]
        return one_screen([head, *lines, *skipped_lines(self.skipped)])


def signs(
    factory: Callable[[], nn.Module],
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    only: Only = None,
    seed: int = 0,
    progress: Progress | None = None,
    inits: int = 32,
    reduction: Reduction = "mean",
) -> SignAnalysis:
    """Measure the sign of the mean gradient at pre-activations, averaged over many random initialisations.

    Args:
        factory: makes a new model each time it is called, drawing its weights from torch's generator.
        loss_fn: a function of (output, target), its name, or None if the model's output contains its own loss.
        batch: one batch as a data loader yields it; the same for every model.
        mode: ``"as_is"``, ``"train"`` (dropout off) or ``"eval"``: the mode that models are measured in.
        only: activations to report: names or patterns, or a function of a name.
        seed: model number i is made after ``torch.manual_seed(seed + i)``; the generator is left as it was.
        progress: called with (models done, models planned).
        inits: models to make, each at the cost of one forward and one backward pass; 32 or more make a statement.
        reduction: how the loss is reduced over the batch.

    Returns:
        Mean and standard error over initialisations of every statistic.

    >>> x, y = torch.randn(64, 8), torch.randint(3, (64,))
    >>> def make(): return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    >>> found = signs(make, "cross_entropy", (x, y), inits=8)
    >>> list(found.activations), found.inits
    (['1'], 8)
    """
    values: dict[tuple[str, str], list[float]] = {}
    order: dict[str, str] = {}
    skipped: dict[str, str] = {}
    samples = 0
    for i, model in models_of(factory, inits, seed):
        task = task_of(model, loss_fn, batch)
        samples = task.examples
        seen = observe(model, loss_fn, batch, vitals=[SignObservation(reduction)], mode=mode, seed=seed + i)
        if seen.loss is None:
            raise TypeError(
                "signs of gradients need a loss, but no loss_fn was given and the model's output holds no loss: give "
                "loss_fn"
            )
        if not seen.loss - seen.loss == 0:
            raise ValueError(
                f"the loss of initialisation {i} is {seen.loss}, so its gradients cannot be used: check the batch and "
                "the factory"
            )
        order |= {s.name: s.kind for s in seen.sites if s.kind in ("activation", "linear", "output")}
        skipped |= seen.skipped
        for r in seen.measurements:
            values.setdefault((r.site, r.metric), []).append(r.value)
        if progress is not None:
            progress(i + 1, inits)
    found: dict[str, dict[str, LayerSigns]] = {"activation": {}, "linear": {}}
    for name, kind in order.items():
        if kind == "output":
            continue
        metrics = SIGN_METRICS if kind == "activation" else SPLIT_METRICS
        statistics = {m: _mean(values[name, m]) for m in metrics if (name, m) in values}
        if len(statistics) == len(metrics):
            found[kind][name] = LayerSigns(name, kind, statistics)
        else:
            skipped.setdefault(name, "no gradient of its own shape reached it")
    if not found["activation"]:
        raise ValueError("no activation of the model received a gradient, so there are no gradient signs to analyse")
    push = next((values[n, "euler"] for n, k in order.items() if k == "output" and (n, "euler") in values), None)
    if push is None:
        skipped["output"] = "no gradient reached the output: the loss must be a function of it"
    names = picked(list(found["activation"]), only, "activation")
    return SignAnalysis(
        activations={name: found["activation"][name] for name in names},
        layers=found["linear"],
        push=Mean(float("nan"), float("nan"), 0) if push is None else _mean(push),
        inits=inits,
        samples=samples,
        skipped=skipped,
    )


def models_of(factory: Callable[[], nn.Module], count: int, seed: int) -> Iterator[tuple[int, nn.Module]]:
    """``count`` new models and their numbers; what is no factory of new models is refused.

    The generator is seeded for each model, and left as it was at the end.
    """
    if count < FEWEST:
        raise ValueError(f"the spread over initialisations needs at least {FEWEST} initialisations, got inits={count}")
    if isinstance(factory, nn.Module) or not callable(factory):
        raise TypeError(
            "factory= must be a function that makes a new model each time, such as lambda: MyModel(); got a "
            f"{type(factory).__name__}"
        )
    first: list[Tensor] = []
    with _generators_kept():
        for i in range(count):
            torch.manual_seed(seed + i)
            model = factory()
            if not isinstance(model, nn.Module):
                raise TypeError(f"factory= must return a torch.nn.Module, got a {type(model).__name__}")
            if i == 0:
                first = [p.detach().clone() for p in model.parameters()]
            elif i == 1 and all(torch.equal(a, b) for a, b in zip(first, model.parameters())):
                raise ValueError(
                    "factory returned the same weights twice: it must draw new weights from torch's random generator "
                    "each time"
                )
            yield i, model


@contextmanager
def _generators_kept() -> Iterator[None]:
    before = rng_state()
    try:
        yield
    finally:
        set_rng_state(before)


def _mean(values: list[float]) -> Mean:
    """Over the initialisations where the statistic exists (a layer may be dead in one of them)."""
    finite = [v for v in values if v == v]
    return mean(finite) if len(finite) >= FEWEST else Mean(float("nan"), float("nan"), len(finite))
