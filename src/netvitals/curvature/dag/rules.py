r"""Local rules: Jacobians and contracted second derivatives of common nodes, in closed form for one sample.

With the cotangent δ at a node's output, $M=\delta\cdot T_{xx}$ is the Hessian of $\langle\delta,g(x,\theta)\rangle$ in
x, and B its mixed derivative in θ and x. Parameters, where a node has them, come last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.func import jacrev, vmap


class DerivativeRule(Protocol):
    """Closed forms of one node. Argument order: its parents, then θ if it has any."""

    @property
    def bends(self) -> bool:
        """False when M vanishes (almost) everywhere: linear and piecewise-linear nodes."""
        ...

    def jacobians(self, parents: Sequence[Tensor], theta: Tensor | None) -> list[Tensor]:
        """D for each argument, (d_out, d_arg)."""
        ...

    def contractions(
        self, delta: Tensor, parents: Sequence[Tensor], theta: Tensor | None
    ) -> Mapping[tuple[int, int], Tensor]:
        """δ·T for pairs of arguments i ≤ j, (d_i, d_j)."""
        ...


def derivatives(f: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Tensor]:
    """σ'(z) and σ''(z) of an elementwise function."""
    first = lambda t: jacrev(f)(t)
    return vmap(first)(z), vmap(jacrev(first))(z)


@dataclass(frozen=True)
class Dense:
    r"""$\sigma(Wx+b)$ with x the concatenation of the parents and θ = (W, b) flat.

    $D_x=\mathrm{diag}(\sigma')W$, $M=W^\top\mathrm{diag}(\delta\sigma'')W$; for $\theta$ with $x_b\to1$ at the bias,
    $\delta T_{W_{ab},W_{cd}}=\delta_a\sigma''_a1[a=c]x_bx_d$ and
    $\delta T_{W_{ab},x_c}=\delta_a(\sigma''_ax_bW_{ac}+\sigma'_a1[b=c])$.
    """

    width: int
    f: Callable[[Tensor], Tensor] | None = None
    bends: bool = True

    def _parts(self, parents: Sequence[Tensor], theta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        x = torch.cat(list(parents))
        w = theta[: self.width * len(x)].reshape(self.width, len(x))
        z = w @ x + theta[self.width * len(x) :]
        first, second = (torch.ones_like(z), torch.zeros_like(z)) if self.f is None else derivatives(self.f, z)
        return x, w, z, first, second

    def __call__(self, *args: Tensor) -> Tensor:
        *parents, theta = args
        z = self._parts(parents, theta)[2]
        return z if self.f is None else self.f(z)

    def jacobians(self, parents: Sequence[Tensor], theta: Tensor | None) -> list[Tensor]:
        assert theta is not None
        x, w, _, first, _ = self._parts(parents, theta)
        d = first[:, None] * w
        outer = torch.einsum("a,b,ac->acb", first, x, torch.eye(self.width, dtype=x.dtype)).reshape(self.width, -1)
        return [*d.split([len(p) for p in parents], 1), torch.cat([outer, torch.diag(first)], 1)]

    def contractions(
        self, delta: Tensor, parents: Sequence[Tensor], theta: Tensor | None
    ) -> dict[tuple[int, int], Tensor]:
        assert theta is not None
        x, w, _, first, second = self._parts(parents, theta)
        bend = delta * second
        m = w.mT @ (bend[:, None] * w)
        ends = torch.tensor([0, *(len(p) for p in parents)]).cumsum(0).tolist()
        n = len(parents)
        out = {(i, j): m[ends[i] : ends[i + 1], ends[j] : ends[j + 1]] for i in range(n) for j in range(n)}
        eye = torch.eye(self.width, dtype=x.dtype)
        one = torch.cat([x, x.new_ones(1)])  # inputs of W and of b
        mixed = torch.einsum("a,b,ac->abc", bend, one, w)
        mixed[:, :-1] += torch.einsum("a,bc->abc", delta * first, torch.eye(len(x), dtype=x.dtype))
        b = torch.cat([mixed[:, :-1].reshape(-1, len(x)), mixed[:, -1]])
        pure = torch.einsum("a,ac,b,d->abcd", bend, eye, one, one)
        k = len(x)
        rows = torch.cat([pure[:, :k].reshape(self.width * k, self.width, k + 1), pure[:, k]])
        out[n, n] = torch.cat([rows[:, :, :k].reshape(len(theta), -1), rows[:, :, k]], 1)
        for i in range(n):
            out[n, i] = b[:, ends[i] : ends[i + 1]]
            out[i, n] = out[n, i].mT
        return out


@dataclass(frozen=True)
class Elementwise:
    r"""$\sigma(x)$: $D=\mathrm{diag}(\sigma')$, $M=\mathrm{diag}(\delta\sigma'')$."""

    f: Callable[[Tensor], Tensor]
    bends: bool = True

    def __call__(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        return self.f(x)

    def jacobians(self, parents: Sequence[Tensor], theta: Tensor | None) -> list[Tensor]:
        return [torch.diag(derivatives(self.f, parents[0])[0])]

    def contractions(
        self, delta: Tensor, parents: Sequence[Tensor], theta: Tensor | None
    ) -> dict[tuple[int, int], Tensor]:
        return {(0, 0): torch.diag(delta * derivatives(self.f, parents[0])[1])}


@dataclass(frozen=True)
class Normalised:
    r"""LayerNorm (``centre=True``) or RMSNorm without affine: $\hat y=Px/s$, $s=\sqrt{|Px|^2/n+\epsilon}$.

    $D=(P-\hat y\hat y^\top/n)/s$; with $a=\hat y\cdot\delta$ and $q=P\delta-a\hat y/n$,
    $M=-(q\hat y^\top+\hat yq^\top+a(P-\hat y\hat y^\top/n))/(ns^2)$. An affine γ is a scale node after it.
    """

    centre: bool = True
    eps: float = 1e-5
    bends: bool = True

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        n = len(x)
        p = torch.eye(n, dtype=x.dtype, device=x.device) - (1 / n if self.centre else 0)
        c = p @ x
        s = (c.square().mean() + self.eps).sqrt()
        return p, c / s, s

    def __call__(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        return self._parts(x)[1]

    def jacobians(self, parents: Sequence[Tensor], theta: Tensor | None) -> list[Tensor]:
        p, y, s = self._parts(parents[0])
        return [(p - torch.outer(y, y) / len(y)) / s]

    def contractions(
        self, delta: Tensor, parents: Sequence[Tensor], theta: Tensor | None
    ) -> dict[tuple[int, int], Tensor]:
        p, y, s = self._parts(parents[0])
        n, a = len(y), y @ delta
        q = p @ delta - a * y / n
        return {(0, 0): -(torch.outer(q, y) + torch.outer(y, q) + a * (p - torch.outer(y, y) / n)) / (n * s**2)}


@dataclass(frozen=True)
class SoftmaxRule:
    r"""$s=\mathrm{softmax}(x)$: $D=\mathrm{diag}(s)-ss^\top$; with $w=(\delta-s\cdot\delta)\odot s$,
    $M=\mathrm{diag}(w)-ws^\top-sw^\top$."""

    bends: bool = True

    def __call__(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        return torch.softmax(x, 0)

    def jacobians(self, parents: Sequence[Tensor], theta: Tensor | None) -> list[Tensor]:
        s = torch.softmax(parents[0], 0)
        return [torch.diag(s) - torch.outer(s, s)]

    def contractions(
        self, delta: Tensor, parents: Sequence[Tensor], theta: Tensor | None
    ) -> dict[tuple[int, int], Tensor]:
        s = torch.softmax(parents[0], 0)
        w = (delta - s @ delta) * s
        return {(0, 0): torch.diag(w) - torch.outer(w, s) - torch.outer(s, w)}


@dataclass(frozen=True)
class Hadamard:
    r"""$a\odot b$: $D_a=\mathrm{diag}(b)$, $\delta T_{a,b}=\mathrm{diag}(\delta)$."""

    bends: bool = True

    def __call__(self, a: Tensor, b: Tensor, theta: Tensor | None = None) -> Tensor:
        return a * b

    def jacobians(self, parents: Sequence[Tensor], theta: Tensor | None) -> list[Tensor]:
        a, b = parents
        return [torch.diag(b), torch.diag(a)]

    def contractions(
        self, delta: Tensor, parents: Sequence[Tensor], theta: Tensor | None
    ) -> dict[tuple[int, int], Tensor]:
        zero = torch.zeros(len(delta), len(delta), dtype=delta.dtype)
        return {(0, 0): zero, (0, 1): torch.diag(delta), (1, 0): torch.diag(delta), (1, 1): zero}


@dataclass(frozen=True)
class MatMul:
    r"""$\mathrm{vec}(AV)$ for A of (m, k) and V of (k, n), both flat: $\delta T_{A_{ij},V_{jl}}=\delta_{il}$."""

    m: int
    k: int
    n: int
    bends: bool = True

    def __call__(self, a: Tensor, v: Tensor, theta: Tensor | None = None) -> Tensor:
        return (a.reshape(self.m, self.k) @ v.reshape(self.k, self.n)).reshape(-1)

    def jacobians(self, parents: Sequence[Tensor], theta: Tensor | None) -> list[Tensor]:
        a, v = parents[0].reshape(self.m, self.k), parents[1].reshape(self.k, self.n)
        im, in_ = torch.eye(self.m, dtype=a.dtype), torch.eye(self.n, dtype=a.dtype)
        da = torch.einsum("ip,jl->ilpj", im, v).reshape(self.m * self.n, -1)
        dv = torch.einsum("ij,lq->iljq", a, in_).reshape(self.m * self.n, -1)
        return [da, dv]

    def contractions(
        self, delta: Tensor, parents: Sequence[Tensor], theta: Tensor | None
    ) -> dict[tuple[int, int], Tensor]:
        d = delta.reshape(self.m, self.n)
        ik = torch.eye(self.k, dtype=d.dtype)
        cross = torch.einsum("il,jp->ijpl", d, ik).reshape(self.m * self.k, self.k * self.n)
        za = torch.zeros(self.m * self.k, self.m * self.k, dtype=d.dtype)
        zv = torch.zeros(self.k * self.n, self.k * self.n, dtype=d.dtype)
        return {(0, 0): za, (0, 1): cross, (1, 0): cross.mT, (1, 1): zv}


@dataclass(frozen=True)
class Linear:
    """Any (piecewise) linear map without parameters: add, concat, scale, reshape, pooling, a fixed convolution."""

    f: Callable[..., Tensor]
    bends: bool = False

    def __call__(self, *args: Tensor) -> Tensor:
        return self.f(*args[:-1])

    def jacobians(self, parents: Sequence[Tensor], theta: Tensor | None) -> list[Tensor]:
        return list(jacrev(self.f, argnums=tuple(range(len(parents))))(*parents))

    def contractions(
        self, delta: Tensor, parents: Sequence[Tensor], theta: Tensor | None
    ) -> dict[tuple[int, int], Tensor]:
        n = len(parents)
        return {
            (i, j): torch.zeros(parents[i].numel(), parents[j].numel(), dtype=delta.dtype)
            for i in range(n)
            for j in range(n)
        }
