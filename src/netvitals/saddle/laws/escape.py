r"""Escape times of the scalar chain: the ODE itself, and five closed or semi-closed forms.

Every formula keeps the threshold θ explicit (the theory's $X_1=1$ is out of reach for wide nets, erratum E6) and uses
$K_t=\sqrt N\beta h\alpha^{L-1}$ in reduced time; times in the optimizer's clock are $s = Nt$ (erratum E1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from netvitals._plot import Plot, Series
from netvitals.capture import Result
from netvitals.saddle.laws.drives import Drive, drive
from netvitals.saddle.laws.flow import reduced_flow
from netvitals.saddle.measure.bottlenecks import bottleneck, positional_drive

Method = Literal["ode", "leading", "nlo", "balanced", "resummed", "critical"]
METHODS: tuple[str, ...] = ("ode", "leading", "nlo", "balanced", "resummed", "critical")


@dataclass(frozen=True, kw_only=True)
class EscapeTime(Result):
    """Escape times from the saddle at zero: floats for one chain, arrays for a batch, NaN if the threshold is not
    reached.

    Returned by :func:`escape_time`.

    Attributes:
        t: reduced time.
        method: the formula, or ``ode``.
        threshold: scale at which the chain counts as escaped.
        width: units of a hidden layer, which sets the clock.
        status: ``formula``, ``escaped``, or why the threshold was not reached.
        final: method "ode": scales at escape, or where the flow saturated.
        note: what the formula leaves out here.
    """

    t: float | np.ndarray
    method: str
    threshold: float
    width: int
    status: str | tuple[str, ...] = "formula"
    final: np.ndarray | None = None
    note: str = ""

    @property
    def s(self) -> float | np.ndarray:
        """The same in the optimizer's clock: learning rate times steps."""
        return self.t * self.width

    def plot(self, eps: Any) -> Plot:
        """Plot the escape time against the initial scale ε of the small layers (the paper's Figure 2).

        Args:
            eps: the initial scale of each escape time.
        """
        scales, times = np.atleast_1d(np.asarray(eps, dtype=float)), np.atleast_1d(np.asarray(self.t, dtype=float))
        if scales.shape != times.shape:
            raise ValueError(
                f"eps= needs one scale for each of the {times.size} escape times, got shape {scales.shape}"
            )
        order = np.argsort(scales)
        series = Series(self.method, scales[order].tolist(), times[order].tolist(), line=scales.size > 1)
        return Plot("small scale ε", "escape time t", [series], log_x=True, log_y=True)

    def steps(self, lr: float) -> float | np.ndarray:
        """Convert the escape time to optimizer steps, at learning rate ``lr`` in the first layer and ``lr / N`` in the
        others.
        """
        return self.s / lr

    def __float__(self) -> float:
        return float(self.t)

    def __str__(self) -> str:
        if np.ndim(self.t):
            times = np.asarray(self.t)
            span = f"{np.nanmin(times):.6g} to {np.nanmax(times):.6g}" if np.isfinite(times).any() else "none reached"
            return f"escape times of {times.size} chains ({self.method}): t = {span}"
        if math.isnan(float(self.t)):
            where = "" if self.final is None else f", saturates at X = {np.round(self.final, 4).tolist()}"
            return f"X = {self.threshold} not reached ({self.status}{where})"
        note = f" ({self.note})" if self.note else ""
        return f"escapes at t = {float(self.t):.6g}, s = {float(self.s):.6g}, by {self.method}{note}"


def escape_time(
    x0: Sequence[float] | np.ndarray | Tensor,
    f: str | Callable[[Tensor], Tensor],
    width: int,
    beta: float = 1.0,
    threshold: float = 0.3,
    method: Method = "ode",
    *,
    layer: int = 0,
) -> EscapeTime:
    r"""Compute the time at which the scale of one layer, by default the first, grows to ``threshold``.

    Args:
        x0: initial scales, (L,) or (B, L).
        f: activation, by name or callable.
        width: hidden width N.
        beta: teacher strength.
        threshold: scale θ of escape.
        method: ``"ode"`` integrates the exact reduced flow; ``"leading"`` is the quadrature (10) for any ``x0``;
            ``"balanced"`` the closed form (11); ``"nlo"`` adds the first nonlinear correction on the balanced ray;
            ``"resummed"`` is the quadrature (33) with the corrected coefficient; ``"critical"`` the critical-depth
            law (12) for any position of the small layers.
        layer: index of the layer whose scale is compared with the threshold, from 0; a small layer if the first one is
            not small.

    Returns:
        Escape time in the clock t, one number or (B,), NaN where the threshold is not reached; ``s`` = N t is learning
        rate times steps.

    >>> print(escape_time([0.01] * 4, "tanh", width=64, method="leading"))
    escapes at t = 1030.71, s = 65965.3, by leading
    """
    if method not in METHODS:
        raise ValueError(f"method {method!r} is unknown; choose one of {', '.join(METHODS)}")
    scales = np.asarray(x0, dtype=float)
    if scales.ndim not in (1, 2) or scales.shape[-1] < 2:
        raise ValueError(f"x0= must have shape (L,) or (B, L) with L at least 2, got {scales.shape}")
    if (scales < 0).any() or not np.isfinite(scales).all():
        raise ValueError("the initial scales x0 must be finite and not negative")
    if not threshold > 0:
        raise ValueError(f"threshold= must be positive, got {threshold}")
    d = drive(f, scales.shape[-1], width, beta)  # refuses what the theory does not cover, whatever the method
    if method == "ode":
        flow = reduced_flow(scales, f, width, beta, threshold, layer=layer % scales.shape[-1], keep=False)
        return EscapeTime(
            t=flow.escape_t, method=method, threshold=threshold, width=width, status=flow.status, final=flow.final
        )
    rows = np.atleast_2d(scales)
    late = rows[:, layer] >= threshold
    form: dict[str, Callable[[np.ndarray], float]] = {
        "leading": lambda x: leading(x, d.k, threshold, layer),
        "balanced": lambda x: balanced(_common(x, "balanced"), len(x), d.k, threshold),
        "nlo": lambda x: next_to_leading(_common(x, "nlo"), d, threshold),
        "resummed": lambda x: resummed(_common(x, "resummed"), d, threshold),
        "critical": lambda x: critical(x, f, width, beta, threshold, layer),
    }
    times = np.array([0.0 if out else form[method](x) for x, out in zip(rows, late)])
    return EscapeTime(
        t=float(times[0]) if scales.ndim == 1 else times,
        method=method,
        threshold=threshold,
        width=width,
        note=_regime(d, method),
    )


def leading(x0: np.ndarray, k: float, threshold: float, layer: int = 0) -> float:
    r"""$\int dY/(2K\sqrt{Y\prod_{\ell\ge2}(Y+D_\ell)})$ from $X_1(0)^2$ to $\theta^2$ (eq. 10).

    Evaluated along $w=X_m$ of the smallest layer, $w = w_0e^u$, where the integrand is smooth.
    """
    from scipy.integrate import quad

    m = int(np.argmin(x0))
    others = np.delete(np.asarray(x0, float), m) ** 2 - x0[m] ** 2
    stop = math.sqrt(threshold**2 - x0[layer] ** 2 + x0[m] ** 2)
    speed = lambda w: k * math.sqrt(float(np.prod(w * w + others)))
    if x0[m] == 0:
        if (others == 0).any():
            return math.inf  # two layers at exactly zero never move
        return float(quad(lambda w: 1 / speed(w), 0.0, stop, epsabs=0, epsrel=1e-10, limit=400)[0])
    integrand = lambda u: x0[m] * math.exp(u) / speed(x0[m] * math.exp(u))
    return float(quad(integrand, 0.0, math.log(stop / x0[m]), epsabs=0, epsrel=1e-10, limit=400)[0])


def balanced(eps: float, depth: int, k: float, threshold: float = 1.0) -> float:
    r"""$\ln(\theta/\varepsilon)/K$ for two layers, $(\varepsilon^{2-L}-\theta^{2-L})/((L-2)K)$ for more (eq. 11)."""
    if depth == 2:
        return math.log(threshold / eps) / k
    return (eps ** (2 - depth) - threshold ** (2 - depth)) / ((depth - 2) * k)


def next_to_leading(eps: float, d: Drive, threshold: float) -> float:
    r"""Balanced time with the first nonlinear correction.

    $L>q+1$: relative correction $\varepsilon^{q-1}\lambda'(L-2)[\frac{q-1}{(q+1)L}-\frac{2q}{(q+1)(L-1-q)}]$.
    $L=q+1$: the correction is $-\frac{\lambda}{K}\ln(\theta/\varepsilon)$ (the paper prints a plus, erratum E3).
    $L<q+1$: the correction is $O(\varepsilon^{L-2})$, from the end of the flight (erratum E7); leading order then.
    """
    t, depth = balanced(eps, d.depth, d.k, threshold), d.depth
    if math.isinf(d.q) or depth < d.q + 1:
        return t
    if depth == d.q + 1:
        return t - d.lam / d.k * math.log(threshold / eps)
    bracket = (d.q - 1) / ((d.q + 1) * depth) - 2 * d.q / ((d.q + 1) * (depth - 1 - d.q))
    return t * (1 + eps ** (d.q - 1) * d.lam_prime * (depth - 2) * bracket)


def resummed(eps: float, d: Drive, threshold: float, *, lam: float | None = None) -> float:
    r"""$\int_\varepsilon^{U_*}dU/[KU^{L-1}(1+\lambda U^{q-1})]$ (eq. 33), leading order from $U_*$ to θ.

    $U_*$ is the smaller of θ and the end of validity, $|\lambda|U_*^{q-1}=1/4$. ``lam`` replaces the corrected
    $\lambda=\frac{2q}{q+1}\lambda'$, for example by the paper's $\lambda'$ (erratum E3).
    """
    from scipy.integrate import quad

    lam = d.lam if lam is None else lam
    if lam == 0 or math.isinf(d.q):
        return balanced(eps, d.depth, d.k, threshold)
    edge = min(threshold, (0.25 / abs(lam)) ** (1 / (d.q - 1)))
    if edge <= eps:
        return balanced(eps, d.depth, d.k, threshold)
    # in u = ln(U / eps) the integrand spans few orders of magnitude
    part = (
        quad(
            lambda u: (eps * math.exp(u)) ** (2 - d.depth) / (1 + lam * (eps * math.exp(u)) ** (d.q - 1)),
            0.0,
            math.log(edge / eps),
            epsabs=0,
            epsrel=1e-11,
            limit=200,
        )[0]
        / d.k
    )
    return float(part) + (balanced(edge, d.depth, d.k, threshold) if edge < threshold else 0.0)


def critical(
    x0: np.ndarray, f: str | Callable[[Tensor], Tensor], width: int, beta: float, threshold: float, layer: int = 0
) -> float:
    r"""Critical-depth law (12): $\varepsilon^{2-r}/((r-2)K_{\rm eff})$, $\ln(1/\varepsilon)/K_{\rm eff}$ for r = 2.

    $K_{\rm eff}$ includes the layers that are not small, wherever the small ones sit (erratum E14). For r = 1 the law
    says only O(1); the leading quadrature with the positional drive is returned.
    """
    neck = bottleneck(x0)
    if neck.r == 0:
        raise ValueError(
            f"x0 = {np.round(x0, 4).tolist()} has no layer that is much smaller than the others and than 1, so "
            "there is no plateau; method='critical' needs one"
        )
    k_eff = positional_drive(x0, neck.layers, f, width, beta)
    if neck.r >= 3:
        return neck.epsilon ** (2 - neck.r) / ((neck.r - 2) * k_eff)
    if neck.r == 2:
        return math.log(1 / neck.epsilon) / k_eff
    d = drive(f, len(x0), width, beta)
    full = d.k * float(np.prod(np.delete(x0, list(neck.layers))))
    return leading(x0, d.k, threshold, layer) * full / k_eff


def _common(x: np.ndarray, method: str) -> float:
    if np.ptp(x) > 1e-9 * x.max() or x.min() <= 0:
        raise ValueError(
            f"method {method!r} needs equal, positive scales for all layers, got {np.round(x, 4).tolist()}; use "
            "'leading' or 'ode'"
        )
    return float(x[0])


def _regime(d: Drive, method: str) -> str:
    if method not in ("nlo", "resummed") or math.isinf(d.q):
        return ""
    if d.depth < d.q + 1:
        return f"L = {d.depth} < q + 1: the end of the flight corrects at relative order eps^{d.depth - 2}"
    return f"resonant, L = q + 1 = {d.depth}" if d.depth == d.q + 1 else ""


def regime(x0: Sequence[float] | np.ndarray, f: str | Callable[[Tensor], Tensor]) -> str:
    """Which formula to use for these scales: the name of a method and why.

    >>> regime([0.01] * 6, "tanh")
    'nlo: balanced scales, L = 6 > q + 1 = 4'
    """
    scales = np.asarray(x0, float)
    d = drive(f, len(scales), 1)
    if np.ptp(scales) <= 1e-9 * scales.max():
        if math.isinf(d.q):
            return "balanced: balanced scales, a 1-homogeneous activation has no correction"
        if d.depth > d.q + 1:
            return f"nlo: balanced scales, L = {d.depth} > q + 1 = {int(d.q) + 1}"
        if d.depth == d.q + 1:
            return f"resummed: balanced scales at the resonance L = q + 1 = {d.depth}"
        return f"ode: balanced scales with L = {d.depth} < q + 1, where the end of the flight sets the correction"
    neck = bottleneck(scales)
    if neck.r >= 2 and neck.gap > 30:
        return f"critical: r = {neck.r} layers at {neck.epsilon:.3g}, the rest {neck.gap:.3g} times larger"
    return "leading: scales that are neither balanced nor clearly separated"
