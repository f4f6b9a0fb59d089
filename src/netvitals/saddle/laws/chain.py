r"""The scalar chain: what a symmetric, aligned network of any width computes, and its gradient flow.

With all neurons of a layer alike (:mod:`netvitals.saddle.ansatz`) an $L$-layer network is a function of $L$ scalars,

$$c_1 = X_1 g,\quad c_\ell = X_\ell\,\sigma(c_{\ell-1}),\quad f(g) = \sqrt N X_L\,\sigma(c_{L-1}),\qquad g\sim N(0,1),$$

and its normalized-metric gradient flow on $\mathcal L=\tfrac12 E(f-\beta\sigma(g))^2$ is
$\dot X_\ell = -\partial\mathcal L/\partial X_\ell$ in the clock $t = s/N$, where $s$ is learning rate times steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from netvitals.saddle.laws.drives import resolve

ROWS = 400  # chains swept together: their temporaries stay in the cache and below the allocator's mapping threshold

Clock = Literal["t", "s"]
Metric = Literal["normalized", "uniform"]


class ScalarChain:
    r"""The chain for one activation, width and teacher strength; Gaussian means by Gauss–Hermite quadrature.

    >>> chain = ScalarChain("tanh", width=64)
    >>> round(float(chain.loss(torch.tensor([0.03, 0.05, 0.07, 0.09]))), 6)
    0.197101
    """

    def __init__(self, f: str | Callable[[Tensor], Tensor], width: int, beta: float = 1.0, nodes: int = 128) -> None:
        if width < 1:
            raise ValueError(f"width= must be at least 1, got {width}")
        self.f, self.width, self.beta = resolve(f), width, float(beta)
        self._pair = _PAIRS.get(f) if isinstance(f, str) else None
        from netvitals.activations import gauss_hermite

        g, w = (torch.as_tensor(a, dtype=torch.float64) for a in gauss_hermite(nodes))
        keep = w > 1e-22  # the rest is far below rounding, whatever grows slower than exp(g^2 / 4)
        g, w = g[keep], w[keep]
        with torch.no_grad():
            teacher = self.f(g)
            if bool((teacher + self.f(-g)).abs().max() < 1e-14 * teacher.abs().max()):
                # an odd activation makes every integrand of the flow even: half of the nodes suffice
                g, w, teacher = g[g > 0], 2 * w[g > 0], teacher[g > 0]
        self.g, self.w, self.teacher = g, w, self.beta * teacher

    def output(self, x: Tensor, g: Tensor | None = None) -> Tensor:
        """f(g) for scalars ``x`` (..., L): shape (..., nodes)."""
        c = x[..., :1] * (self.g if g is None else g)
        for ell in range(1, x.shape[-1]):
            c = x[..., ell : ell + 1] * self.f(c)
        return math.sqrt(self.width) * c

    def gradient(self, x: Tensor, g: Tensor | None = None, *, printed: bool = False) -> Tensor:
        r"""$\partial f/\partial X_\ell = \sqrt N(\prod_{m>\ell}\sigma'(c_{m-1})X_m)\,u_{\ell-1}$: (..., L, nodes).

        $u_0 = g$ and $u_\ell = \sigma(c_\ell)$. With ``printed`` the paper's eq. 5, which has $\sigma(g)$ for $u_0$
        (erratum E5).
        """
        g = self.g if g is None else g
        depth = x.shape[-1]
        c, u, slope = x[..., :1] * g, [g.expand(*x.shape[:-1], len(g))], []
        for ell in range(1, depth):
            value, derivative = _with_slope(self.f, c)
            u.append(value)
            slope.append(derivative)
            c = x[..., ell : ell + 1] * value
        if printed:
            u[0] = self.f(u[0])
        back = torch.full_like(u[0], math.sqrt(self.width))
        parts = [back * u[depth - 1]]
        for ell in range(depth - 2, -1, -1):
            back = back * x[..., ell + 1 : ell + 2] * slope[ell]
            parts.append(back * u[ell])
        return torch.stack(parts[::-1], dim=-2)

    def loss(self, x: Tensor) -> Tensor:
        r"""$\tfrac12 E_g(f-\beta\sigma(g))^2$, shape (...)."""
        return 0.5 * ((self.output(x.to(self.g.dtype)) - self.teacher).square() * self.w).sum(-1)

    def velocity(self, x: Tensor, clock: Clock = "t", metric: Metric = "normalized") -> Tensor:
        r"""$dX/dt$ of eq. 4, or $dX/ds$ in the optimizer's clock.

        Under the uniform metric (one learning rate for all layers) the first layer is N times slower than the others:
        $dX_1/ds = -\tfrac1N\partial_1\mathcal L$, $dX_\ell/ds = -\partial_\ell\mathcal L$.
        """
        if self._pair is not None:
            pieces = x.detach().split(ROWS) if x.ndim == 2 else [x.detach()]
            v = (
                torch.cat([self._sweep(piece, self._pair) for piece in pieces])
                if len(pieces) > 1
                else self._sweep(pieces[0], self._pair)
            )
        else:
            with torch.enable_grad():
                leaf = x.detach().requires_grad_(True)
                v = -torch.autograd.grad(self.loss(leaf).sum(), leaf)[0]
        if metric == "uniform":
            rates = torch.ones_like(v)
            rates[..., 0] = 1 / self.width
            return v * rates * (1 if clock == "s" else self.width)
        return v if clock == "t" else v / self.width

    def _sweep(self, x: Tensor, pair: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        """Minus the gradient by a forward and a backward sweep with known derivatives: half the cost of autograd."""
        depth, c, u, slopes = x.shape[-1], x[..., :1] * self.g, [self.g], []
        for ell in range(1, depth):
            value, slope = pair(c)
            u.append(value)
            slopes.append(slope)
            c = x[..., ell : ell + 1] * value
        root = math.sqrt(self.width)
        back = (self.teacher - root * c) * (root * self.w)
        out = torch.empty_like(x)
        out[..., -1] = (back * u[-1]).sum(-1)
        for ell in range(depth - 2, -1, -1):
            back = back * slopes[ell].mul_(x[..., ell + 1 : ell + 2])
            out[..., ell] = (back * u[ell]).sum(-1)
        return out

    def jacobian(self, x: Tensor) -> Tensor:
        r"""$\partial\dot X_i/\partial X_j$ (minus the Hessian of the loss) at one state (L,)."""
        return -torch.autograd.functional.hessian(self.loss, x.detach())

    @property
    def resting_loss(self) -> float:
        r"""Loss of the network that outputs zero, $\tfrac12\beta^2E\sigma^2$."""
        return float(0.5 * (self.teacher.square() * self.w).sum())


_ONE = torch.ones((), dtype=torch.float64)


def _tanh(c: Tensor) -> tuple[Tensor, Tensor]:
    value = torch.tanh(c)
    return value, torch.addcmul(_ONE, value, value, value=-1)


def _silu(c: Tensor) -> tuple[Tensor, Tensor]:
    s = torch.sigmoid(c)
    value = c * s
    return value, s + value * (1 - s)


def _gelu(c: Tensor) -> tuple[Tensor, Tensor]:
    phi = 0.5 * (1 + torch.erf(c * math.sqrt(0.5)))
    return c * phi, phi + c * torch.exp(-0.5 * c * c) * (1 / math.sqrt(2 * math.pi))


_PAIRS: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "tanh": _tanh,
    "silu": _silu,
    "gelu": _gelu,
    "sin": lambda c: (torch.sin(c), torch.cos(c)),
    "erf": lambda c: (torch.erf(c), torch.exp(-c * c) * (2 / math.sqrt(math.pi))),
}


def _with_slope(f: Callable[[Tensor], Tensor], c: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        leaf = c.detach().requires_grad_(True)
        value = f(leaf)
        return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]
