r"""The freeze probe: set a network exactly on its path at several t, read the K-FAC factors, fit the exponents.

No training happens. Inputs and noise are the same at every t, arithmetic is float64, and each rate says its regime and
estimator. A readout that is zero at every t is called so and never fitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from netvitals.capture import Result, one_screen
from netvitals.singular.networks.architecture import Architecture, ArchitectureTrace, AttentionChain, Chain, SwiGLUStack
from netvitals.singular.networks.builders import Builder, Memorised, inputs_of
from netvitals.singular.orders.rates import RateFit, rate_fit

DEFAULT_TS = tuple(np.geomspace(10**-3, 10**-1.3, 6).tolist())


READOUTS = ("G", "G_schur", "A", "A_schur", "product", "stream", "forward")


@dataclass(frozen=True)
class Rung:
    """One number at one t: what was read, and where."""

    t: float
    readout: str  # one of READOUTS
    place: str  # layer, or number of the stream's node
    value: float


@dataclass(frozen=True, kw_only=True)
class Ladder(Result):
    """Fitted exponents by layer and readout."""

    G: dict[str, RateFit]  # dead entry vᵀGv
    G_schur: dict[str, RateFit]  # Schur complement of the dead entry
    A: dict[str, RateFit]
    A_schur: dict[str, RateFit]
    product: dict[str, RateFit]  # Schur(A)·Schur(G)
    stream: tuple[RateFit, ...]  # σ_min(X_l)/√N, dead direction
    forward: tuple[RateFit, ...]  # amplitude of the dead component
    values: dict[str, np.ndarray]  # raw dead entries of G over t, per layer
    ts: tuple[float, ...]
    regime: str
    estimator: str
    examples: int

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer and readout: the exponent and its standard error."""
        tables = {name: getattr(self, name) for name in READOUTS[:5]}
        return [
            {"readout": name, "layer": layer, "slope": fit.slope, "stderr": fit.stderr}
            for name, fits in tables.items()
            for layer, fit in fits.items()
        ]

    def __str__(self) -> str:
        lines = [f"  {k:14s} G {self.G[k]}   A {self.A[k]}" for k in self.G]
        return one_screen([f"freeze probe, {self.regime}, {self.estimator}, {self.examples} examples", *lines])


def freeze_probe(
    architecture: Architecture | Builder,
    ts: Sequence[float] = DEFAULT_TS,
    *,
    loss: str = "mse",
    noise: float = 1.0,
    examples: int = 2000,
    seed: int = 0,
    direction: int = 0,
    fisher: str = "expected",
) -> Ladder:
    """Measure the exponents of ``architecture``."""
    _check(architecture, ts, noise, examples, direction, fisher)
    generator = torch.Generator().manual_seed(seed)
    x = _inputs(architecture, examples, generator)
    own = getattr(architecture, "target", None)
    target = own(x) if own is not None else architecture.trace(0.0, x).output.detach()
    xi = torch.randn(target.shape, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(target.flatten(0, -2).softmax(-1), 1, generator=generator).reshape(target.shape[:-1])
    labels = architecture.labels(x) if isinstance(architecture, Memorised) else labels
    rungs: list[Rung] = []
    for t in map(float, ts):
        trace = architecture.trace(t, x)
        rungs += _rungs(t, trace, _deltas(trace, loss, target + noise * xi, labels, fisher), direction)
    table = pl.DataFrame(rungs)
    fits: dict[str, dict[str, RateFit]] = {name: {} for name in READOUTS}
    for (name, place), group in table.group_by("readout", "place", maintain_order=True):
        fits[str(name)][str(place)] = rate_fit(group["t"].to_list(), group["value"].to_list(), floor=0.0)
    entries = table.filter(pl.col("readout") == "G")
    regime = f"{loss}, " + ("noise-free" if noise == 0 and loss == "mse" else "noisy" if loss == "mse" else "softmax")
    return Ladder(
        **{name: fits[name] for name in READOUTS[:5]},
        stream=tuple(fits["stream"].values()),
        forward=tuple(fits["forward"].values()),
        values={n: entries.filter(pl.col("place") == n)["value"].to_numpy() for n in fits["G"]},
        ts=tuple(map(float, ts)),
        regime=regime,
        estimator=f"{fisher} Fisher" if loss == "ce" else "loss gradient",
        examples=examples,
    )


def _check(architecture: object, ts: Sequence[float], noise: float, examples: int, direction: int, fisher: str) -> None:
    if len(ts) < 3 or not all(0 < t < float("inf") for t in ts):
        raise ValueError(f"fitting an exponent needs at least three values t > 0 in ts, got {list(ts)}")
    if examples < 2 or not noise >= 0 or direction < 0:
        raise ValueError(
            f"examples= must be at least 2, and noise= and direction= must not be negative; got {examples}, {noise} "
            f"and {direction}"
        )
    if fisher not in ("expected", "empirical"):
        raise ValueError(f"fisher= must be 'expected' or 'empirical', got {fisher!r}")
    if isinstance(architecture, Chain) and direction >= len(architecture.powers):
        raise ValueError(
            f"direction= must be at least 0 and less than {len(architecture.powers)}, the number of dead directions of "
            f"this chain; got {direction}"
        )
    if not hasattr(architecture, "trace"):
        raise TypeError(
            f"architecture= must be a builder such as Chain or AttentionChain, got {type(architecture).__name__}"
        )


def _rungs(t: float, trace: ArchitectureTrace, deltas: list[Tensor], direction: int) -> Iterator[Rung]:
    """Every readout of every layer, and of every node of the stream, at one t."""
    column = -1 - direction
    for name, delta, dead, x, dead_in in zip(trace.names, deltas, trace.dead, trace.inputs, trace.dead_in):
        g, g_schur = _dead_moments(delta, dead[:, column])
        a, a_schur = _dead_moments(x, dead_in[:, column])
        numbers = (g, g_schur, a, a_schur, g_schur * a_schur)
        yield from (Rung(t, readout, name, value) for readout, value in zip(READOUTS, numbers))
    frames = [trace.dead_in[0], *_stream_frames(trace)]
    for node, (x, dead) in enumerate(zip(trace.stream, frames)):
        entry, schur = _dead_moments(x, dead[:, column])
        yield Rung(t, "stream", str(node), schur**0.5)
        yield Rung(t, "forward", str(node), entry**0.5)


def _inputs(architecture: Architecture | Builder, examples: int, generator: torch.Generator) -> Tensor:
    if not isinstance(architecture, Chain | AttentionChain | SwiGLUStack):
        return inputs_of(architecture)(examples, generator)
    if isinstance(architecture, AttentionChain):
        return torch.randn(examples, architecture.tokens, architecture.width, generator=generator, dtype=torch.float64)
    widths = getattr(architecture, "widths", ())
    x = torch.randn(examples, widths[0] if widths else architecture.width, generator=generator, dtype=torch.float64)
    if isinstance(architecture, Chain) and architecture.norm_after and architecture.activation == "relu":
        # an example with no live unit leaves the norm nothing but the dead channel, whose exact gradient is zero and
        # whose computed one is rounding divided by t^p
        x = x[(x[:, :-1] > 0).any(1)]
    return x


def _deltas(trace: ArchitectureTrace, loss: str, target: Tensor, labels: Tensor, fisher: str) -> list[Tensor]:
    """δ_l per example; for the expected Fisher one slice per class, so that moments sum over classes."""
    out = trace.output
    if loss == "mse":
        return list(torch.autograd.grad(0.5 * (out - target).square().sum(), trace.preactivations))
    if loss != "ce":
        raise ValueError(f"loss= must be 'mse' or 'ce', got {loss!r}")
    if fisher == "empirical":
        value = torch.nn.functional.cross_entropy(out.flatten(0, -2), labels.flatten(), reduction="sum")
        return list(torch.autograd.grad(value, trace.preactivations))
    p = out.detach().softmax(-1)
    classes = p.shape[-1]
    # columns of S with S Sᵀ = diag(p) − p pᵀ: one backward pass per class gives E[δδᵀ] over labels exactly
    roots = torch.diag_embed(p.sqrt()) - p[..., :, None] * p.sqrt()[..., None, :]
    pieces = [torch.autograd.grad(out, trace.preactivations, roots[..., c], retain_graph=True) for c in range(classes)]
    return [
        torch.stack([piece[i] for piece in pieces], 1).flatten(0, 1) * classes**0.5
        for i in range(len(trace.preactivations))
    ]


def _dead_moments(x: Tensor, dead: Tensor) -> tuple[float, float]:
    """Second moment of the dead component, and its Schur complement D − bᵀB⁻¹b.

    Both come from the examples and not from the d × d moment matrix, whose rounding would hide anything below 1e-16.
    The Schur complement is what is left of the dead component after regression on the live ones.
    """
    rows = x.detach().reshape(-1, x.shape[-1])
    component = rows @ dead
    entry = float(component.square().mean())
    live = torch.linalg.qr(torch.cat([dead[:, None], torch.eye(len(dead), dtype=rows.dtype)], 1))[0][:, 1:]
    u, s, _ = torch.linalg.svd(rows @ live, full_matrices=False)
    u = u[:, s > 1e-12 * s[0]] if len(s) and s[0] > 0 else u[:, :0]
    left = component - u @ (u.T @ component)
    left = left - u @ (u.T @ left)  # twice is enough
    schur = float(left.square().mean())
    return entry, schur if schur > 1e-26 * entry else 0.0


def _stream_frames(trace: ArchitectureTrace) -> list[Tensor]:
    """Dead axes of X_1 … X_L; blocks with several projections contribute one node each."""
    step = len(trace.dead) // (len(trace.stream) - 1)
    return trace.dead[step - 1 :: step]
