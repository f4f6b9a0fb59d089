r"""Jacobians between nodes of a module: spectral norms, Lyapunov exponents three ways, and the bend of activations.

Three numbers go by the name of a growth rate over m layers, and they differ: Eq. 8, $\frac1m\log\|\Pi\|_2$; the QR
exponents started at the identity, which the paper's tables print under the same name (erratum E9); and the Frobenius
gain $\frac1{2m}\log(\|\Pi\|_F^2/d)$, what a typical direction feels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.activations import is_activation
from netvitals.capture import LossFn, Mode, Result, undisturbed
from netvitals.curvature.engine.nodes import Choice
from netvitals.curvature.engine.problem import Problem, laboratory
from netvitals.curvature.engine.products import Products
from netvitals.curvature.engine.tape import Tape, recorded
from netvitals.curvature.engine.within import within
from netvitals.curvature.measure.result import shortened, skipped_line


@dataclass(frozen=True, kw_only=True)
class Lyapunov(Result):
    """Growth per layer along a chain of Jacobians, batch means with standard errors over examples."""

    eq8: float
    eq8_stderr: float
    qr: float  # the largest of the QR exponents, at most eq8
    qr_stderr: float
    gain: float
    gain_stderr: float
    spectrum: np.ndarray  # QR exponents, descending, batch means
    layers: int

    def __str__(self) -> str:
        return (
            f"over {self.layers} layers: log-norm {self.eq8:+.3f} (Eq. 8), QR {self.qr:+.3f}, typical direction "
            f"{self.gain:+.3f} per layer"
        )


@dataclass(frozen=True)
class EdgeNorms(Result):
    """Batch-mean spectral norms of the Jacobian of every edge of the node graph."""

    norms: dict[tuple[str, str], float]  # (parent, child)
    rho: float  # the largest
    fan_out: int  # s: most children of one node

    @property
    def contraction(self) -> float:
        """sρ; below 1 Gauss–Newton resonance falls at least like (sρ)^distance."""
        return self.fan_out * self.rho

    def rows(self) -> list[dict[str, Any]]:
        """One row an edge."""
        return [{"parent": p, "child": u, "norm": norm} for (p, u), norm in self.norms.items()]

    def __str__(self) -> str:
        edges = [f"  {p} → {u}  {norm:.4g}" for (p, u), norm in self.norms.items()]
        head = f"largest edge norm ρ {self.rho:.4g}, fan-out s {self.fan_out}, sρ {self.contraction:.4g}"
        return "\n".join([head, *shortened(edges)])


class NodeJacobians:
    """Jacobians between the nodes of a recorded tape, by example; alive inside ``node_jacobians(...)``."""

    def __init__(self, tape: Tape) -> None:
        self.tape, self.rows = tape, Products.rows_of(tape)
        self.names = tuple(n.name for n in tape.nodes)

    def jacobian(self, w: str, v: str) -> Tensor:
        """df_w/df_v by example, (B, d_w, d_v)."""
        i, j = self.names.index(w), self.names.index(v)
        b = self.tape.examples
        if i == j:
            return torch.eye(self.tape.nodes[i].size, dtype=self.rows[i].dtype).expand(b, -1, -1)
        value = self.tape.values[i]
        return self._rows(value, self.tape.nodes[i].size, j)

    def output(self, v: str) -> Tensor:
        """Jacobian of the (first) model output by example, (B, K, d_v)."""
        out = self.tape.outputs[0]
        return self._rows(out, out.numel() // self.tape.examples, self.names.index(v))

    def _rows(self, value: Tensor, d: int, j: int) -> Tensor:
        b, row = self.tape.examples, self.rows[j]
        if not value.requires_grad:  # the first node depends on no perturbation
            return torch.zeros(b, d, row[0].numel(), dtype=value.dtype, device=value.device)
        eye = torch.eye(d, dtype=value.dtype, device=value.device)
        out = []
        for first in range(0, d, 64):
            part = eye[first : first + 64]
            cot = part[:, None].expand(-1, b, -1).reshape(len(part), *value.shape)
            (got,) = torch.autograd.grad(value, row, cot, retain_graph=True, allow_unused=True, is_grads_batched=True)
            if got is None:
                return torch.zeros(b, d, row[0].numel(), dtype=value.dtype, device=value.device)
            out.append(got.reshape(len(part), b, -1))
        return torch.cat(out).transpose(0, 1)

    def edges(self) -> EdgeNorms:
        """σ_max of the Jacobian along every edge of the graph, averaged over the batch.

        On graphs whose edges run beside longer paths this is the total derivative, paths included.
        """
        graph = self.tape.graph
        norms = {
            (p, u): float(torch.linalg.matrix_norm(self.jacobian(u, p), 2).mean())
            for u in graph.names
            for p in graph.parents.get(u, ())
        }
        if not norms:
            raise ValueError(
                "the selected nodes are not connected to each other: name at least two nodes of which one feeds the "
                "other"
            )
        return EdgeNorms(norms, max(norms.values()), graph.topology.fan_out)


@within
@undisturbed
def node_jacobians(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    nodes: Choice = None,
    dtype: torch.dtype | None = None,
    memory: int = 2 << 30,
) -> Iterator[NodeJacobians]:
    """Compute Jacobians between layers inside a ``with`` block.

    Args:
        model: any module; it is not changed.
        loss_fn: ``loss_fn(output, target)``, its name, or None for the model's own ``output.loss``.
        batch: one batch as a data loader yields it: ``(x, y)``, several inputs and a target, or a dict.
        mode: ``"as_is"``, ``"train"`` (batch statistics, dropout off) or ``"eval"``.
        nodes: names or glob patterns of submodules, a function ``(name, module) -> bool``, or None for the model's
            blocks.
        dtype: measure a copy of the model in this dtype.
        memory: memory budget in bytes for the graph.

    Returns:
        A context that gives ``NodeJacobians``: ``jacobian(w, v)``, ``output(v)``, ``edges()``.

    >>> net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    >>> with node_jacobians(net, nn.MSELoss(), (torch.randn(4, 3), torch.randn(4, 2)), nodes=["0", "2"]) as found:
    ...     jacobian = found.jacobian("2", "0")
    >>> tuple(jacobian.shape)  # by example, outputs of the last layer by those of the first
    (4, 2, 5)
    """
    with recorded(model, loss_fn, batch, nodes=nodes, dtype=dtype, mode=mode, memory=memory) as tape:
        if tape.interacts:
            raise ValueError(
                "a Jacobian per example needs independent examples, but in this model the output for one example "
                "depends on others. If a normalisation layer is the cause, call model.eval() or pass mode='eval'"
            )
        yield NodeJacobians(tape)


def lyapunov(chain: Sequence[Tensor]) -> Lyapunov:
    r"""Exponents of a ``chain`` of Jacobians $D_1,\dots,D_m$ in the order they apply, each (B, d_out, d_in).

    >>> half = 0.5 * torch.eye(3).expand(2, 3, 3)
    >>> print(lyapunov([half, half]))
    over 2 layers: log-norm -0.693 (Eq. 8), QR -0.693, typical direction -0.693 per layer
    """
    if not chain:
        raise ValueError("a chain needs at least one Jacobian")
    m = len(chain)
    product = chain[0]
    for d in chain[1:]:
        product = d @ product
    tiny = torch.finfo(product.dtype).tiny
    eq8 = torch.linalg.matrix_norm(product, 2).clamp_min(tiny).log() / m
    gain = (torch.linalg.matrix_norm(product) ** 2 / product.shape[2]).clamp_min(tiny).log() / (2 * m)
    q = torch.eye(chain[0].shape[2], dtype=product.dtype, device=product.device).expand(len(product), -1, -1)
    logs = torch.zeros(len(product), min(min(d.shape[1:]) for d in chain), dtype=product.dtype)
    for d in chain:
        q, r = torch.linalg.qr(d @ q)
        diagonal = r.diagonal(dim1=1, dim2=2).abs().clamp_min(tiny).log()
        logs = logs + diagonal[:, : logs.shape[1]]
    spectrum = logs.mean(0) / m
    best = (logs / m)[:, int(spectrum.argmax())]
    error = lambda x: float(x.std() / len(x) ** 0.5) if len(x) > 1 else float("nan")
    return Lyapunov(
        eq8=float(eq8.mean()),
        eq8_stderr=error(eq8),
        qr=float(spectrum.max()),
        qr_stderr=error(best),
        gain=float(gain.mean()),
        gain_stderr=error(gain),
        spectrum=spectrum.sort(descending=True)[0].numpy(),
        layers=m,
    )


def gaussian_exponents(width: int, scale: float = 1.0) -> np.ndarray:
    r"""Lyapunov exponents of products of square matrices with entries $N(0,\sigma^2/d)$, in closed form, descending.

    $\lambda_k=\tfrac12\left[\psi\!\left(\tfrac{d-k+1}2\right)+\log\tfrac{2\sigma^2}d\right]$: a new Gaussian matrix
    stretches each direction by an independent χ, so the limit of infinite depth is a mean.

    >>> gaussian_exponents(8).round(3)[:2].tolist()
    [-0.065, -0.142]
    """
    from scipy.special import digamma

    k = np.arange(1, width + 1)
    return (digamma((width - k + 1) / 2) + np.log(2 * scale**2 / width)) / 2


@dataclass(frozen=True)
class Bend(Result):
    """E[σ''(z)²] over pre-activations, by layer and pooled; the gap is proportional to its root, ``rms``.

    Returned by :func:`activation_bend`.

    Attributes:
        by_layer: mean of σ''² by the name of the module.
        pooled: over all entries.
        skipped: module that was not called → reason.
    """

    by_layer: dict[str, float]
    pooled: float
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def rms(self) -> float:
        return self.pooled**0.5

    def rows(self) -> list[dict[str, Any]]:
        """One row an activation module."""
        return [{"layer": n, "bend": value} for n, value in self.by_layer.items()]

    def __str__(self) -> str:
        layers = [f"  {n}  {value:.4g}" for n, value in self.by_layer.items()]
        head = f"mean squared second derivative of the activations {self.pooled:.4g} (root {self.rms:.4g})"
        return "\n".join([head, *shortened(layers), *skipped_line(self.skipped)])


@undisturbed
def activation_bend(
    model: nn.Module,
    batch: Any,
    *,
    mode: Mode = "as_is",
    only: str | Sequence[str] | Callable[[str], bool] | None = None,
) -> Bend:
    """Mean squared second derivative of every activation module, at the inputs of one batch.

    Args:
        model: any module; it is not changed.
        batch: one batch as a data loader yields it; a target in it is not used.
        mode: ``"as_is"``, ``"train"`` (batch statistics, dropout off) or ``"eval"``.
        only: names or patterns of activation modules, or a rule on names; by default those of
            ``torch.nn.modules.activation`` and of netvitals.

    Returns:
        The mean by layer and over all; modules that the forward pass does not call are in ``skipped``.

    >>> net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 5), nn.Tanh())
    >>> bend = activation_bend(net, torch.randn(8, 3))
    >>> bend.by_layer["1"], bend.by_layer["3"] > 0  # a ReLU is straight on both sides
    (0.0, True)
    """
    chosen = [(n, m) for n, m in model.named_modules() if _wanted(n, m, only)]
    if not chosen:
        raise ValueError(
            f"no activation module was found{'' if only is None else f' for {only!r}'}: name the modules in only="
        )
    problem = Problem(model, None, batch)
    sums: dict[str, tuple[float, int]] = {}
    busy: set[str] = set()

    def observe(name: str) -> Any:
        def hook(module: nn.Module, args: Any, out: Any) -> None:
            if name in busy:  # the hook itself calls the module
                return
            busy.add(name)
            try:
                value, count = _bend_at(module, args[0])
            finally:
                busy.discard(name)
            a, b = sums.get(name, (0.0, 0))
            sums[name] = (a + value, b + count)

        return hook

    with laboratory(model, mode):
        handles = [m.register_forward_hook(observe(n)) for n, m in chosen]
        try:
            problem.outputs()
        finally:
            for handle in handles:
                handle.remove()
    if not sums:
        raise ValueError(f"the forward pass called none of the activation modules {', '.join(n for n, _ in chosen)}")
    return Bend(
        {n: a / b for n, (a, b) in sums.items()},
        sum(a for a, _ in sums.values()) / sum(b for _, b in sums.values()),
        {n: "not called in the forward pass" for n, _ in chosen if n not in sums},
    )


def _bend_at(module: nn.Module, z: Tensor) -> tuple[float, int]:
    """Sum of σ''² over the entries of z, and how many there are."""
    z = z.detach().double().requires_grad_(True)
    with torch.enable_grad():
        (first,) = torch.autograd.grad(module(z).sum(), z, create_graph=True)
        second = torch.autograd.grad(first.sum(), z, allow_unused=True)[0] if first.requires_grad else None
    return 0.0 if second is None else float(second.square().sum()), z.numel()


def _wanted(name: str, module: nn.Module, only: str | Sequence[str] | Callable[[str], bool] | None) -> bool:
    """A module named outright may be any; patterns and rules choose among the known activations."""
    if only is None or callable(only):
        return _is_activation(module) and (only is None or bool(only(name)))
    patterns = [only] if isinstance(only, str) else only
    return name in patterns or (_is_activation(module) and any(fnmatchcase(name, p) for p in patterns))


def _is_activation(m: nn.Module) -> bool:
    return is_activation(m) and not any(True for _ in m.children())
