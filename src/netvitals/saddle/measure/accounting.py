r"""Discrete-step accounting: what an optimizer step did to the imbalance, and what plain SGD would have done.

For $\Delta=\lVert W_B\rVert^2-\lVert W_A\rVert^2-\lVert b_A\rVert^2$ and a step $W\leftarrow W-\eta g$,

$$\Delta'-\Delta=-2\eta\langle W_B,g_B\rangle+2\eta(\langle W_A,g_A\rangle+\langle b_A,g_{b_A}\rangle)
   +\eta^2(\lVert g_B\rVert^2-\lVert g_A\rVert^2-\lVert g_{b_A}\rVert^2),$$

exactly. Momentum, Adam and weight decay open a gap, which is reported: it is the part of the drift that the loss
gradient of this step does not explain.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from netvitals.capture import Result
from netvitals.saddle.measure.pairs import balance_terms, imbalance_of

METRICS = ("delta", "change", "predicted", "gap")
SHOWN = 36  # pairs on one screen


@dataclass(frozen=True, kw_only=True)
class StepAccount(Result):
    """One pair of layers in one optimizer step."""

    first: str
    second: str
    delta: float  # Δ after the step
    change: float  # measured change of Δ
    predicted: float  # change under plain SGD with the same gradients
    lr: tuple[float, float]  # learning rate of the two layers: given, or the one that fits the step best

    @property
    def gap(self) -> float:
        return self.change - self.predicted

    def __str__(self) -> str:
        return (
            f"{self.first} → {self.second}: Δ changed by {self.change:.4g}, "
            f"plain SGD explains {self.predicted:.4g} (gap {self.gap:.2g})"
        )


@dataclass(frozen=True)
class StepAccounts(Result, Sequence[StepAccount]):
    """One optimizer step, pair by pair; a sequence of :class:`StepAccount`.

    Returned by :func:`measure_steps`.

    Attributes:
        pairs: one account a pair of layers.
        skipped: pair that could not be followed → reason.
    """

    pairs: tuple[StepAccount, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: Any) -> Any:
        return self.pairs[index]

    def rows(self) -> list[dict[str, Any]]:
        """One row a pair: Δ, its change, what plain SGD explains of it, and the gap."""
        return [{name: getattr(p, name) for name in ("first", "second", *METRICS)} for p in self.pairs]

    def __str__(self) -> str:
        more = [f"… and {len(self) - SHOWN} more"] * (len(self) > SHOWN)
        return "\n".join([*map(str, self.pairs[:SHOWN]), *more])


def measure_steps(
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    grads: Mapping[str, Tensor],
    pairs: Sequence[tuple[str, str]],
    *,
    lr: float | Mapping[str, float] | None = None,
) -> StepAccounts:
    """Compare the change of the imbalance Δ in one optimizer step with the change under plain SGD with the same
    gradients.

    Args:
        before: parameters before the step, by name.
        after: parameters after it, by name.
        grads: the gradients it used, by name.
        pairs: (first, second) layer names: ``[(p.first, p.second) for p in chain_imbalance(net, x).pairs]``.
        lr: learning rate, one for all or per parameter name; when absent, the rate that explains each step best.

    Returns:
        One result for each pair, in the order of ``pairs``.

    >>> w = {"a.weight": torch.ones(2, 2), "b.weight": torch.ones(1, 2)}
    >>> g = {k: 0.5 * torch.ones_like(v) for k, v in w.items()}
    >>> after = {k: w[k] - 0.1 * g[k] for k in w}
    >>> abs(measure_steps(w, after, g, [("a", "b")], lr=0.1)[0].gap) < 1e-6
    True
    """
    out = []
    for first, second in pairs:
        terms = named_terms(first, second, after)
        delta, change, predicted, rate_b, rate_a = pair_numbers(before, after, grads, terms, lr).tolist()
        lrs = (rate_a, rate_b)
        out.append(StepAccount(first=first, second=second, delta=delta, change=change, predicted=predicted, lr=lrs))
    return StepAccounts(tuple(out))


def named_terms(first: str, second: str, known: Container[str]) -> dict[str, float]:
    """The terms of Δ for layers given by name, whose parameters are called ``weight`` and ``bias``.

    >>> named_terms("0", "2", ["0.weight", "0.bias", "2.weight", "2.bias"])
    {'2.weight': 1.0, '0.weight': -1.0, '0.bias': -1.0}
    """
    bias = f"{first}.bias"
    return balance_terms(f"{second}.weight", f"{first}.weight", bias if bias in known else "")


def pair_numbers(
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    grads: Mapping[str, Tensor],
    terms: Mapping[str, float],
    lr: float | Mapping[str, float] | None,
) -> Tensor:
    """Δ, change, prediction, and the rates of the second and the first weight, in one small tensor on the device."""
    for name in list(terms)[:2]:
        if name not in before or name not in after or name not in grads:
            raise ValueError(
                f"parameter {name} must be present in before, after and grads; after has {', '.join(sorted(after)[:8])}"
            )
    rates: list[Tensor] = []

    def numbers(name: str) -> Tensor:
        """Squared norm after the step, its change, and its change under plain SGD."""
        w, new, g = (m[name].detach().double() for m in (before, after, grads))
        step = new - w
        rate = lr.get(name) if isinstance(lr, Mapping) else lr
        fitted = -(step * g).sum() / g.square().sum().clamp_min(1e-300)
        eta = fitted if rate is None else torch.full_like(fitted, rate)
        rates.append(eta)
        change = 2 * (w * step).sum() + step.square().sum()
        predicted = -2 * eta * (w * g).sum() + eta**2 * g.square().sum()
        return torch.stack([new.square().sum(), change, predicted])

    delta = imbalance_of({name: sign for name, sign in terms.items() if name in grads}, numbers)
    return torch.cat([delta, torch.stack(rates[:2])])
