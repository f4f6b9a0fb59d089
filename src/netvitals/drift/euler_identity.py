r"""Euler's identity for homogeneous networks: what decides whether drift persists.

In a ReLU network without biases every layer's pre-activations satisfy, example by example and at any time in training,

$$\sum_i p_i \frac{\partial \ell}{\partial p_i} = \langle o, \nabla_o \ell \rangle,$$

because the output is homogeneous of degree one in each of them. While $\langle o, \nabla_o \ell\rangle > 0$ the loss
pushes the outputs, and with them the active pre-activations, towards zero; once it turns negative the push reverses.

Biases, norms, smooth activations and shortcuts break the identity, layer by layer. So a layer is told to drift on or to
turn round only where it holds there (the defect is small against the push) and the mean push differs from zero by more
than two standard errors; elsewhere the law is silent, and says which of the two is missing.
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
from netvitals.drift.gradients import Reduction, check_reduction

HOMOGENEOUS = 0.1  # root mean square of the defect over that of ⟨o, ∇ℓ⟩, at most, for the identity to hold in a layer
SURE = 2.0  # standard errors by which a mean push must differ from zero


@dataclass(frozen=True)
class LayerLaw:
    """What the identity says of one layer.

    Part of :class:`Euler`.

    Attributes:
        mean: of Σ p ∂ℓ/∂p over examples.
        stderr: of the mean.
        defect: relative: root mean square of the difference to ⟨o, ∇ℓ⟩ over that of ⟨o, ∇ℓ⟩.
        outlook: "persists", "reverses", or "" where the law is silent.
        why: it is silent; empty where it speaks.
    """

    mean: float
    stderr: float
    defect: float
    outlook: str
    why: str

    def __str__(self) -> str:
        return f"{self.mean:+.2e} ± {self.stderr:.0e}: " + (f"drift {self.outlook}" if self.outlook else self.why)


@dataclass(frozen=True)
class Euler(Result):
    """⟨o, ∇ℓ⟩ of every example, and the sum of p·∂ℓ/∂p in every layer that it must equal.

    Returned by :func:`euler`.

    Attributes:
        output: (examples,).
        layers: activation site -> (examples,).
        skipped: activation without a sum → reason.
    """

    output: Tensor
    layers: dict[str, Tensor]
    skipped: Mapping[str, str] = field(default_factory=dict)

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
    def laws(self) -> dict[str, LayerLaw]:
        """Layer by layer: mean push with its error, relative defect, and whether drift persists or reverses."""
        return {name: _law(sums, self.output) for name, sums in self.layers.items()}

    @property
    def outlook(self) -> str:
        """``persists`` or ``reverses`` where all layers in which the law speaks agree on it, else an empty text."""
        spoken = {law.outlook for law in self.laws.values()} - {""}
        return spoken.pop() if len(spoken) == 1 else ""

    @property
    def persists(self) -> bool:
        """Whether drift surely goes on in its present direction."""
        return self.outlook == "persists"

    def __str__(self) -> str:
        laws = self.laws.values()
        spoken = sum(bool(law.outlook) for law in laws)
        verdict = f"drift {self.outlook}" if self.outlook else "the law is silent" if not spoken else "layers differ"
        return (
            f"<o, grad l> = {self.mean:+.4e} ± {self.stderr:.1e} over {self.output.numel()} examples ({verdict}; "
            f"it speaks in {spoken} of {len(laws)} layers); largest defect {self.defect:.1e}"
        ) + "".join(f"\n{line}" for line in skipped_lines(self.skipped))

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer: the mean of its sum, its standard error, how far it is from ⟨o, ∇ℓ⟩, and what follows."""
        return [
            {
                "layer": name,
                "mean": law.mean,
                "stderr": law.stderr,
                "defect": self.defects[name],
                "relative_defect": law.defect,
                "outlook": law.outlook,
                "why": law.why,
            }
            for name, law in self.laws.items()
        ]


def _law(sums: Tensor, output: Tensor) -> LayerLaw:
    n, size = sums.numel(), float(output.double().square().mean().sqrt())
    gap = float((sums - output).double().square().mean().sqrt())
    mean, stderr = float(sums.mean()), float(sums.std() / n**0.5) if n > 1 else float("nan")
    defect = gap / size if size else (0.0 if gap == 0 else float("inf"))
    why = ""
    if not defect <= HOMOGENEOUS:
        why = f"not homogeneous here (defect {defect:.0%} of the push)"
    elif not abs(mean) > SURE * stderr:
        why = "the mean push is within two standard errors of zero"
    return LayerLaw(mean, stderr, defect, "" if why else "persists" if mean > 0 else "reverses", why)


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
    """Compute both sides of the Euler identity between activations and gradients, for every example of a batch.

    Args:
        model: any model; the identity is exact for ReLU networks without biases (pooling and convolutions included).
        loss_fn: a function of (output, target), its name, or None if the model's output contains its own loss.
        batch: one batch as a data loader yields it.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``: the mode that the model is measured in.
        seed: seed of the random numbers that the model draws.
        reduction: how the loss is reduced over the batch; with ``"mean"`` values are scaled back to one example.

    Returns:
        Both sides, example by example.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1, bias=False)).double()
    >>> x = torch.tensor([[1.0, 2.0], [-1.0, 0.5]], dtype=torch.float64)
    >>> euler(net, nn.functional.mse_loss, (x, x[:, :1])).defect < 1e-12
    True
    """
    check_reduction(reduction)
    sums = _Sums()
    seen = observe(model, loss_fn, batch, vitals=[sums], mode=mode, seed=seed)
    if seen.loss is None:
        raise TypeError(
            "the Euler identity needs a loss, but no loss_fn was given and the model's output contains no loss: "
            "give loss_fn"
        )
    if not seen.loss - seen.loss == 0:
        raise ValueError(
            f"the loss on this batch is {seen.loss}, so its gradients cannot be used: check the batch and the "
            "parameters"
        )
    if sums.output is None:
        raise ValueError("no gradient reached the model's output: the loss must be a function of model(x)")
    if not sums.layers:
        raise ValueError(
            "no activation received a gradient, but the Euler identity needs at least one activation between the "
            "input and the loss"
        )
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
