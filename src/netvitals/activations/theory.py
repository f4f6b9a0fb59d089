r"""The numbers through which an activation enters the theory of saddle escape.

$\alpha = f'(0)$, $h = E[g f(g)] = E[f'(g)]$, $h^{(q)} = E[f(g) g^q]$, and the next-order coefficient
$\lambda = \frac{2q}{q+1}\lambda'$ with $\lambda' = a_q h^{(q)}/(\alpha h)$.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from netvitals.activations.classes import classify
from netvitals.activations.derivatives import Activation, Key, in_double
from netvitals.activations.moments import expect, moment


@dataclass(frozen=True)
class Constants:
    """Activation constants. Class D is centred first, f − f(0): only that form has a saddle at zero weights.

    A number that does not exist (the slope of ReLU at 0, a Taylor term of ELU) is NaN, and ``note`` says why.

    Attributes:
        label: class of the activation.
        slope: α = f'(0).
        q: order of the first nonlinear term.
        a_q: coefficient of that term.
        h: E[g f(g)].
        h_q: E[f(g) g^q]; 0 if q is infinite.
        half_power: ½E[f(g)²]: the loss of the zero network on a single-mode teacher with β = 1.
        lam_prime: λ' = a_q h^(q) / (α h).
        offset: f(0), taken away before everything else.
        note: why a number does not exist.

    >>> c = constants("tanh")
    >>> round(c.h, 10), round(c.lam, 6), round(c.drive(depth=4, width=64), 6)
    (0.6057055096, -1.199858, 4.845644)
    """

    label: str
    slope: float
    q: float
    a_q: float
    h: float
    h_q: float
    half_power: float
    lam_prime: float
    offset: float = 0.0
    note: str = ""

    @property
    def lam(self) -> float:
        """λ = (2q/(q+1)) λ': the coefficient of the 1-D normal form (erratum E3)."""
        return 0.0 if math.isinf(self.q) else 2 * self.q / (self.q + 1) * self.lam_prime

    @property
    def lam_printed(self) -> float:
        """The coefficient as the paper prints it, λ', too small by 2q/(q+1) (erratum E3)."""
        return self.lam_prime

    @property
    def gamma_printed(self) -> float:
        """The class-C coefficient as printed, 3f''(0)²/(2αh); zero for class B (erratum E4: use :meth:`nlo`)."""
        if self.q != 2:
            return 0.0
        return 3 * (2 * self.a_q) ** 2 / (2 * self.slope * self.h) if self.slope * self.h else math.nan

    def nlo(self, layer: int) -> float:
        """Next-order coefficient of dX_ℓ/dt of this ``layer`` on the balanced ray: qλ' for layer 1, λ' for the others
        (erratum E4).
        """
        if layer < 1:
            raise ValueError(f"layers are counted from 1; layer must be at least 1, got {layer}")
        return self.lam_prime * (self.q if layer == 1 and math.isfinite(self.q) else 1)

    def kappa(self, depth: int, beta: float = 1.0) -> float:
        """κ = β h α^{L−1} for a ``depth`` of L weight matrices and a teacher of strength ``beta``."""
        if depth < 1:
            raise ValueError(f"depth= is the number of weight matrices and must be at least 1, got {depth}")
        if math.isnan(self.slope) and depth > 1:
            raise ValueError(
                "the rate at which the network escapes the saddle at zero needs the slope f'(0), which this "
                f"activation does not have: {self.note}"
            )
        return beta * self.h * (self.slope ** (depth - 1) if depth > 1 else 1.0)

    def drive(self, depth: int, width: int, beta: float = 1.0, clock: Literal["t", "s"] = "t") -> float:
        """K_t = √N κ for reduced time t, or K_s = κ/√N for s = lr·step, t = s/N, by ``clock`` (erratum E1), for
        ``depth`` L, ``width`` N and a teacher of strength ``beta``. The paper prints K_s and uses it with t.
        """
        if clock not in ("t", "s"):
            raise ValueError(
                "clock= must be 't' (learning rate times steps, divided by the width) or 's' (learning rate times "
                f"steps), got {clock!r}"
            )
        if width < 1:
            raise ValueError(f"width= must be at least 1, got {width}")
        kappa = self.kappa(depth, beta)
        return kappa * math.sqrt(width) if clock == "t" else kappa / math.sqrt(width)

    def escapes(self, depth: int) -> bool:
        """Whether h α^{L−1} > 0 for a ``depth`` of L, which the escape results need and no class implies (f = u − a u³,
        a > 1/3).
        """
        return self.kappa(depth) > 0

    def __str__(self) -> str:
        parts = [
            ("slope", self.slope),
            ("q", self.q),
            ("a_q", self.a_q),
            ("h", self.h),
            ("h_q", self.h_q),
            ("lambda", self.lam),
        ]
        shown = ", ".join(f"{name} {'undefined' if math.isnan(v) else f'{v:.6g}'}" for name, v in parts)
        return f"class {self.label}: {shown}" + (f" ({self.note})" if self.note else "")


def constants(f: Activation) -> Constants:
    """Compute the constants of an activation that the saddle-escape theory uses, such as slope and Gaussian moments.

    Args:
        f: spec string, module or elementwise function; one that is not elementwise is a ``ValueError``.

    Returns:
        Pure numbers: α, q, a_q, h, h_q, λ' and the methods that follow from them; NaN where one does not exist.

    >>> round(constants("erf").lam_prime, 12) == round(-7 / 9, 12)
    True
    """
    return _of(Key(f))


@lru_cache(maxsize=256)
def _of(key: Key) -> Constants:
    found = classify(key.source)
    if found._function is None:
        raise ValueError(f"the constants of the activation {key.token} cannot be computed: {found.why}")
    function, offset = in_double(key.module()), found.offset
    centred = lambda g: function(g) - offset
    h = moment(centred, 1)
    finite = math.isfinite(found.q)
    h_q = moment(centred, int(found.q)) if finite else (math.nan if math.isnan(found.q) else 0.0)
    if math.isinf(found.q):
        lam_prime = 0.0
    elif not finite or found.slope == 0 or h == 0:
        lam_prime = math.nan
    else:
        lam_prime = found.a_q * h_q / (found.slope * h)
    note = found.why if found.label in ("outside", "D") or found.almost_everywhere else ""
    return Constants(
        label=found.label,
        slope=found.slope,
        q=found.q,
        a_q=found.a_q,
        h=h,
        h_q=h_q,
        half_power=expect(lambda g: centred(g) ** 2) / 2,
        lam_prime=lam_prime,
        offset=offset,
        note=note,
    )
