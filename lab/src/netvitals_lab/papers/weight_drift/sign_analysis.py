r"""The sign of the gradient at initialisation, over re-initialisations (P1).

All samples of one initialisation share the weights downstream, so only a new initialisation is a new draw. For K of
them: one forward and one backward pass over the same batch, and the gradient-sign statistics of every activation

$$g_{pos} = E[g \mid p > 0], \quad g_{all} = E[g], \quad \rho = \frac{\sum g}{\sum |g|}, \quad
\mathrm{slope} = \frac{\sum a g}{\sum a^2}$$

together with the split $E[g x] = E[g]E[x] + \mathrm{Cov}$ of every weight's mean gradient. For the squared error of an
MLP the slope estimates $c_l$ of :mod:`~netvitals_lab.theory.drift_signs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.capture import Recorder, Vital, observe, rng_state, set_rng_state
from netvitals.drift.signs import Reduction
from netvitals.vitals.drift import SIGN_METRICS, SPLIT_METRICS, Drift
from netvitals_lab.stats.average import Mean, mean

FEWEST = 2  # a spread needs two initialisations; 32 or more make a statement


class SignObservation(Vital):
    """The gradient's part of :class:`~netvitals.vitals.Drift`, without the parameter tables."""

    name = "drift"
    together = True

    def __init__(self, reduction: Reduction = "mean") -> None:
        self._drift = Drift(reduction)

    def gradient(self, recorder: Recorder, view: Any, g: Tensor) -> None:
        self._drift.gradient(recorder, view, g)


@dataclass(frozen=True)
class LayerSigns:
    """One site over K initialisations: every statistic as mean ± standard error."""

    site: str
    kind: str  # "activation" or "linear"
    statistics: dict[str, Mean]

    def __getitem__(self, metric: str) -> Mean:
        return self.statistics[metric]

    def __str__(self) -> str:
        shown = ("g_pos", "rho_pos", "rho_all", "slope") if self.kind == "activation" else SPLIT_METRICS
        return f"{self.site}: " + ", ".join(f"{m} {self[m].value:+.3e} ± {self[m].stderr:.0e}" for m in shown)


@dataclass(frozen=True)
class SignAnalysis:
    """Gradient signs of a model at initialisation; sites in the order of the forward pass."""

    activations: dict[str, LayerSigns]
    layers: dict[str, LayerSigns]  # linear and convolution layers: tot, prod, cov
    push: Mean  # ⟨o, ∇ℓ⟩ of a sample
    inits: int
    samples: int

    @property
    def positive(self) -> bool:
        """Whether every activation's ``g_pos`` is above zero by more than two standard errors."""
        return all(s["g_pos"].value > 2 * s["g_pos"].stderr for s in self.activations.values())

    @property
    def drifts(self) -> dict[str, int]:
        """Sign that a descent step gives each layer's mean weight; 0 within three standard errors of none."""
        return {
            name: 0 if abs(s["tot"].z(0.0)) < 3 else -1 if s["tot"].value > 0 else 1 for name, s in self.layers.items()
        }

    def table(self) -> list[dict[str, float | str]]:
        """One row per site and statistic, ready for a frame or JSON."""
        return [
            {"site": s.site, "kind": s.kind, "metric": m, "mean": v.value, "stderr": v.stderr, "inits": v.n}
            for group in (self.activations, self.layers)
            for s in group.values()
            for m, v in s.statistics.items()
        ]

    def __str__(self) -> str:
        head = (
            f"{self.inits} initialisations, {self.samples} samples: ⟨o, ∇ℓ⟩ = {self.push}; the gradient on "
            f"positive pre-activations is {'positive everywhere' if self.positive else 'not positive everywhere'}"
        )
        return "\n".join([head, *(f"  {s}" for s in (*self.activations.values(), *self.layers.values()))])


def analyse_signs(
    factory: Callable[[], nn.Module],
    loss_fn: Callable[..., Tensor],
    batch: Any,
    *,
    inits: int = 32,
    seed: int = 0,
    reduction: Reduction = "mean",
    mode: str = "train",
    progress: Callable[[int], None] | None = None,
) -> SignAnalysis:
    """Gradient signs over ``inits`` fresh models.

    >>> x, y = torch.randn(64, 8), torch.randint(3, (64,))
    >>> def make(): return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    >>> analysis = analyse_signs(make, nn.functional.cross_entropy, (x, y), inits=8)
    >>> list(analysis.activations), analysis.inits
    (['1'], 8)
    """
    if inits < FEWEST:
        raise ValueError(f"a spread over initialisations needs at least {FEWEST} of them, got inits={inits}")
    values: dict[tuple[str, str], list[float]] = {}
    order: dict[str, str] = {}
    samples = 0
    before = rng_state()
    try:
        for i in range(inits):
            torch.manual_seed(seed + i)
            seen = observe(factory(), loss_fn, batch, vitals=[SignObservation(reduction)], mode=mode)  # type: ignore[arg-type]
            if seen.loss is None or not seen.loss - seen.loss == 0:
                raise ValueError(f"the loss of initialisation {i} is {seen.loss}: gradients of it say nothing")
            order |= {s.name: s.kind for s in seen.sites if s.kind in ("activation", "linear", "output")}
            for r in seen.measurements:
                values.setdefault((r.site, r.metric), []).append(r.value)
            if progress is not None:
                progress(i + 1)
    finally:
        set_rng_state(before)
    samples = _samples(batch)
    found: dict[str, dict[str, LayerSigns]] = {"activation": {}, "linear": {}}
    for name, kind in order.items():
        if kind == "output":
            continue
        metrics = SIGN_METRICS if kind == "activation" else SPLIT_METRICS
        statistics = {m: _mean(values[name, m]) for m in metrics if (name, m) in values}
        if len(statistics) == len(metrics):
            found[kind][name] = LayerSigns(name, kind, statistics)
    if not found["activation"]:
        raise ValueError("no activation of the model passed a gradient: there are no signs to analyse")
    push = next((values[n, "euler"] for n, k in order.items() if k == "output" and (n, "euler") in values), None)
    if push is None:
        raise ValueError("no gradient reached the model's output: is the loss a function of model(x)?")
    return SignAnalysis(
        activations=found["activation"], layers=found["linear"], push=_mean(push), inits=inits, samples=samples
    )


def _mean(values: list[float]) -> Mean:
    """Over the initialisations where the statistic exists (a layer may be dead in one of them)."""
    finite = [v for v in values if v == v]
    return mean(finite) if len(finite) >= FEWEST else Mean(float("nan"), float("nan"), len(finite))


def _samples(batch: Any) -> int:
    x = batch[0]
    while not isinstance(x, Tensor):
        x = next(iter(x.values() if isinstance(x, dict) else x))
    return int(x.shape[0])
