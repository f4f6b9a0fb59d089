r"""The four classes of activations by their homogeneity deficit $\varphi_f(z) = z f'(z) - f(z) = \sum_k (k-1) a_k z^k$.

A: φ ≡ 0, imbalance between layers is conserved. B_q: odd, φ starts at order q = 3, 5, … C: f(0) = 0, φ starts at
order 2. D: f(0) ≠ 0, φ(0) = −f(0), constant drift. Everything else is outside the theory and says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from netvitals.activations.derivatives import Activation, Key, derivative, in_double
from netvitals.activations.expansion import leading, smoothness, taylor
from netvitals.activations.lookalike import refusal
from netvitals.activations.sparse import QuantileReLU, TopK

_SIDE = torch.linspace(0, 5, 1001, dtype=torch.float64)[1:] + 1e-4 * math.pi  # off every usual kink
_GRID = torch.cat([-_SIDE, _SIDE, torch.tensor([-50.0, -20.3, -10.7, 10.7, 20.3, 50.0], dtype=torch.float64)])

FURTHER = 13  # the highest power that is looked for where none of the usual ones is there


@dataclass(frozen=True)
class ActivationClass:
    """The class of an activation, with what decided it.

    Attributes:
        label: "A", "B3", "B5", …, "C", "D" or "outside".
        q: order of the first nonlinear Taylor term; inf if none, NaN if there is no series.
        why: what decided it, in words.
        slope: f'(0); NaN where the two sides differ.
        a_q: f^(q)(0)/q!; 0 if q is infinite, NaN if there is no series.
        offset: f(0).
        almost_everywhere: class A with a kink at 0 (ReLU).
        centered: for class D: the class of f − f(0).
        taylor: a_0..a_7, empty where there is no series.
        sides: slopes from the left and from the right.

    >>> print(classify("gelu"))
    C (q = 2): f(0) = 0 and f''(0)/2 = 0.398942; phi starts as 0.398942 z^2
    """

    label: str
    q: float
    why: str
    slope: float
    a_q: float
    offset: float = 0.0
    almost_everywhere: bool = False
    centered: str | None = None
    taylor: tuple[float, ...] = ()
    sides: tuple[float, float] = (math.nan, math.nan)
    _function: Callable[[Tensor], Tensor] | None = field(default=None, repr=False, compare=False)

    def phi(self, z: Tensor | float) -> Tensor:
        r"""$\varphi_f(z) = z f'(z) - f(z)$ at ``z``, in float64."""
        assert self._function is not None
        point = torch.as_tensor(z, dtype=torch.float64)
        with torch.no_grad():
            value = self._function(point)
        return point * derivative(self._function)(point) - value

    @property
    def phi_order(self) -> float:
        """The order at which φ starts: 0 for D, inf for A, else q."""
        return {"A": math.inf, "D": 0}.get(self.label, self.q)

    @property
    def phi_leading(self) -> float:
        """The coefficient with which φ starts: −f(0) for D, (q−1)a_q else, 0 for A."""
        if self.label == "D":
            return -self.offset
        return 0.0 if self.label == "A" else (self.q - 1) * self.a_q

    def __str__(self) -> str:
        order = "" if math.isnan(self.q) else f" (q = {self.q:g})" if math.isfinite(self.q) else " (q infinite)"
        return f"{self.label}{' a.e.' if self.almost_everywhere else ''}{order}: {self.why}"


def phi(f: Activation) -> Callable[[Tensor], Tensor]:
    r"""The homogeneity deficit $z \mapsto z f'(z) - f(z)$ in float64, by autograd.

    Args:
        f: spec string, module or elementwise function.

    Returns:
        φ as a function of a tensor or number; its values are float64, in the shape of what it is given.

    >>> phi("relu")(torch.tensor([-2.0, 3.0])).abs().tolist()
    [0.0, 0.0]
    """
    return classify(f).phi


def _normal_density(z: Tensor) -> Tensor:
    return torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)


_CLOSED: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": torch.zeros_like,
    "relu": torch.zeros_like,
    "leaky_relu": torch.zeros_like,
    "tanh": lambda z: z / torch.cosh(z) ** 2 - torch.tanh(z),
    "erf": lambda z: 2 / math.sqrt(math.pi) * z * torch.exp(-z * z) - torch.erf(z),
    "sin": lambda z: z * torch.cos(z) - torch.sin(z),
    "gelu": lambda z: z * z * _normal_density(z),
    "silu": lambda z: z * z * torch.sigmoid(z) * torch.sigmoid(-z),
    "sigmoid": lambda z: z * torch.sigmoid(z) * torch.sigmoid(-z) - torch.sigmoid(z),
    "softplus": lambda z: z * torch.sigmoid(z) - torch.nn.functional.softplus(z),
}


def phi_closed(name: str) -> Callable[[Tensor], Tensor]:
    """φ in closed form, for the names that have one in the literature: the exact twin of :func:`phi`.

    Args:
        name: a plain registry name, such as ``"gelu"``; one without a stored form is a ``ValueError``.

    Returns:
        φ as a function of a tensor, in that tensor's dtype and shape.

    >>> z = torch.linspace(-2, 2, 5, dtype=torch.float64)
    >>> torch.allclose(phi_closed("gelu")(z), classify("gelu").phi(z))
    True
    """
    if name not in _CLOSED:
        raise ValueError(
            f"no closed form of phi, the homogeneity deficit z·f'(z) − f(z), is known for {name!r}; there are "
            f"closed forms for {', '.join(_CLOSED)}"
        )
    return _CLOSED[name]


def classify(f: Activation) -> ActivationClass:
    """Classify an activation for the saddle-escape theory, from its values and derivatives at zero in float64.

    Args:
        f: spec string, module or elementwise function; a module is copied, never changed.

    Returns:
        The label (A, B3, B5, …, C, D or outside) with the reason, the order q, slope and Taylor coefficients at zero.

    >>> [classify(n).label for n in ("relu", "tanh", "silu", "sigmoid", "elu")]
    ['A', 'B3', 'C', 'D', 'outside']
    """
    return _of(Key(f))


@lru_cache(maxsize=256)
def _of(key: Key) -> ActivationClass:
    module = key.module()
    if isinstance(module, (TopK, QuantileReLU)):
        return ActivationClass(
            label="outside",
            q=math.nan,
            why="it is not elementwise: an entry's value depends on its neighbours",
            slope=math.nan,
            a_q=math.nan,
        )
    function = in_double(module)
    if why := refusal(function):
        return ActivationClass(label="outside", q=math.nan, why=why, slope=math.nan, a_q=math.nan)
    return _decide(function)


def _decide(f: Callable[[Tensor], Tensor]) -> ActivationClass:
    slope = derivative(f)
    with torch.no_grad():
        values = f(_GRID)
        offset = float(f(torch.zeros(1, dtype=torch.float64)))
    size = float(values[:-6].abs().max())  # near zero: that of exp far out would hide f(0) = 1
    probe = smoothness(f)
    sides = (probe.left[1], probe.right[1]) if probe.left and probe.right else (math.nan, math.nan)

    def outside(
        why: str, q: float = math.nan, slope: float = math.nan, a_q: float = math.nan, series: tuple[float, ...] = ()
    ) -> ActivationClass:
        return ActivationClass(
            label="outside", q=q, why=why, slope=slope, a_q=a_q, offset=offset, taylor=series, sides=sides, _function=f
        )

    if _surrogate(f, slope):
        return outside("its backward is not the derivative of its forward (a surrogate gradient)")
    deficit = (_GRID * slope(_GRID) - values).abs()
    if float((deficit / (1 + values.abs())).max()) < 1e-10 and _rays(values):
        bent = probe.kinked
        sides = tuple(float(f(torch.tensor([z], dtype=torch.float64))) / z + 0.0 for z in (-1.0, 1.0))  # type: ignore[assignment]
        why = (
            f"f is 1-homogeneous with slopes {sides[0]:g} and {sides[1]:g}: phi = 0 away from the kink"
            if bent
            else "f is linear: phi = 0 and imbalances are conserved"
        )
        return ActivationClass(
            label="A",
            q=math.inf,
            why=why,
            slope=math.nan if bent else sides[1],
            a_q=0.0,
            offset=offset,
            almost_everywhere=bent,
            taylor=() if bent else (0.0, sides[1], *[0.0] * 6),
            sides=sides,
            _function=f,
        )
    if abs(offset) > 1e-12 * max(1.0, size):
        return _with_offset(f, offset)
    if probe.kinked:
        return outside(
            f"its slopes at 0 differ: {sides[0]:.6g} from the left, {sides[1]:.6g} from the right"
            if probe.agree == 1
            else "it is not a power series on the two sides of 0"
        )
    if not probe.smooth:
        k = probe.agree
        return outside(
            f"it is not C{k} at 0: a_{k} is {probe.left[k]:.6g} from the left and {probe.right[k]:.6g} from the right",
            slope=sides[1],
        )
    series = taylor(f)
    orders = [k for k in leading(series, probe.radius) if k]
    higher = next((k for k in orders if k >= 2), None)
    if higher is None:  # its first term may be of a high order, as in z + z⁹
        higher, series = _high_order(f, series)
    known = tuple(series.tolist())
    alpha = float(series[1])
    if higher is None:
        return outside(
            "it is linear around 0 but not everywhere: phi vanishes near 0 and not beyond", math.inf, alpha, 0.0, known
        )
    a_q = float(series[higher])
    if 1 not in orders:
        return outside(f"f'(0) = 0: it starts as {a_q:.6g} z^{higher}", higher, 0.0, a_q, known)
    start = f"phi starts as {(higher - 1) * a_q:.6g} z^{higher}"
    if higher == 2:
        label, why = "C", f"f(0) = 0 and f''(0)/2 = {a_q:.6g}; {start}"
    elif float((f(_SIDE) + f(-_SIDE)).abs().max()) < 1e-10 * max(1.0, size):
        label, why = f"B{higher}", f"f is odd and its first nonlinear term is {a_q:.6g} z^{higher}; {start}"
    else:
        return outside(f"thin family: f(0) = f''(0) = 0 without being odd; {start}", higher, alpha, a_q, known)
    return ActivationClass(
        label=label, q=higher, why=why, slope=alpha, a_q=a_q, offset=offset, taylor=known, sides=sides, _function=f
    )


def _high_order(f: Callable[[Tensor], Tensor], series: Tensor) -> tuple[int | None, Tensor]:
    """The order of the first nonlinear term beyond the usual ones with the longer series; None where there is none, or
    where it does not say what f does a little away from zero."""
    further = taylor(f, FURTHER)
    order = next((k for k in leading(further, 0.5) if k >= 2), None)
    if order is None:
        return None, series
    z = torch.tensor([-0.3, 0.3], dtype=torch.float64)
    with torch.no_grad():
        gap = (f(z) - sum(a * z**k for k, a in enumerate(further.tolist()))).abs().max()
    if float(gap) > 0.1 * abs(float(further[order])) * 0.3**order:
        return None, series
    return order, further


def _with_offset(f: Callable[[Tensor], Tensor], offset: float) -> ActivationClass:
    inner = _decide(lambda z: f(z) - offset)
    rest = "outside the classes" if inner.label == "outside" else f"of class {inner.label}"
    why = f"f(0) = {offset:.6g}: phi(0) = {-offset:.6g}, a constant drift; f - f(0) is {rest}"
    series = (offset, *inner.taylor[1:]) if inner.taylor else ()
    return ActivationClass(
        label="D",
        q=inner.q,
        why=why,
        slope=inner.slope,
        a_q=inner.a_q,
        offset=offset,
        centered=inner.label,
        taylor=series,
        sides=inner.sides,
        _function=f,
    )


def _rays(values: Tensor) -> bool:
    """Is f(z)/z one number on each side? φ = 0 alone would let a jump pass (hardshrink)."""
    ratio = values / _GRID
    return all(
        float(side.max() - side.min()) < 1e-9 * (1 + float(side.abs().max()))
        for side in (ratio[_GRID > 0], ratio[_GRID < 0])
    )


def _surrogate(f: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor]) -> bool:
    """Does autograd contradict the values on more than one point in a hundred?"""
    points, h = _GRID[:-6], 1e-5
    with torch.no_grad():
        measured = (f(points + h) - f(points - h)) / (2 * h)
    claimed = slope(points)
    return float(((measured - claimed).abs() > 1e-4 * (1 + claimed.abs())).double().mean()) > 0.01
