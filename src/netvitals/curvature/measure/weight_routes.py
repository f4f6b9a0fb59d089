r"""Blocks between the weights of two nodes, term by term, with the bound of Corollary 17.

$H_{\theta_v,\theta_w}=D_v^\top H_{v,w}D_w+\ldots$: through the activations, and what weights do to each other
directly. Norms are estimated with probes in the space of the weights of w.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals.capture import Result
from netvitals.curvature.engine.cut import CutModel, Vector, zeros
from netvitals.curvature.engine.routing import added, routed
from netvitals.curvature.measure.block_estimates import frobenius

TERMS = ("gauss_newton", "through", "pure", "mixed_left", "mixed_right")
STEPS, CLOSE = 200, 1e-5  # of a power iteration, and the relative gain at which it ends


@dataclass(frozen=True, kw_only=True)
class WeightBlock(Result):
    """The block between the weights of v and those of w: its norm, its five terms, and Corollary 17.

    Part of :class:`CurvatureGraph`.

    Attributes:
        total: Frobenius norm of the block.
        stderr: of ``total``, by the probes; 0 where exact.
        gauss_newton: norm of $D_v^\\top H^{GN}_{v,w}D_w$.
        through: of $D_v^\\top H^T_{v,w}D_w$.
        pure: of the second derivative of v by its own weights; only for v = w.
        mixed_left: of what the weights of w do to the inputs of v.
        mixed_right: of what the weights of v do to the inputs of w.
        jacobians: spectral norms of $D_v$ and $D_w$, all examples together.
        bound: Corollary 17, from the block between the activations.
        bound_stderr: its standard error by the probes.
    """

    total: float
    stderr: float
    gauss_newton: float
    through: float
    pure: float
    mixed_left: float
    mixed_right: float
    jacobians: tuple[float, float]
    bound: float
    bound_stderr: float

    @property
    def direct(self) -> float:
        """R of the corollary: the norms of the terms that do not pass through the activations' Hessian."""
        return self.pure + self.mixed_left + self.mixed_right

    def __str__(self) -> str:
        error = f" ± {self.stderr:.1g}" if self.stderr else ""
        return (
            f"{self.total:.3g}{error}, at most {self.bound:.3g} (Cor. 17: {self.bound - self.direct:.3g} through "
            f"activations, {self.direct:.3g} directly)"
        )


def between_weights(
    cut: CutModel,
    w: str,
    blocks: Mapping[str, tuple[float, float]],
    probes: int,
    seed: int,
    progress: Callable[[int], None] | None = None,
) -> dict[str, WeightBlock]:
    """v → the block of its weights with those of w; ``blocks`` has the norms between activations, examples apart."""
    if not cut.weights.get(w):
        raise ValueError(
            f"there is no trainable parameter between {w} and the preceding nodes: choose another node for the "
            "argument of="
        )
    require_separate(cut, w)
    own = cut.weights[w]
    sizes = [p.numel() for p in own]
    exact = sum(sizes) <= probes
    count = sum(sizes) if exact else probes
    generator = torch.Generator().manual_seed(seed + 1)
    squares: dict[tuple[str, str], list[float]] = {}
    for k in range(count):
        flat = (
            torch.eye(sum(sizes))[k] if exact else torch.randint(0, 2, (sum(sizes),), generator=generator) * 2.0 - 1.0
        )
        z = [part.to(p).view_as(p) for part, p in zip(flat.split(sizes), own)]
        for v, terms in _terms(cut, w, z).items():
            whole = [sum(parts[1:], parts[0]) for parts in zip(*terms.values())]
            for name, h in [("total", whole), *terms.items()]:
                squares.setdefault((v, name), []).append(float(sum(t.double().square().sum() for t in h)))
        if progress is not None:
            progress(k + 1)
    norm = {key: frobenius(np.array(values), exact) for key, values in squares.items()}
    gains = {v: spectral_norm(cut, v, seed) for v in dict.fromkeys(v for v, _ in norm)}
    found = {}
    for v in gains:
        size, error = blocks.get(v, (0.0, 0.0))
        direct = [norm[v, name] for name in TERMS[2:]]
        scale = gains[v] * gains[w]
        found[v] = WeightBlock(
            total=norm[v, "total"][0],
            stderr=norm[v, "total"][1],
            **{name: norm[v, name][0] for name in TERMS},
            jacobians=(gains[v], gains[w]),
            bound=scale * size + sum(value for value, _ in direct),
            bound_stderr=float(np.hypot(scale * error, np.linalg.norm([e for _, e in direct]))),
        )
    return found


def _terms(cut: CutModel, w: str, z: Vector) -> dict[str, dict[str, Vector]]:
    """The five terms of every block with the weights of w, times z."""
    tangent, bent, pure = cut.push_weights(w, z)
    run = routed(cut, w, tangent)
    right: dict[str, Vector] = dict(bent)
    for u in reversed(cut.order[: cut.order.index(w)]):
        if u in right:
            for p, h in cut.carry(u, right[u]).items():
                right[p] = added(right[p], h) if p in right else h
    out = {}
    for v in cut.order:
        if not cut.weights[v]:
            continue
        nothing = zeros(cut.weights[v])
        out[v] = {
            "gauss_newton": cut.carry_weights(v, run.gauss_newton[v]),
            "through": cut.carry_weights(v, run.tensor[v]),
            "pure": pure if v == w else nothing,
            "mixed_left": run.weights.get(v, nothing),
            "mixed_right": cut.carry_weights(v, right[v]) if v in right else nothing,
        }
    return out


def spectral_norm(cut: CutModel, v: str, seed: int) -> float:
    """The largest singular value of the Jacobian of a node by its weights, all examples together."""
    generator = torch.Generator().manual_seed(seed)
    x = [torch.randn(p.shape, generator=generator).to(p) for p in cut.weights[v]]
    before = 0.0
    for _ in range(STEPS):
        x = [t / max(_length(x), 1e-300) for t in x]
        y = cut.push_weights(v, x)[0]
        size = _length(y)
        if size <= before * (1 + CLOSE):
            return max(size, before)
        before, x = size, cut.carry_weights(v, y)
    return before


def require_separate(cut: CutModel, w: str) -> None:
    """Raise a sentence where examples see each other between w and the loss: their blocks cannot be kept apart."""
    b = cut.leaves[w][0].shape[0]
    mask = torch.arange(b) % 2 == 0
    half = [torch.randn_like(t) * mask.to(t).view(-1, *(1,) * (t.ndim - 1)) for t in cut.leaves[w]]
    tangents = {w: half}
    for u in cut.order[cut.order.index(w) + 1 :]:
        known = {p: tangents[p] for p in cut.parents[u] if p in tangents}
        if known:
            tangents[u] = cut.push(u, known)[0]
            if any(t.shape[:1] != (b,) or bool(t[~mask].any()) for t in tangents[u]):
                raise ValueError(
                    f"at {u} examples influence each other, so the Hessian cannot be split into one block per "
                    "example, which weights=True needs: leave weights=True out"
                )


def _length(vector: list[Tensor]) -> float:
    return float(sum(t.double().square().sum() for t in vector)) ** 0.5
