r"""Which layers sit at the small scale: the number r that sets the length of a plateau.

With sorted scales $s_1\le\dots\le s_L$, r of them at ε and the others Θ(1), the escape time is Θ(1) for r = 1,
$\ln(1/\varepsilon)/K_{\rm eff}$ for r = 2 and $\varepsilon^{-(r-2)}/((r-2)K_{\rm eff})$ for r ≥ 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.anatomy import by_output, layer_kind
from netvitals.capture import Result
from netvitals.saddle.laws.chain import ScalarChain
from netvitals.saddle.laws.drives import drive

GROWN, LEARNED = 0.5, 1.5  # operator norm of a layer that has escaped: absolute, and over that of a random matrix

Measure = Literal["he", "operator", "ansatz"]


@dataclass(frozen=True, kw_only=True)
class Bottleneck(Result):
    """The small layers of a chain and the law they imply.

    ``gap`` is the ratio between the smallest scale above the bottleneck (or 1, when every layer is small) and the
    largest inside. ``k_eff`` is the drive times the scales of the other layers, NaN when no activation was given.

    Returned by :func:`bottleneck`.

    Attributes:
        scales: of every layer, first to last; 1 is He-normal.
        names: of the layers.
        layers: indices of the small ones.
        epsilon: geometric mean of their scales.
        gap: smallest scale above the bottleneck (or 1) over the largest inside.
        k_eff: drive of the chain that the small layers make; NaN without an activation.
        escaped: indices of small weights that have grown to order one along a few directions: the plateau is over, no
            law applies, and ``layers`` is empty. Scales alone cannot tell.
    """

    scales: tuple[float, ...]
    names: tuple[str, ...]
    layers: tuple[int, ...]
    epsilon: float
    gap: float
    k_eff: float = math.nan
    escaped: tuple[int, ...] = ()

    @property
    def r(self) -> int:
        return len(self.layers)

    @property
    def exponent(self) -> float:
        """Power of ε in the escape time: −(r − 2), or 0 for r ≤ 2 (logarithmic at r = 2)."""
        return -float(max(self.r - 2, 0))

    @property
    def prefactor(self) -> float:
        """Escape time is prefactor × ε^exponent (× ln(1/ε) for r = 2), in reduced time t."""
        return 1 / ((self.r - 2 if self.r >= 3 else 1) * self.k_eff) if self.r >= 2 else math.nan

    @property
    def shells(self) -> tuple[tuple[float, float, int], ...]:
        """(from, to, j): while the chain's scale passes this interval it behaves like a chain of depth j."""
        s = sorted(self.scales) + [max(1.0, max(self.scales))]
        return tuple((a, b, j) for j, (a, b) in enumerate(pairwise(s), start=1) if b > a * (1 + 1e-12))

    def __str__(self) -> str:
        if self.escaped:
            which = ", ".join(self.names[i] for i in self.escaped)
            return (
                f"no plateau ahead: {which} {'has' if len(self.escaped) == 1 else 'have'} small entries, but an "
                f"operator norm of order one along a few directions: the network has left its plateau"
            )
        if self.r == 0:
            return (
                f"no small layers: scales {', '.join(f'{s:.3g}' for s in self.scales)} are within a factor "
                f"{self.gap:.2g} of each other and of their initialiser"
            )
        growth = {1: "O(1)", 2: "~ ln(1/eps)"}.get(self.r, f"~ eps^{self.exponent:.0f}")
        which = ", ".join(self.names[i] for i in self.layers)
        return f"r = {self.r} of {len(self.scales)} layers at eps = {self.epsilon:.3g} ({which}): escape time {growth}"


def bottleneck(
    layers: Sequence[float] | np.ndarray | Sequence[Tensor] | Mapping[str, Tensor] | nn.Module,
    f: str | Callable[[Tensor], Tensor] | None = None,
    width: int | None = None,
    beta: float = 1.0,
    *,
    measure: Measure = "he",
    min_gap: float = 2.0,
) -> Bottleneck:
    r"""Find the layers of a chain whose weights are small, and the resulting scaling of the escape time.

    Args:
        layers: scales $s_\ell$ in layer order; or weight matrices (list, or by name); or a module, whose Linear and
            convolution weights are taken in order of registration. A layer of a module is small against the
            initialisation of its own class, a scale or a matrix against He-normal.
        f: activation; with it (and ``width``) the prefactor is filled in.
        width: hidden width; taken from the weights when they are given.
        beta: teacher strength.
        measure: scale of a weight matrix. ``"he"`` is $\lVert W\rVert_F/\sqrt{2n_{out}}$, 1 at He-normal init;
            ``"operator"`` is $\lVert W\rVert_{op}$ over its value at He-normal init, $\sqrt2(1+\sqrt{n_{out}/n_{in}})$;
            ``"ansatz"`` the scalars $X_\ell$ of the symmetric network.
        min_gap: the least ratio of scales that separates small layers from the others.

    Returns:
        The small layers, their scale ε (geometric mean) and the gap to the others; no layers where no gap is wide
        enough, or where the network has escaped.

    >>> print(bottleneck([0.01, 0.01, 1.0, 0.012, 0.8]))
    r = 3 of 5 layers at eps = 0.0106 (1, 2, 4): escape time ~ eps^-1
    """
    scales, names, found_width, weights = _scales(layers, measure)
    usual = np.ones(len(scales))
    if isinstance(layers, nn.Module) and len(names) > 1 and measure != "ansatz":
        usual = np.array([usual_scale(layers.get_submodule(n)) for n in names])  # two layers at least have names
    if len(scales) < 2:
        raise ValueError(f"a chain needs at least two layers, got {len(scales)}")
    if not (np.isfinite(scales).all() and (scales > 0).all()):
        raise ValueError(
            f"every layer needs a positive finite scale, got {scales.tolist()}: a layer whose weights are all zero "
            "never escapes"
        )
    own = scales / usual
    ranked = np.append(np.sort(own), 1.0)
    ratios = ranked[1:] / ranked[:-1]
    # scales above 1 stand for themselves: the reference 1 only separates when everything is below it
    ratios[-1] = max(ratios[-1], 1.0)
    j = int(np.argmax(ratios))
    if ratios[j] < min_gap or ranked[j] >= 1 / min_gap:
        return Bottleneck(scales=tuple(scales.tolist()), names=names, layers=(), epsilon=math.nan, gap=float(ratios[j]))
    small = tuple(int(i) for i in np.flatnonzero(own <= ranked[j] * (1 + 1e-12)))
    if escaped := tuple(i for i in small if weights and _has_escaped(weights[i])):
        scale = tuple(scales.tolist())
        return Bottleneck(scales=scale, names=names, layers=(), epsilon=math.nan, gap=float(ratios[j]), escaped=escaped)
    eps = float(np.exp(np.log(scales[list(small)]).mean()))
    k_eff = math.nan
    width = width or found_width
    if f is not None and width:
        k_eff = positional_drive(scales, small, f, width, beta)
    return Bottleneck(
        scales=tuple(scales.tolist()),
        names=names,
        layers=small,
        epsilon=eps,
        gap=float(ratios[j]),
        k_eff=k_eff,
    )


def positional_drive(
    scales: Sequence[float] | np.ndarray,
    small: Sequence[int],
    f: str | Callable[[Tensor], Tensor],
    width: int,
    beta: float = 1.0,
) -> float:
    r"""$\sqrt N\beta\,\alpha^{L-1-p}E[\sigma(g)u_p(g)]\prod_{i>p,\ i\ \rm not\ small}s_i$ (erratum E14).

    p layers precede the first small one and $u_p(g)$ is their output; p = 0 gives $K\prod_{i\ \rm not\ small}s_i$.
    """
    s = np.asarray(scales, float)
    d = drive(f, len(s), width, beta)
    p = min(small)
    rest = float(np.prod([s[i] for i in range(p, len(s)) if i not in set(small)]))
    if p == 0:
        return d.k * rest
    chain = ScalarChain(f, width, beta)
    u = chain.g
    for i in range(p):
        u = chain.f(float(s[i]) * u)
    overlap = float((chain.teacher * u * chain.w).sum())
    return math.sqrt(width) * d.slope ** (len(s) - 1 - p) * overlap * rest


def layer_scale(w: Tensor, measure: Measure = "he", *, first: bool = False, last: bool = False) -> float:
    """Scale of one weight tensor (convolution kernels are flattened to out × in·k·k)."""
    m = w.detach().reshape(w.shape[0], -1).double()
    out, fan_in = m.shape
    if measure == "he":
        return float(m.norm() / math.sqrt(2 * out))
    if measure == "operator":
        return float(torch.linalg.matrix_norm(m, 2)) / (math.sqrt(2) * (1 + math.sqrt(out / fan_in)))
    if measure == "ansatz":
        return float(m.norm()) / (math.sqrt(out) if first else 1.0)
    raise ValueError(f"measure= must be 'he', 'operator' or 'ansatz', got {measure!r}")


def _has_escaped(w: Tensor) -> bool:
    """Whether a weight is of order one along a few directions, which it has learned: a random one is not."""
    m = w.detach().reshape(w.shape[0], -1).double()
    top = float(torch.linalg.matrix_norm(m, 2))
    return top >= GROWN and layer_scale(w, "operator") >= LEARNED * layer_scale(w, "he")


def usual_scale(module: nn.Module) -> float:
    """‖W‖ over its He-normal value at the initialisation that torch gives this class of layers."""
    uniform = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.Bilinear)
    return math.sqrt(1 / 6) if isinstance(module, uniform) else 1.0  # U(±1/√n_in) has variance 1/(3 n_in)


def _scales(layers: object, measure: Measure) -> tuple[np.ndarray, tuple[str, ...], int | None, list[Tensor]]:
    """Scales and names of the layers, the width, and the weights where they were given."""
    if isinstance(layers, nn.Module):
        layers = {
            name or type(m).__name__: by_output(m)
            for name, m in layers.named_modules()
            if layer_kind(m) in ("linear", "convolution")
        }
        if not layers:
            raise ValueError("this module has no Linear or convolution layer; bottleneck() needs at least two of them")
    if isinstance(layers, Mapping):
        names, weights = tuple(layers), list(layers.values())
    else:
        weights = list(layers)  # type: ignore[call-overload]
        names = tuple(str(i + 1) for i in range(len(weights)))
    if weights and isinstance(weights[0], Tensor) and weights[0].ndim >= 2:
        values = [layer_scale(w, measure, first=i == 0) for i, w in enumerate(weights)]
        return np.array(values), names, int(weights[0].shape[0]), weights
    return np.asarray([float(w) for w in weights]), names, None, []
