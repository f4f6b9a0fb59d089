r"""Euler's identity for homogeneous networks: what decides whether drift persists.

In a ReLU network without biases every layer's pre-activations satisfy, example by example and at any time in training,

$$\sum_i p_i \frac{\partial \ell}{\partial p_i} = \langle o, \nabla_o \ell \rangle,$$

because the output is homogeneous of degree one in each of them. While $\langle o, \nabla_o \ell\rangle > 0$ the loss
pushes the outputs, and with them the active pre-activations, towards zero; once it turns negative the push reverses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from netvitals.capture import (
    ActivationView,
    LinearView,
    LossFn,
    Mode,
    Recorder,
    Result,
    TensorView,
    Vital,
    observe,
    skipped_lines,
    undisturbed,
)
from netvitals.drift.signs import Reduction, _check_reduction


@dataclass(frozen=True)
class Euler(Result):
    """⟨o, ∇ℓ⟩ of every example, and the sum of p·∂ℓ/∂p in every layer that it must equal."""

    output: Tensor  # (examples,)
    layers: dict[str, Tensor]  # activation site -> (examples,)
    skipped: Mapping[str, str] = field(default_factory=dict)  # activation without a sum → reason

    @property
    def defects(self) -> dict[str, float]:
        """Largest |difference| over examples, layer by layer."""
        return {name: float((sums - self.output).abs().max()) for name, sums in self.layers.items()}

    @property
    def defect(self) -> float:
        """Largest |difference| over examples and layers: round-off for a bias-free ReLU network, and otherwise how far
        the network is from homogeneous."""
        return max(self.defects.values())

    @property
    def mean(self) -> float:
        return float(self.output.mean())

    @property
    def stderr(self) -> float:
        n = self.output.numel()
        return float(self.output.std() / n**0.5) if n > 1 else float("nan")

    @property
    def persists(self) -> bool:
        """Whether drift goes on in its present direction."""
        return self.mean > 0

    def __str__(self) -> str:
        verdict = "drift persists" if self.persists else "drift reverses"
        return (
            f"<o, grad l> = {self.mean:+.4e} ± {self.stderr:.1e} over {self.output.numel()} examples ({verdict}); "
            f"largest defect {self.defect:.1e} over {len(self.layers)} layers"
        ) + "".join(f"\n{line}" for line in skipped_lines(self.skipped))

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer: the mean of its sum, its standard error, and how far it is from ⟨o, ∇ℓ⟩."""
        n = self.output.numel()
        return [
            {
                "layer": name,
                "mean": float(sums.mean()),
                "stderr": float(sums.std() / n**0.5) if n > 1 else float("nan"),
                "defect": self.defects[name],
            }
            for name, sums in self.layers.items()
        ]


@undisturbed
def euler(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    seed: int = 0,
    reduction: Reduction = "mean",
) -> Euler:
    """Both sides of the identity on one batch; the model is left as it was.

    Args:
        model: any model; the identity is exact for ReLU networks without biases (pooling and convolutions included).
        loss_fn: a function of (output, target), its name, or None where the model's output holds its own loss.
        batch: what a loader yields.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``: the mode that the model is looked at in.
        seed: what noise is left in the model is drawn with it.
        reduction: how the loss is reduced over the batch; with ``"mean"`` values are scaled back to one example.

    Returns:
        Both sides, example by example.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1, bias=False)).double()
    >>> x = torch.tensor([[1.0, 2.0], [-1.0, 0.5]], dtype=torch.float64)
    >>> euler(net, nn.functional.mse_loss, (x, x[:, :1])).defect < 1e-12
    True
    """
    _check_reduction(reduction)
    sums = _Sums()
    seen = observe(model, loss_fn, batch, vitals=[sums], mode=mode, seed=seed)
    if seen.loss is None:
        raise TypeError("no loss_fn was given, and the model's output holds no loss: the identity is about a loss")
    if not seen.loss - seen.loss == 0:
        raise ValueError(f"the loss on this batch is {seen.loss}: gradients of it say nothing")
    if sums.output is None:
        raise ValueError("no gradient reached the model's output: is the loss a function of model(x)?")
    if not sums.layers:
        raise ValueError("no activation site passed a gradient: the identity needs at least one")
    scale = sums.output.shape[0] if reduction == "mean" else 1
    order = [site.name for site in seen.sites if site.name in sums.layers]
    skipped = dict(seen.skipped)
    for site in seen.sites:
        if site.kind == "activation" and site.name not in sums.layers:
            skipped.setdefault(site.name, "no gradient of its own shape reached it")
    return Euler(sums.output * scale, {name: sums.layers[name] * scale for name in order}, skipped)


class _Sums(Vital):
    """Sums of p·∂L/∂p by example, as gradients arrive."""

    name = "euler"

    def __init__(self) -> None:
        self.output: Tensor | None = None
        self.layers: dict[str, Tensor] = {}

    def gradient(self, recorder: Recorder, view: ActivationView | LinearView | TensorView, g: Tensor) -> None:
        if isinstance(view, ActivationView) and view.a.shape == view.x.shape:
            self.layers[view.site.name] = _by_example(view.x * view.derivative * g)
        elif isinstance(view, TensorView) and view.site.kind == "output":
            self.output = _by_example(view.value * g)


def _by_example(t: Tensor) -> Tensor:
    return t.reshape(t.shape[0], -1).sum(1) if t.ndim else t.reshape(1)
