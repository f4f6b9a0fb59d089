r"""A look at a network on its plateau: the numbers from which the end of the plateau can be told.

On a probe batch, with $o_0$ the output at input zero (what the biases alone say) and $\ell$ any loss:

- signal $\gamma=-\langle o-o_0,\nabla\ell(o_0)\rangle$: how far the loss has begun to fall, to first order. For squared
  loss and no biases this is $E[fy]$, which grows with what the theory calls the signal energy.
- $\lVert g_\ell\rVert_2$, $\lVert g_\ell\rVert_1$: gradients of the layers, which set how fast γ grows.
- gain $y_\ell=\lVert W_\ell\rVert_F/\sqrt{\min(n_{in},n_{out})}$ of every layer on a random vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.anatomy.wiring import Links, Run, find_links, recorded
from netvitals.capture import preserved
from netvitals.saddle.measure.bottlenecks import bottleneck
from netvitals.saddle.students.network import Stack, output

NORMS = ("BatchNorm", "NativeLayerNorm", "LayerNorm", "NativeGroupNorm", "NativeBatchNorm", "CudnnBatchNorm", "Rsqrt")


@dataclass(frozen=True)
class Snapshot:
    """One look. ``reason`` is empty, or says why no forecast can rest on this network."""

    step: int
    signal: float
    loss: float
    resting: float  # loss of the constant output o_0
    names: tuple[str, ...]
    grads: tuple[float, ...]  # ‖g_ℓ‖₂ per layer
    signs: tuple[float, ...]  # ‖g_ℓ‖₁ per layer
    gains: tuple[float, ...]
    scales: tuple[float, ...]  # ‖W_ℓ‖_F over its value at He-normal initialisation
    reason: str = ""

    @property
    def progress(self) -> float:
        """Share of the resting loss that is already gone."""
        return 1 - self.loss / self.resting if self.resting > 0 else math.nan

    def __str__(self) -> str:
        if self.reason:
            return f"step {self.step}: {self.reason}"
        return (
            f"step {self.step}: signal {self.signal:.4g}, loss {self.loss:.5g} of {self.resting:.5g} at rest, "
            f"{len(self.names)} layers"
        )

    @property
    def small(self) -> tuple[int, ...]:
        """Indices of the small layers, by their scales now; empty when none is small."""
        return bottleneck(list(self.scales)).layers if all(s > 0 for s in self.scales) else ()


def snapshot(
    model: nn.Module, batch: tuple[Any, Any], loss_fn: Callable[[Any, Any], Tensor], step: int = 0
) -> Snapshot:
    """Look at a model once; it is left exactly as it was.

    Args:
        model: a network whose Linear and convolution layers form one chain from input to output.
        batch: a fixed probe batch; mirror-symmetric inputs (x and −x) give the cleanest signal.
        loss_fn: ``loss_fn(model(inputs), targets)``, a mean over the batch.
        step: the training step this look belongs to.

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    >>> seen = snapshot(net, (torch.randn(16, 4), torch.randn(16, 1)), nn.functional.mse_loss)
    >>> seen.names, seen.reason
    (('0', '2'), '')
    """
    inputs, targets = batch
    with preserved(model), torch.enable_grad():
        for p in model.parameters():
            p.requires_grad_(True)
        with recorded(model) as runs:
            out = model(inputs)
        if not isinstance(out, Tensor):
            return _refused(step, f"the model returns a {type(out).__name__}, not a tensor of outputs")
        loss = loss_fn(out, targets)
        links = find_links(runs)
        names, reason = _single_chain(runs, links, out)
        if reason:
            return _refused(step, reason)
        weights = [runs[n].weight for n in names]
        grads = torch.autograd.grad(loss, weights)
        flat, rest = out.detach(), _at_rest(model, inputs, out).requires_grad_(True)
        resting = loss_fn(rest, targets)
        (pull,) = torch.autograd.grad(resting, rest)
        signal = -((flat - rest.detach()) * pull).sum()
        numbers = [
            signal,
            loss.detach(),
            resting.detach(),
            *(g.norm() for g in grads),
            *(g.abs().sum() for g in grads),
            *(w.detach().norm() for w in weights),
        ]
        values = torch.stack([v.detach().double() for v in numbers]).tolist()
    n = len(names)
    norms = values[3 + 2 * n :]
    shapes = [(w.shape[0], w[0].numel()) for w in weights]
    return Snapshot(
        step,
        values[0],
        values[1],
        values[2],
        names,
        tuple(values[3 : 3 + n]),
        tuple(values[3 + n : 3 + 2 * n]),
        *_gains(norms, shapes),
        reason=_finite(values),
    )


def stack_snapshots(
    weights: Stack,
    x: Tensor,
    y: Tensor,
    f: Callable[[Tensor], Tensor],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    step: int = 0,
) -> list[Snapshot]:
    """The same for a stack of networks (copies, n_out, n_in), one snapshot per copy.

    ``loss_fn(outputs, y)`` maps (copies, n, outputs) to one mean loss per copy.
    """
    with torch.enable_grad():
        leaves = [w.detach().requires_grad_(True) for w in weights]
        out = output(leaves, x, f)
        loss = loss_fn(out, y)
        grads = torch.autograd.grad(loss.sum(), leaves)
        flat = out.detach()
        rest = output([w.detach() for w in weights], torch.zeros_like(x[..., :1, :]), f).expand_as(flat).clone()
        rest.requires_grad_(True)
        resting = loss_fn(rest, y)
        (pull,) = torch.autograd.grad(resting.sum(), rest)
    signal = -((flat - rest.detach()) * pull).sum((1, 2))
    per_layer = lambda items: torch.stack(list(items), 1)
    table = (
        torch.cat(
            [
                torch.stack([signal, loss.detach(), resting.detach()], 1),
                per_layer(g.flatten(1).norm(dim=1) for g in grads),
                per_layer(g.abs().sum((1, 2)) for g in grads),
                per_layer(w.detach().flatten(1).norm(dim=1) for w in weights),
            ],
            1,
        )
        .double()
        .tolist()
    )
    n = len(weights)
    shapes = [(w.shape[1], w.shape[2]) for w in weights]
    names = tuple(str(i + 1) for i in range(n))
    return [
        Snapshot(
            step,
            v[0],
            v[1],
            v[2],
            names,
            tuple(v[3 : 3 + n]),
            tuple(v[3 + n : 3 + 2 * n]),
            *_gains(v[3 + 2 * n :], shapes),
            reason=_finite(v),
        )
        for v in table
    ]


def _at_rest(model: nn.Module, inputs: Any, out: Tensor) -> Tensor:
    """Output at input zero, once per sample; the batch mean of the outputs where zero is not an input."""
    if isinstance(inputs, Tensor) and inputs.is_floating_point():
        with torch.no_grad():
            return model(torch.zeros_like(inputs[:1])).expand_as(out).clone()
    return out.detach().mean(0, keepdim=True).expand_as(out).clone()


def _gains(norms: Sequence[float], shapes: Sequence[tuple[int, int]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    gains = tuple(v / math.sqrt(min(s)) for v, s in zip(norms, shapes))
    return gains, tuple(v / math.sqrt(2 * s[0]) for v, s in zip(norms, shapes))


def _finite(values: Sequence[float]) -> str:
    return "" if all(math.isfinite(v) for v in values) else "loss or gradients are not finite numbers"


def _refused(step: int, reason: str) -> Snapshot:
    return Snapshot(step, math.nan, math.nan, math.nan, (), (), (), (), (), reason)


def _single_chain(runs: dict[str, Run], links: Links, out: Tensor) -> tuple[tuple[str, ...], str]:
    """The chain that carries the whole function, or why there is none: the law is for a product of layers."""
    chains = links.chains
    if not runs:
        return (), "no Linear or convolution layer ran"
    if not chains:
        return (), "no chain of layers was found: " + ("; ".join(links.skipped.values()) or "only one layer ran")
    chain = max(chains, key=len)
    outside = [n for n in runs if n not in chain]
    if outside:
        return (), (
            f"the layers do not form one chain from input to output ({', '.join(outside[:3])} "
            f"{'are' if len(outside) > 1 else 'is'} outside of {chain[0]} … {chain[-1]}): "
            f"with a residual or branching path the output is not a product of layers"
        )
    for link in links.links:
        norm = next((b for b in link.between if any(b.startswith(k) for k in NORMS)), None)
        if norm is not None:
            return (), f"{norm} between {link.first} and {link.second} removes the scale of {link.first}"
    return chain, ""
