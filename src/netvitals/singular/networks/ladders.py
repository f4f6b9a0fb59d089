r"""The freeze probe: set a network exactly on its path at several t, read the K-FAC factors, fit the exponents.

No training happens. Samples and noise are the same at every t, arithmetic is float64, and each rate says its regime and
estimator. A readout that is zero at every t is called so and never fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals.capture.result import Result
from netvitals.singular.networks.architecture import Architecture, AttentionChain, Chain, SwiGLUStack, Trace
from netvitals.singular.networks.builders import Builder, Memorised, inputs_of
from netvitals.singular.orders.rates import RateFit, rate_fit

DEFAULT_TS = tuple(np.geomspace(10**-3, 10**-1.3, 6).tolist())


@dataclass(frozen=True)
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
    samples: int

    def __str__(self) -> str:
        rows = [f"  {k:14s} G {self.G[k]}   A {self.A[k]}" for k in self.G]
        return "\n".join([f"freeze probe, {self.regime}, {self.estimator}, {self.samples} samples", *rows])


def freeze_probe(
    architecture: Architecture | Builder,
    ts: Sequence[float] = DEFAULT_TS,
    *,
    loss: str = "mse",
    noise: float = 1.0,
    samples: int = 2000,
    seed: int = 0,
    direction: int = 0,
    fisher: str = "expected",
) -> Ladder:
    """Measure the exponents of ``architecture``.

    Args:
        loss: "mse" (½‖y − f‖², target = output at t = 0 plus noise) or "ce" (softmax over the outputs).
        noise: σ of the target's noise; 0 is the noise-free regime.
        direction: which dead direction (0 is the last channel).
        fisher: for "ce": "expected", or "empirical" with labels drawn at t = 0. For "mse" the loss gradient is used,
            which is the noisy or noise-free regime of the theory.
    """
    if len(ts) < 3 or not all(0 < t < float("inf") for t in ts):
        raise ValueError(f"an exponent is read from at least three places t > 0, got {list(ts)}")
    if samples < 2 or not noise >= 0 or direction < 0:
        raise ValueError(f"two samples, noise ≥ 0 and direction ≥ 0 are needed, got {samples}, {noise} and {direction}")
    if fisher not in ("expected", "empirical"):
        raise ValueError(f"fisher is 'expected' or 'empirical', got {fisher!r}")
    if isinstance(architecture, Chain) and direction >= len(architecture.powers):
        raise ValueError(
            f"this chain has {len(architecture.powers)} dead direction(s), counted from 0; got {direction}"
        )
    if not hasattr(architecture, "trace"):
        raise TypeError(
            f"the freeze probe takes a builder such as Chain or AttentionChain, got {type(architecture).__name__}"
        )
    generator = torch.Generator().manual_seed(seed)
    x = _inputs(architecture, samples, generator)
    own = getattr(architecture, "target", None)
    target = own(x) if own is not None else architecture.trace(0.0, x).output.detach()
    xi = torch.randn(target.shape, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(target.flatten(0, -2).softmax(-1), 1, generator=generator).reshape(target.shape[:-1])
    labels = architecture.labels(x) if isinstance(architecture, Memorised) else labels
    rows: dict[str, list[list[float]]] = {k: [] for k in ("G", "Gs", "A", "As", "P")}
    sigma, amplitude, names = [], [], []
    for t in ts:
        trace = architecture.trace(float(t), x)
        names = trace.names
        deltas = _deltas(trace, loss, target + noise * xi, labels, fisher)
        dead, dead_in = ([v[:, -1 - direction] for v in part] for part in (trace.dead, trace.dead_in))
        g = [_dead_moments(d, v) for d, v in zip(deltas, dead)]
        a = [_dead_moments(x_in, v) for x_in, v in zip(trace.inputs, dead_in)]
        rows["G"].append([entry for entry, _ in g])
        rows["A"].append([entry for entry, _ in a])
        rows["Gs"].append([schur for _, schur in g])
        rows["As"].append([schur for _, schur in a])
        rows["P"].append([p * q for (_, p), (_, q) in zip(g, a)])
        frame = [trace.dead_in[0][:, -1 - direction], *(v[:, -1 - direction] for v in _stream_frames(trace))]
        nodes = [_dead_moments(s, v) for s, v in zip(trace.stream, frame)]
        sigma.append([schur**0.5 for _, schur in nodes])
        amplitude.append([entry**0.5 for entry, _ in nodes])
    fits = {key: {n: _fit(ts, [row[i] for row in table]) for i, n in enumerate(names)} for key, table in rows.items()}
    values = {n: np.array([row[i] for row in rows["G"]]) for i, n in enumerate(names)}
    regime = f"{loss}, " + ("noise-free" if noise == 0 and loss == "mse" else "noisy" if loss == "mse" else "softmax")
    estimator = f"{fisher} Fisher" if loss == "ce" else "loss gradient"
    return Ladder(
        fits["G"],
        fits["Gs"],
        fits["A"],
        fits["As"],
        fits["P"],
        _columns(ts, sigma),
        _columns(ts, amplitude),
        values,
        tuple(map(float, ts)),
        regime,
        estimator,
        samples,
    )


def _inputs(architecture: Architecture | Builder, samples: int, generator: torch.Generator) -> Tensor:
    if not isinstance(architecture, Chain | AttentionChain | SwiGLUStack):
        return inputs_of(architecture)(samples, generator)
    if isinstance(architecture, AttentionChain):
        return torch.randn(samples, architecture.tokens, architecture.width, generator=generator, dtype=torch.float64)
    widths = getattr(architecture, "widths", ())
    x = torch.randn(samples, widths[0] if widths else architecture.width, generator=generator, dtype=torch.float64)
    if isinstance(architecture, Chain) and architecture.norm_after and architecture.activation == "relu":
        # a sample with no live unit leaves the norm nothing but the dead channel, whose exact gradient is zero and
        # whose computed one is rounding divided by t^p
        x = x[(x[:, :-1] > 0).any(1)]
    return x


def _deltas(trace: Trace, loss: str, target: Tensor, labels: Tensor, fisher: str) -> list[Tensor]:
    """δ_l per sample; for the expected Fisher one slice per class, so that moments sum over classes."""
    out = trace.output
    if loss == "mse":
        return list(torch.autograd.grad(0.5 * (out - target).square().sum(), trace.preactivations))
    if loss != "ce":
        raise ValueError(f"the freeze probe knows the losses mse and ce, got {loss!r}")
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

    Both come from the samples and not from the d × d moment matrix, whose rounding would hide anything below 1e-16.
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


def _stream_frames(trace: Trace) -> list[Tensor]:
    """Dead axes of X_1 … X_L; blocks with several projections contribute one node each."""
    step = len(trace.dead) // (len(trace.stream) - 1)
    return trace.dead[step - 1 :: step]


def _fit(ts: Sequence[float], values: list[float]) -> RateFit:
    return rate_fit(ts, values, floor=0.0)


def _columns(ts: Sequence[float], table: list[list[float]]) -> tuple[RateFit, ...]:
    return tuple(_fit(ts, [row[i] for row in table]) for i in range(len(table[0])))
