r"""What the escape theory needs of an activation: class, constants, and whether the theory covers it at all.

The prefactor of every law is the drive: $K_t = \sqrt N\beta_1h_\sigma\alpha^{L-1}$ in reduced time $t$, and
$K_s = K_t/N$ in the optimizer's clock $s$ (learning rate times steps).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from netvitals.capture import Result


def resolve(f: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """An activation by its registered name, or the callable itself."""
    if isinstance(f, str):
        from netvitals.activations import get

        return get(f)
    if not callable(f):
        raise TypeError(f"expected an activation as a registered name or a callable, got {type(f).__name__}")
    return f


@dataclass(frozen=True, kw_only=True)
class Drive(Result):
    r"""Constants of one activation, depth, width and teacher that enter the escape laws.

    ``slope`` is $\alpha=\sigma'(0)$, ``h`` is $E[g\sigma(g)]$, ``lam_prime`` is $\lambda' = a_qh^{(q)}/(\alpha h)$,
    ``lam`` the normal-form coefficient $\lambda=\frac{2q}{q+1}\lambda'$ (erratum E3), ``k`` the drive in the clock $t$.
    For 1-homogeneous activations (class A) ``q`` is infinite and both corrections vanish.

    Returned by :func:`drive`.

    Attributes:
        label: name of the activation.
        slope: α = σ'(0).
        q: degree of the first nonlinear term; infinite for 1-homogeneous activations.
        h: E[gσ(g)] for a standard Gaussian g.
        lam_prime: relative size of the first nonlinear term.
        lam: the same as a coefficient of the normal form.
        k: drive in the clock t.
        depth: number of layers.
        width: units of a hidden layer.
        beta: strength of the teacher.
    """

    label: str
    slope: float
    q: float
    h: float
    lam_prime: float
    lam: float
    k: float
    depth: int
    width: int
    beta: float

    @property
    def k_s(self) -> float:
        """Drive in the optimizer's clock s; the constant that the paper prints (erratum E1)."""
        return self.k / self.width

    @property
    def resting_scale(self) -> float:
        r"""Balanced scale at which the drive is used up, $U^L = \beta h/(\sqrt N\alpha^{L-1})$ (erratum E11)."""
        return (self.beta * self.h / (math.sqrt(self.width) * self.slope ** (self.depth - 1))) ** (1 / self.depth)


def drive(f: str | Callable[[Tensor], Tensor], depth: int, width: int, beta: float = 1.0) -> Drive:
    """Compute the escape-rate constant (drive) k of a chain; raises ValueError if the theory does not cover it.

    Args:
        f: activation, by name or callable.
        depth: number of layers L, at least 2.
        width: hidden width N.
        beta: teacher strength.

    Returns:
        The constants of the escape formulas; ``k`` is the drive in reduced time t.

    >>> round(drive("tanh", depth=4, width=64).k, 6)
    4.845644
    """
    from netvitals.activations import classify, constants

    if depth < 2:
        raise ValueError(f"depth= must be at least 2, got {depth}: a chain needs two layers")
    name = f if isinstance(f, str) else type(f).__name__ if isinstance(f, nn.Module) else getattr(f, "__name__", "f")
    kind = classify(f)
    if not kind.label.startswith(("A", "B", "C")):
        centre = "; use its centred form, e.g. 'centered:softplus'" if kind.label.startswith("D") else ""
        raise ValueError(
            f"the saddle-escape theory does not cover {name}: it has class {kind.label} ({kind.why}){centre}"
        )
    c = constants(f)
    if kind.label.startswith("A"):
        q, lam_prime, lam = math.inf, 0.0, 0.0
        gain, slope = _homogeneous_gain(f, depth)
    else:
        q, slope = float(kind.q), c.slope
        lam_prime = c.a_q * c.h_q / (slope * c.h)
        lam = 2 * q / (q + 1) * lam_prime
        gain = c.h * slope ** (depth - 1)
    if gain * beta <= 0:
        raise ValueError(
            f"{name} at depth {depth} does not leave the saddle at zero under gradient flow: its escape rate beta h "
            f"alpha^(L-1) = {beta * gain:.4g} is not positive (beta = {beta}, h = {c.h:.4g}, alpha = {slope:.4g})"
        )
    return Drive(
        label=kind.label,
        slope=slope,
        q=q,
        h=c.h,
        lam_prime=lam_prime,
        lam=lam,
        k=math.sqrt(width) * beta * gain,
        depth=depth,
        width=width,
        beta=beta,
    )


def _homogeneous_gain(f: str | Callable[[Tensor], Tensor], depth: int) -> tuple[float, float]:
    r"""$E[\sigma(g)\,\sigma^{\circ(L-1)}(g)]$ and the slope on the right, for $\sigma(z) = a_\pm z$: with a kink the
    product $h\alpha^{L-1}$ has no meaning at 0, this mean keeps it.

    The composition is followed with its signs: $-z$ taken twice is $z$, and a side that is turned over goes on through
    the slope of the other."""
    act = resolve(f)
    g = torch.tensor([1.0, -1.0], dtype=torch.float64)
    first = through = act(g)
    for _ in range(depth - 2):
        through = act(through)
    return float((first * through).mean()), float(first[0])  # E[g²; g > 0] = E[g²; g < 0] = 1/2
