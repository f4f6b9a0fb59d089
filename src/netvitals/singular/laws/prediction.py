r"""What theory says of the K-FAC rates of an architecture, before any measurement (dead-directions Part III, App. A).

All numbers are exponents of second moments: $e^\top G_\ell e \sim t^{g_\ell}$, $e^\top A_\ell e \sim t^{a_\ell}$,
$\sigma_{\min}(X_\ell) \sim t^{s_\ell}$. The corrected laws are used: LayerNorm resets (erratum E8), attention saturates
at min(4k, 4p+8) (E1), SwiGLU stacks as 3(2ⁿ−1) (E2).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from netvitals.capture import Result, one_screen
from netvitals.singular.checkpoint.layernorm import ln_reset_rate
from netvitals.singular.networks.architecture import Architecture, AttentionChain, Chain, SwiGLUStack
from netvitals.singular.networks.crossed import CrossAttentionChain, ProjectedChain


@dataclass(frozen=True, kw_only=True)
class Rates(Result):
    """Predicted exponents by layer name; None where the theory makes no statement.

    Returned by :func:`predict_rates`.

    Attributes:
        G: exponent of λ_min of the gradient factor.
        A: exponent of λ_min of the activation factor.
        stream: σ_min of X_0 … X_L.
        law: which law was used.
        notes: where it is silent, and why.
        why: of a module: by (layer, "G" or "A"), what sets the exponent.
    """

    G: dict[str, float | None]
    A: dict[str, float | None]
    stream: tuple[float | None, ...]
    law: str
    notes: tuple[str, ...] = ()
    why: dict[tuple[str, str], str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def product(self) -> dict[str, float | None]:
        """Exponent of λ_min(A)·λ_min(G): the same in every layer of a plain chain (duality)."""
        return {k: None if g is None or a is None else g + a for (k, g), a in zip(self.G.items(), self.A.values())}

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer."""
        return [{"layer": k, "G": g, "A": self.A[k], "product": self.product[k]} for k, g in self.G.items()]

    def __str__(self) -> str:
        lines = [f"  {k:14s} G t^{g}   A t^{self.A[k]}" for k, g in self.G.items()]
        return one_screen([self.law, *lines, *(f"  note: {n}" for n in self.notes)])


def predict_rates(
    architecture: Architecture | ProjectedChain | CrossAttentionChain | nn.Module,
    batch: Any = None,
    *,
    noisy: bool = True,
    direction: int = 0,
) -> Rates:
    """Predict how the K-FAC factors A and G of every layer scale with the distance t to a dead direction.

    An ``nn.Module`` may consist of linear layers, convolutions, LayerNorm, RMSNorm, sums, and activations whose slope
    at zero is not zero, connected in any way. Any other operation in the module raises an error with its name.

    Args:
        architecture: a ``Chain``, an ``AttentionChain``, a ``SwiGLUStack``, or any ``nn.Module``; or a
            ``ProjectedChain`` or a ``CrossAttentionChain`` with noisy targets.
        batch: inputs, for a module, which is charted on them in the mode it is in.
        noisy: targets carry noise, so that the dead residual is of order one; noise-free adds 2L to every G rate.
        direction: index of the dead direction, for a chain with several.

    Returns:
        Exponents of t by layer for G, A and the stream after it (of a module: at its end); None without a law.

    >>> list(predict_rates(Chain(depth=4)).G.values())
    [6, 4, 2, 0]
    >>> import torch
    >>> net = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 5), nn.GELU(), nn.Linear(5, 2))
    >>> predict_rates(net, torch.ones(4, 3)).G
    {'0': 4, '2': 2, '4': 0}
    """
    if isinstance(architecture, nn.Module):
        from netvitals.singular.laws.network_rates import network_rates
        from netvitals.singular.networks.graph import rate_graph

        if batch is None:
            raise TypeError("predicting the rates of a module needs one forward pass: give inputs as batch=")
        if not noisy or direction:
            raise ValueError(
                "for an nn.Module, rates can only be predicted with noisy=True and direction=0; use a Chain for "
                "other cases"
            )
        return network_rates(rate_graph(architecture, batch))
    if isinstance(architecture, AttentionChain):
        return _attention(architecture)
    if isinstance(architecture, SwiGLUStack):
        return _swiglu(architecture)
    if isinstance(architecture, Chain):
        return _chain(architecture, noisy, direction)
    if isinstance(architecture, ProjectedChain | CrossAttentionChain):
        if not noisy:
            raise ValueError(
                f"rates of a {type(architecture).__name__} can only be predicted with noisy=True; use that instead of "
                "noisy=False"
            )
        return _projected(architecture) if isinstance(architecture, ProjectedChain) else _crossed(architecture)
    raise TypeError(
        "architecture= must be a Chain, an AttentionChain, a SwiGLUStack or an nn.Module, got "
        f"{type(architecture).__name__}; rates of gated skips, experts and batch norm cannot be predicted"
    )


def residual_distance(edges: Mapping[tuple[int, int], float], nodes: int) -> tuple[list[float], list[float]]:
    """Cheapest path from input to each node and from each node to output; weights cost 1, identity skips 0.

    >>> residual_distance({(0, 1): 1, (1, 2): 1, (0, 2): 0}, 3)
    ([0, 1, 0], [0, 1, 0])
    """

    def distances(start: int, steps: Mapping[int, list[tuple[int, float]]]) -> list[float]:
        best: dict[int, float] = {start: 0}
        queue: list[tuple[float, int]] = [(0, start)]
        while queue:
            cost, node = heapq.heappop(queue)
            if cost > best.get(node, cost):
                continue
            for nxt, price in steps.get(node, []):
                if cost + price < best.get(nxt, cost + price + 1):
                    best[nxt] = cost + price
                    heapq.heappush(queue, (cost + price, nxt))
        if len(best) < nodes:
            raise ValueError(
                f"no path leads to nodes {sorted(set(range(nodes)) - set(best))}: every node needs a path from the "
                "input"
            )
        return [best[i] for i in range(nodes)]

    forward: dict[int, list[tuple[int, float]]] = {}
    backward: dict[int, list[tuple[int, float]]] = {}
    for (a, b), cost in edges.items():
        forward.setdefault(a, []).append((b, cost))
        backward.setdefault(b, []).append((a, cost))
    return distances(0, forward), distances(nodes - 1, backward)


def compose_blocks(blocks: Sequence[tuple[str, float]]) -> list[float]:
    """Backward moment exponents at block inputs, 2·Σ of the amplitude rates above (Theorem 30).

    Each block is (kind, rate); kinds "matmul", "mlp", "residual" transfer the dead amplitude as a scalar. Attention and
    gated blocks do not, and are refused: use :func:`predict_rates` for a whole chain of them.

    >>> compose_blocks([("mlp", 2), ("mlp", 2)])
    [8, 4]
    """
    scalar = {"matmul", "mlp", "residual"}
    bad = [kind for kind, _ in blocks if kind not in scalar]
    if bad:
        raise ValueError(
            f"the rates of {', '.join(sorted(set(bad)))} blocks cannot be summed over blocks, because the output of "
            "such a block does not scale with a power of the distance t. Use predict_rates on the whole chain"
        )
    out, total = [], 0.0
    for _, rate in reversed(blocks):
        total += rate
        out.append(2 * total)
    return [int(v) if float(v).is_integer() else v for v in reversed(out)]


def _chain(c: Chain, noisy: bool, direction: int) -> Rates:
    if not 0 <= direction < len(c.powers):
        raise ValueError(
            f"direction= must be at least 0 and less than {len(c.powers)}, the number of dead directions of this "
            f"chain; got {direction}"
        )
    powers = c.powers[direction]
    law = next(law for applies, law in _CHAIN_LAWS if applies(c))
    found = law(c, powers)
    if law is _turned:
        return found
    if c.bias is not None:
        note = "biases keep the G ladder; the forward rate is capped by the bias (erratum E14)"
        found = replace(_without_forward(found), notes=(*found.notes, note))
    return found if noisy else _noise_free(found, c, powers)


def _turned(c: Chain, _: Sequence[float]) -> Rates:
    return Rates(
        G=_by_layer([None] * c.depth),
        A=_by_layer([None] * c.depth),
        stream=(None,) * (c.depth + 1),
        law="no ladder: the dead axis is turned out of the frame",
        notes=("nonlinear activations lose the ladder under rotation (Proposition 119)",),
    )


def _ladder(c: Chain, powers: Sequence[float], skips: Sequence[tuple[int, int]] = ()) -> Rates:
    edges = {(i, i + 1): powers[i] for i in range(c.depth)} | dict.fromkeys(skips, 0)
    to_node, to_output = residual_distance(edges, c.depth + 1)
    return Rates(
        G=_by_layer([2 * d for d in to_output[1:]]),
        A=_by_layer([2 * d for d in to_node[: c.depth]]),
        stream=tuple(to_node),
        law="ladder 2(L−ℓ)",
    )


def _shortest_path(c: Chain, powers: Sequence[float]) -> Rates:
    if len(c.powers) > 1 or any(p != 1 for p in powers):
        raise ValueError(_MIXTURE)
    return replace(_ladder(c, powers, tuple(c.skips)), law="shortest weighted path")


def rms_rate(powers: Sequence[float], norm_after: Sequence[int], layer: int, homogeneous: bool = False) -> float:
    r"""$2\min(\sum_{i>\ell} p_i,\ \min_{p\ge\ell}\sum_{\ell<i\le p} p_i + \sum_{i\le p} p_i)$, RMSNorms after layers p.

    RMSNorm divides by the length: $\partial y_j/\partial x_i$ holds $-x_ix_j/(d r^3)$, so the dead channel reaches the
    live ones at the cost of its own amplitude there, $t^p$, and not only through the weights above. Without norms the
    exponent is 2(L−ℓ); "no-LN rates in any window" (§A.6) is wrong where the detour is cheaper. In networks that are
    homogeneous between two norms (linear, ReLU) a later norm takes the detour away, because it goes along x itself.

    >>> [rms_rate([1] * 4, [1], layer) for layer in (1, 2, 3, 4)], rms_rate([1] * 6, [2], 1)
    ([2, 4, 2, 0], 6)
    """
    last = max(norm_after, default=0)
    open_norms = [p for p in norm_after if p >= layer and (p == last or not homogeneous)]
    detours = [sum(powers[layer:p]) + sum(powers[:p]) for p in open_norms]
    return 2 * min([sum(powers[layer:]), *detours])


def _reset(c: Chain, powers: Sequence[float]) -> Rates:
    if c.skips:
        raise ValueError(_MIXTURE)
    if c.norm == "rms":
        straight = c.activation in ("linear", "relu")
        rates = [rms_rate(powers, c.norm_after, layer, straight) for layer in range(1, c.depth + 1)]
        law = "RMSNorm: the cheaper of the way to the output and the one across a norm above"
        return replace(_without_forward(_ladder(c, powers)), G=_by_layer(rates), law=law)
    g: list[float | None] = [ln_reset_rate(powers, c.norm_after, layer) for layer in range(1, c.depth + 1)]
    notes: tuple[str, ...] = ()
    if c.activation == "relu":
        notes = (
            "above a LayerNorm a ReLU closes the dead channel for every example: dead entries of G in "
            "hidden layers there are identically zero, not a rate",
        )
        g = [None if i < c.depth - 1 and min(c.norm_after) < i + 1 else v for i, v in enumerate(g)]
    law = "LayerNorm reset: distance to the next norm above"
    return replace(_without_forward(_ladder(c, powers)), G=_by_layer(g), law=law, notes=notes)


def _noise_free(found: Rates, c: Chain, powers: Sequence[float]) -> Rates:
    if c.norm_after or c.skips:
        raise ValueError(
            "without noise the exponents of G rise by 2L for L layers, which is derived for plain chains only; use "
            "a Chain without skips or norms"
        )
    shifted = {name: v + 2 * sum(powers) if v is not None else None for name, v in found.G.items()}
    return replace(found, G=shifted, law=found.law + ", noise-free: +2L")


def _without_forward(found: Rates) -> Rates:
    return replace(found, A=dict.fromkeys(found.A), stream=(None,) * len(found.stream))


def _by_layer(values: Sequence[float | None]) -> dict[str, float | None]:
    return {f"layer{i + 1}": v for i, v in enumerate(values)}


_MIXTURE = (
    "rates with skips are known for one direction of exponent 1 without norms; composition does not apply to this "
    "mixture"
)
_ChainLaw = Callable[[Chain, Sequence[float]], Rates]
_CHAIN_LAWS: tuple[tuple[Callable[[Chain], bool], _ChainLaw], ...] = (  # the first that applies
    (lambda c: bool(c.rotation) and c.activation != "linear", _turned),
    (lambda c: bool(c.norm_after), _reset),
    (lambda c: bool(c.skips), _shortest_path),
    (lambda c: True, _ladder),
)


def _attention(c: AttentionChain) -> Rates:
    g: dict[str, float | None] = {}
    blocks = c.blocks
    for p in range(blocks):
        k = blocks - 1 - p
        if c.residual or c.norm:
            for part in "qkvo":
                g[f"block{p}.{part}"] = {"o": 0.0, "v": 2.0}.get(part) if c.residual and not c.norm else None
            continue
        o = min(4 * k, 4 * p + 8)
        g[f"block{p}.o"], g[f"block{p}.v"] = o, o + 2
        g[f"block{p}.q"] = g[f"block{p}.k"] = 4 * p + 2
    law = "attention chain: R_O = min(4k, 4p+8), R_V = R_O + 2, R_Q = R_K = 4p + 2"
    stream: list[float | None] = [0 if c.residual else 2 * p for p in range(blocks + 1)]
    return Rates(
        G=g,
        A=dict.fromkeys(g),
        stream=tuple(stream) if not c.norm else (None,) * (blocks + 1),
        law=law,
        notes=("V minus O is 2 in any composition",),
    )


def _swiglu(c: SwiGLUStack) -> Rates:
    names = [f"block{i}.down" for i in range(c.blocks)]
    # a gate that vanishes with its input makes a → a²t³, one that stays open at zero (the sigmoid's ½) a → a t²
    shut = c.gate != "sigmoid"
    stream = tuple(3 * (2**n - 1) if shut else 2 * n for n in range(c.blocks + 1))
    nothing: dict[str, float | None] = dict.fromkeys(names)
    return Rates(
        G=nothing,
        A=dict(nothing),
        stream=stream,
        law=f"gated stack ({c.gate}): amplitude order {'3(2ⁿ−1)' if shut else '2n'}",
        notes=("only the forward amplitude has a law here",),
    )


def _projected(c: ProjectedChain) -> Rates:
    """Shortest weighted path (Theorem 43), with learned skips at the price of a layer."""
    to, left = residual_distance(c.edges, c.depth + 1)
    ends = {f"layer{i + 1}": (i, i + 1) for i in range(c.depth)} | {f"skip{a}-{b}": (a, b) for a, b in c.projections}
    return Rates(
        G={name: 2 * left[b] for name, (_, b) in ends.items()},
        A={name: 2 * to[a] for name, (a, _) in ends.items()},
        stream=tuple(to),
        law="shortest weighted path; a learned projection costs what a layer costs",
    )


def _crossed(c: CrossAttentionChain) -> Rates:
    g, a, stream = c.exponents()
    return Rates(
        G=dict(g),
        A=dict(a),
        stream=stream,
        law="cross-attention: the memory's dead order plus the weights of V and O, at every depth",
        notes=("infinity: the dead entry is exactly zero, its signal is not there",),
    )
