r"""Several teacher modes: the exact block-symmetric reduction.

With K blocks of $N_B$ identical units per hidden layer the network is a function of $K^2(L-1)+K$ scalars: $P$ (rows of
$W_1$ in block k are $\sum_mP_{km}v_m$), $Q_\ell$ (entries $Q_\ell[k,k']/N_B$) and $R$ (readout $R_k/\sqrt{N_B}$),

$$h_1=\sigma(Pz),\quad h_\ell=\sigma(Q_\ell h_{\ell-1}),\quad f=\sqrt{N_B}R^\top h_{L-1},\qquad z\sim N(0,I_K),$$

and with rates $(1,1/N_B,\dots)$ and $t=s/N_B$ all scalars follow $\dot\theta=-\partial_\theta\mathcal L$. The diagonal
part alone (one aligned chain per mode) is not preserved: off-block entries are driven at the same order (E12).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from netvitals.saddle.laws.drives import resolve
from netvitals.saddle.students.network import Stack

Closure = Literal["full", "truncated", "decoupled"]


class BlockChain:
    """The reduction for given teacher strengths, depth and block width.

    Gaussian means by a tensor rule with ``nodes`` per mode: for three tanh modes 10 nodes miss the loss by 0.8 %, 20 by
    0.02 %.

    >>> chain = BlockChain("tanh", betas=(1.0, 0.3, 0.08), depth=4, block=20, nodes=8)
    >>> chain.size, tuple(chain.aligned(0.05).shape)
    (30, (30,))
    """

    def __init__(
        self, f: str | Callable[[Tensor], Tensor], betas: Sequence[float], depth: int, block: int, nodes: int = 20
    ) -> None:
        from netvitals.activations import gauss_hermite

        if depth < 3:
            raise ValueError(f"the block reduction is for depth at least 3, got {depth}")
        self.f, self.depth, self.block = resolve(f), depth, block
        self.betas = torch.tensor(list(betas), dtype=torch.float64)
        self.modes = len(self.betas)
        z, w = gauss_hermite(nodes, dim=self.modes)
        z, w = (z[:, None], w) if z.ndim == 1 else (z, w)
        target = (self.f(z) * self.betas).sum(-1)
        if bool((target + (self.f(-z) * self.betas).sum(-1)).abs().max() < 1e-13 * target.abs().max()):
            # odd activations make the loss even in z: one half-space suffices
            lead = (z * torch.tensor([2.0**-k for k in range(self.modes)], dtype=torch.float64)).sum(-1)
            z, w, target = z[lead > 0], 2 * w[lead > 0], target[lead > 0]
            w = w / w.sum()
        keep = w > 1e-18
        self.z, self.w, self.target = z[keep], w[keep], target[keep]

    @property
    def size(self) -> int:
        return self.modes**2 * (self.depth - 1) + self.modes

    def split(self, theta: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        """P (..., K, K), Q_2..Q_{L−1}, R (..., K) of a state (..., size)."""
        k = self.modes
        squares = theta[..., : k * k * (self.depth - 1)].reshape(*theta.shape[:-1], self.depth - 1, k, k)
        return squares[..., 0, :, :], [squares[..., i, :, :] for i in range(1, self.depth - 1)], theta[..., -k:]

    def join(self, p: Tensor, q: Sequence[Tensor], r: Tensor) -> Tensor:
        return torch.cat([m.flatten(-2) for m in (p, *q)] + [r], -1)

    def aligned(self, scales: float | Sequence[float] | Tensor) -> Tensor:
        """Modewise-blocks initialisation: block k aligned with mode k at scale(s) ε, (K,) or (L, K)."""
        s = torch.as_tensor(scales, dtype=torch.float64)
        s = s.expand(self.depth, self.modes) if s.ndim < 2 else s
        return self.join(torch.diag(s[0]), [torch.diag(s[i]) for i in range(1, self.depth - 1)], s[-1])

    def diagonal(self) -> Tensor:
        """Mask of the on-block scalars, L per mode."""
        eye = torch.eye(self.modes, dtype=torch.bool)
        return self.join(eye, [eye] * (self.depth - 2), torch.ones(self.modes, dtype=torch.bool))

    def channels(self) -> dict[str, Tensor]:
        """Masks: on-block scalars X, rotations η (off-diagonal P), couplings C (off-diagonal Q_2), deeper ones."""
        zero, off = torch.zeros(self.modes, self.modes, dtype=torch.bool), ~torch.eye(self.modes, dtype=torch.bool)
        none, q = torch.zeros(self.modes, dtype=torch.bool), [zero] * (self.depth - 2)
        out = {"on-block": self.diagonal(), "rotations": self.join(off, q, none)}
        for i in range(self.depth - 2):
            out[f"couplings {i + 2}"] = self.join(zero, [off if j == i else zero for j in range(self.depth - 2)], none)
        return out

    def closure_mask(self, closure: Closure) -> Tensor:
        """Which scalars move: all; on-block, rotations and layer-2 couplings (24 of 30); or on-block only."""
        if closure == "full":
            return torch.ones(self.size, dtype=torch.bool)
        parts = self.channels()
        if closure == "decoupled":
            return parts["on-block"]
        return parts["on-block"] | parts["rotations"] | parts["couplings 2"]

    def output(self, theta: Tensor, z: Tensor | None = None) -> Tensor:
        p, q, r = self.split(theta)
        h = self.f((self.z if z is None else z) @ p.transpose(-1, -2))
        for m in q:
            h = self.f(h @ m.transpose(-1, -2))
        return math.sqrt(self.block) * (h @ r[..., None])[..., 0]

    def loss(self, theta: Tensor) -> Tensor:
        return 0.5 * ((self.output(theta) - self.target).square() * self.w).sum(-1)

    def velocity(self, theta: Tensor, closure: Closure = "full") -> Tensor:
        """dθ/dt in the clock t = s/N_B; differentiable when ``theta`` is part of a graph.

        ``"truncated"`` freezes the couplings of layers 3 and up at zero; ``"decoupled"`` gives every mode its own loss,
        as if the others were absent from student and teacher.
        """
        grow = theta.requires_grad
        with torch.enable_grad():
            leaf = theta if grow else theta.detach().requires_grad_(True)
            if closure == "decoupled":
                total = self._separate_losses(leaf).sum()
            else:
                total = self.loss(leaf).sum()
            v = -torch.autograd.grad(total, leaf, create_graph=grow)[0]
        return v * self.closure_mask(closure)

    def _separate_losses(self, theta: Tensor) -> Tensor:
        p, q, r = self.split(theta)
        diagonal = [m.diagonal(dim1=-2, dim2=-1) for m in (p, *q)]
        g, w = self._line()
        c = diagonal[0][..., None] * g
        for d in [*diagonal[1:], r]:
            c = d[..., None] * self.f(c)
        error = math.sqrt(self.block) * c - self.betas[:, None] * self.f(g)
        return 0.5 * (error.square() * w).sum((-1, -2))

    def _line(self) -> tuple[Tensor, Tensor]:
        from netvitals.activations import gauss_hermite

        return gauss_hermite(64)

    def jacobian(self, theta: Tensor, closure: Closure = "full") -> Tensor:
        """∂(dθ/dt)/∂θ at one state, by differentiating the velocity row by row."""
        leaf = theta.detach().requires_grad_(True)
        v = self.velocity(leaf, closure)
        rows = [torch.autograd.grad(x, leaf, retain_graph=True)[0] for x in v]
        return torch.stack(rows)

    def embed(self, theta: Tensor, directions: Tensor) -> Stack:
        """The full network (one copy) that a state stands for; ``directions`` are the teacher's, (K, d)."""
        p, q, r = self.split(theta.detach())
        n = self.block
        wide = lambda m: m.repeat_interleave(n, 0)
        stack = [wide(p @ directions.double())]
        stack += [wide(m).repeat_interleave(n, 1) / n for m in q]
        stack.append(r[None].repeat_interleave(n, 1) / math.sqrt(n))
        return [w[None].contiguous() for w in stack]

    def reduce(self, stack: Stack, directions: Tensor) -> Tensor:
        """Block means of full weights as states (copies, size): the inverse of :meth:`embed` on its image."""
        k, n = self.modes, self.block
        p = (stack[0].double() @ directions.double().T).unflatten(1, (k, n)).mean(2)
        q = [n * w.double().unflatten(1, (k, n)).unflatten(3, (k, n)).mean((2, 4)) for w in stack[1:-1]]
        r = math.sqrt(n) * stack[-1].double()[:, 0].unflatten(1, (k, n)).mean(2)
        return self.join(p, q, r)
