r"""LayerNorm's own dead direction, and what it does to a ladder of rates (dead-directions §2.8, §2.12).

The output $\gamma \odot \hat z + \beta$ has $\sum_i \hat z_i = 0$, so $v = \gamma^{-1}/\|\gamma^{-1}\|$ carries no
variance, whatever the data: an exact kernel that needs no forward pass. RMSNorm does not centre and has none. Crossed
backwards, LayerNorm injects live gradient into a dead channel and resets its rate; at finite t the reset is a crossover
with constants κ₂ and κ₄.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.capture import Mode, Only, Result, Several, in_mode, inputs_of, picked, preserved, undisturbed

NORMS = (nn.LayerNorm, nn.RMSNorm)
_NO_VARIANCE = 1e-8  # of the mean eigenvalue: float32 rounding leaves about 1e-14, a live direction about 1
_ROUNDING = 4.0  # machine epsilons that half precision may leave along the kernel
_NODES = 400  # Gauss–Legendre, on a smooth integrand


def ln_kernel(gain: Tensor) -> Tensor:
    r"""Kernel of $\mathrm{Cov}(\mathrm{LN}(X))$ as orthonormal columns (d, k), from the gain alone.

    $\gamma^{-1}/\|\gamma^{-1}\|$; where gains are zero, exactly their axes.

    >>> ln_kernel(torch.tensor([1.0, 2.0])).T
    tensor([[0.8944, 0.4472]])
    >>> ln_kernel(torch.tensor([1.0, 0.0, 3.0])).T
    tensor([[0., 1., 0.]])
    """
    flat = gain.detach().reshape(-1)
    if flat.numel() < 2 or not torch.isfinite(flat).all():
        raise ValueError(f"the weight of a norm layer needs at least two finite entries, got shape {tuple(gain.shape)}")
    dead = flat == 0
    if dead.any():
        return torch.eye(flat.numel(), dtype=flat.dtype, device=flat.device)[:, dead]
    inverse = 1 / flat
    return (inverse / inverse.norm())[:, None]


@dataclass(frozen=True, kw_only=True)
class KernelTest(Result):
    """One norm of a model: whether γ⁻¹ is a kernel of its output's covariance."""

    norm: str
    kind: str
    passes: bool
    overlap: float  # length of the kernel direction inside the covariance's bottom space, 1 is complete
    variance: float  # along the kernel direction, over the mean eigenvalue
    row_count: int  # examples × positions behind the covariance
    note: str = ""

    def __str__(self) -> str:
        words = "has the kernel γ⁻¹" if self.passes else "has no kernel along γ⁻¹"
        return (
            f"{self.norm} ({self.kind}) {words}: overlap {self.overlap:.4f}, variance {self.variance:.1e} of the "
            f"mean{'; ' + self.note if self.note else ''}"
        )


@undisturbed
def ln_kernel_test(model: nn.Module, batch: Any, *, mode: Mode = "eval", only: Only = None) -> Several[KernelTest]:
    """Every LayerNorm and RMSNorm of ``model`` on one batch: a LayerNorm passes, an RMSNorm fails. No loss is needed.

    Args:
        model: the model, which is left as it was.
        batch: one batch as a data loader yields it; a target is not used.
        mode: "eval", "train" (batch statistics, dropout modules off) or "as_is".
        only: names or patterns of norms, or a function of a name; other classes with a ``weight`` over the last
            dimension may be named too.

    Returns:
        One test a norm.

    >>> net = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 6), nn.RMSNorm(6))
    >>> [t.passes for t in ln_kernel_test(net, torch.randn(50, 4, generator=torch.Generator().manual_seed(0)))]
    [True, False]
    """
    task = inputs_of(model, batch)
    modules = dict(model.named_modules())
    outputs: dict[str, list[Tensor]] = {n: [] for n in _norms(model, only)}
    handles = [modules[n].register_forward_hook(lambda m, a, o, n=n: outputs[n].append(o.detach())) for n in outputs]
    try:
        with preserved(model), in_mode(model, mode), torch.no_grad():
            task.forward()
    finally:
        for handle in handles:
            handle.remove()
    skipped = {n: "never called on this batch" for n, found in outputs.items() if not found}
    return Several(tuple(_test(n, modules[n], found) for n, found in outputs.items() if found), skipped)


def _norms(model: nn.Module, only: Only) -> list[str]:
    """Names of the norms that were asked for; a module named in full counts whatever its class."""
    known = {n for n, _ in model.named_modules()}
    norms = [n for n, m in model.named_modules() if isinstance(m, NORMS)]
    named = [] if only is None or callable(only) else [only] if isinstance(only, str) else list(only)
    full = [n for n in named if n in known]
    rest = [n for n in named if n not in known]
    found = [*full, *(picked(norms, rest if named else only, "norm") if rest or not named else ())]
    if not found:
        raise ValueError(f"{type(model).__name__} has no LayerNorm or RMSNorm; this test needs one")
    return list(dict.fromkeys(found))


def _test(name: str, module: nn.Module, outputs: list[Tensor]) -> KernelTest:
    kind = type(module).__name__
    gain = getattr(module, "weight", None)
    width = gain.numel() if isinstance(gain, Tensor) else math.prod(getattr(module, "normalized_shape", ()) or (1,))
    if outputs[0].shape[-1] != width and outputs[0].numel() % width:
        raise ValueError(
            f"{name} ({kind}) does not normalise over the last dimension only: its weight has {width} entries, its "
            f"output has {outputs[0].shape[-1]} channels; leave it out"
        )
    rows = torch.cat([o.reshape(-1, width) for o in outputs]).double()
    if not len(rows):
        raise ValueError("the batch is empty: give at least one example")
    nothing = max(_NO_VARIANCE, (_ROUNDING * torch.finfo(outputs[0].dtype).eps) ** 2)
    if not torch.isfinite(rows).all():
        raise ValueError(f"the output of {name} contains NaN or infinity: check the batch and the parameters")
    centred = rows - rows.mean(0)
    kernel = ln_kernel(gain if isinstance(gain, Tensor) else torch.ones(width)).to(rows)
    mean = float(centred.square().sum(1).mean()) / width
    if mean == 0:
        note = "its output does not vary on this batch"
        return KernelTest(
            norm=name, kind=kind, passes=False, overlap=math.nan, variance=math.nan, row_count=len(rows), note=note
        )
    along = float((centred @ kernel).square().mean(0).max()) / mean
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(rows))
    bottom = vectors[:, values <= max(float(values[0]), nothing * mean)]
    overlap = float(torch.linalg.svdvals(bottom.T @ kernel)[-1]) if bottom.shape[1] >= kernel.shape[1] else 0.0
    note = (
        f"only {len(rows)} rows for {width} channels: other directions are empty as well" if len(rows) <= width else ""
    )
    return KernelTest(
        norm=name,
        kind=kind,
        passes=along < nothing,
        overlap=overlap,
        variance=along,
        row_count=len(rows),
        note=note,
    )


@dataclass(frozen=True, kw_only=True)
class LNFiniteT(Result):
    r"""$F(t) = 4[\sigma_\eta^2 + \kappa_2 t^2 + \kappa_4 t^4]$ of a dead channel behind one LayerNorm of width d."""

    d: int
    sigma: float  # noise of the dead target
    kappa2: float
    kappa4: float  # infinite below d = 4
    kappa4_printed: float  # the paper's first term alone, which drops the change of σ(t) (erratum E9)

    def fisher(self, t: Any, *, printed: bool = False) -> Any:
        """Second moment of the dead output gradient for the loss ‖y − Y‖²."""
        t = np.asarray(t, float)
        return 4 * (self.sigma**2 + self.kappa2 * t**2 + (self.kappa4_printed if printed else self.kappa4) * t**4)

    def slope(self, t: Any) -> Any:
        r"""$\alpha = (2\kappa_2 t^2 + 4\kappa_4 t^4)/(\sigma_\eta^2 + \kappa_2 t^2 + \kappa_4 t^4)$: 0, 2, then 4."""
        t = np.asarray(t, float)
        return (2 * self.kappa2 * t**2 + 4 * self.kappa4 * t**4) / (self.fisher(t) / 4)

    @property
    def crossovers(self) -> tuple[float, float]:
        r"""$t_1 = \sigma_\eta/\sqrt{\kappa_2}$ and $t_2 = \sqrt{\kappa_2/\kappa_4} \approx d^{-1/2}$."""
        second = math.sqrt(self.kappa2 / self.kappa4) if math.isfinite(self.kappa4) else math.nan
        return self.sigma / math.sqrt(self.kappa2), second

    def __str__(self) -> str:
        t1, t2 = self.crossovers
        if not math.isfinite(self.kappa4):
            return f"LayerNorm of width {self.d}: κ₂ = {self.kappa2:.4f}, no t⁴ coefficient below width 4"
        return (
            f"LayerNorm of width {self.d}: κ₂ = {self.kappa2:.4f}, κ₄ = {self.kappa4:.4f}; slope 0 below t = "
            f"{t1:.3g}, 2 up to {t2:.3g}, then 4"
        )


def ln_finite_t(d: int, sigma: float = 0.0) -> LNFiniteT:
    r"""Constants for Gaussian inputs, by one quadrature.

    With n = d − 1 live channels, $R \sim \chi^2_n$ their squared length and $B \sim \mathrm{Beta}(1/2, (n-1)/2)$ the
    share of it along 1, independent, and $D = d - nB$: $\kappa_2 = E[nB/D]$ and
    $\kappa_4 = n^2 E[1/R]\,E[1/D - 5B/D^2 + 4B^2/D^3]$.

    >>> print(ln_finite_t(16))
    LayerNorm of width 16: κ₂ = 0.0767, κ₄ = 1.1303; slope 0 below t = 0, 2 up to 0.261, then 4
    """
    if d < 3:
        raise ValueError(f"d= is the number of channels and must be at least 3, got d = {d}")
    if not sigma >= 0:
        raise ValueError(f"sigma= is a standard deviation and must not be negative, got {sigma}")
    n = d - 1
    node, weight = np.polynomial.legendre.leggauss(_NODES)
    angle, weight = (node + 1) * math.pi / 4, weight * np.cos((node + 1) * math.pi / 4) ** (n - 2)
    weight = weight / weight.sum()
    b = np.sin(angle) ** 2
    rest = d - n * b
    radius = n**2 / (n - 2) if n > 2 else math.inf
    return LNFiniteT(
        d=d,
        sigma=sigma,
        kappa2=float(weight @ (n * b / rest)),
        kappa4=radius * float(weight @ (1 / rest - 5 * b / rest**2 + 4 * b**2 / rest**3)),
        kappa4_printed=radius * float(weight @ (1 / rest)),
    )


def ln_reset_rate(powers: Sequence[float], norm_after: Sequence[int], layer: int) -> float:
    r"""Exponent $2\sum_{\ell < j \le p^*} p_j$ of the dead entry of $G_\ell$, $p^*$ the next norm from ``layer`` up.

    The corrected law (erratum E8): crossing a LayerNorm backwards erases every power of t gathered above it.

    >>> [ln_reset_rate((1, 1, 1, 1), (3,), layer) for layer in (1, 2, 3, 4)]
    [4, 2, 0, 0]
    """
    if not 1 <= layer <= len(powers):
        raise ValueError(f"layer= must lie between 1 and {len(powers)}, got {layer}")
    stop = min((p for p in norm_after if p >= layer), default=len(powers))
    return 2 * sum(powers[layer:stop])
