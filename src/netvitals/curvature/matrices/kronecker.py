r"""Kronecker factors of the Fisher matrix's diagonal blocks, and how far they are from the blocks themselves.

K-FAC: $F_\ell\approx A_\ell\otimes G_\ell$ with $A=E\,aa^\top$ of a layer's inputs and $G=\sum\delta\delta^\top$ of the
gradients at its outputs. EKFAC keeps the eigenvectors of both and measures the eigenvalues:
$F_\ell\approx(U_A\otimes U_G)\,\mathrm{diag}(s)\,(U_A\otimes U_G)^\top$, $s=\sum_n(U_G^\top\delta_na_n^\top U_A)^2$.
The error of each is $\|F_\ell-\hat F_\ell\|_F/\|F_\ell\|_F$, from products with the exact block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals.capture import LossFn, Mode, Result, batches_of, one_screen, skipped_lines, undisturbed
from netvitals.curvature.engine.nodes import Choice
from netvitals.curvature.engine.operator import operators
from netvitals.curvature.engine.probes import draw, generator
from netvitals.curvature.engine.problem import Problem, laboratory
from netvitals.curvature.engine.products import Products
from netvitals.curvature.engine.stream import several
from netvitals.curvature.engine.tape import recorded

PROBES = 12  # products with the exact block behind an error


@dataclass(frozen=True, kw_only=True)
class KroneckerBlock(Result):
    """One layer's factors; vectors are its weight, row by row, and then its bias."""

    A: Tensor  # (in [+ 1 for the bias], …)
    G: Tensor  # (out, out)
    A_vectors: Tensor
    G_vectors: Tensor
    corrected: Tensor  # (out, in [+ 1]): eigenvalues of EKFAC in the basis of both
    plain: Tensor  # those of K-FAC, products of the factors' own
    bias: bool
    error_kfac: float
    error_ekfac: float

    @property
    def size(self) -> int:
        return len(self.G) * len(self.A)

    def apply(self, rows: Tensor, *, ekfac: bool = True) -> Tensor:
        """The approximate block times rows (m, size)."""
        return self._times(rows, self.corrected if ekfac else self.plain)

    def inverse(self, rows: Tensor, damping: float, *, ekfac: bool = True) -> Tensor:
        """(F̂ + λ)⁻¹ times rows (m, size), exactly."""
        if not damping > 0:
            raise ValueError(
                f"damping= must be more than 0, got {damping}: with few examples the Kronecker factors are singular"
            )
        return self._times(rows, 1 / ((self.corrected if ekfac else self.plain) + damping))

    def _times(self, rows: Tensor, values: Tensor) -> Tensor:
        out, into = len(self.G), len(self.A)
        m = rows.shape[0]
        if self.bias:
            weight, last = rows.split([out * (into - 1), out], 1)
            matrix = torch.cat([weight.reshape(m, out, into - 1), last[:, :, None]], 2)
        else:
            matrix = rows.reshape(m, out, into)
        turned = values * (self.G_vectors.mT @ matrix @ self.A_vectors)
        matrix = self.G_vectors @ turned @ self.A_vectors.mT
        if not self.bias:
            return matrix.reshape(m, -1)
        return torch.cat([matrix[:, :, :-1].reshape(m, -1), matrix[:, :, -1]], 1)


@dataclass(frozen=True, kw_only=True)
class Kronecker(Result):
    """Blocks by layer, each with its measured error.

    Returned by :func:`kronecker`.

    Attributes:
        layers: the block of each layer by name, with its measured error.
        labels: drawn per example for the Fisher matrix.
        skipped: layer that was left out → reason.
    """

    layers: dict[str, KroneckerBlock]
    labels: int
    skipped: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> KroneckerBlock:
        if name not in self.layers:
            raise KeyError(
                f"there is no layer {name!r}; the layers with Kronecker factors are {', '.join(self.layers)}"
            )
        return self.layers[name]

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer."""
        return [
            {"layer": n, "size": b.size, "error_kfac": b.error_kfac, "error_ekfac": b.error_ekfac}
            for n, b in self.layers.items()
        ]

    def __str__(self) -> str:
        wide = max(len(n) for n in self.layers)
        lines = [
            f"  {n.ljust(wide)}  K-FAC is off by {100 * b.error_kfac:.0f} %, EKFAC by {100 * b.error_ekfac:.0f} %"
            for n, b in self.layers.items()
        ]
        head = f"Kronecker factors of {len(self.layers)} layers against their exact Fisher blocks"
        return one_screen([head, *lines, *skipped_lines(self.skipped)])


@undisturbed
def kronecker(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    nodes: Choice = None,
    seed: int = 0,
    labels: int = 8,
    memory: int = 2 << 30,
) -> Kronecker:
    """Compute the K-FAC and EKFAC approximations of every linear layer and convolution, with their measured errors.

    Args:
        model: any module; it is not changed.
        loss_fn: cross-entropy, mean squared error or binary cross-entropy, in any form.
        batch: one batch as a data loader yields it; or a list of batches or a loader, gone over one batch at a time.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``.
        nodes: names of layers; None for all that are called once.
        seed: seed of the sampled labels.
        labels: drawn for each unit from the model.
        memory: memory budget in bytes for graph and products.

    Returns:
        By layer the factors, products with the approximate block and its damped inverse, and both errors.

    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <...>
    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> found = kronecker(net, "ce", (torch.randn(16, 3), torch.randint(0, 2, (16,))))
    >>> found["2"].error_ekfac < 1
    True
    """
    many = several(batch)
    if isinstance(batch, Iterator):
        raise ValueError(
            "the Kronecker factors read the data twice, but a generator can be read only once: give a list of "
            "batches or a DataLoader"
        )
    first = next(batches_of(batch), None) if many else batch
    if first is None:
        raise ValueError("the data holds no batch: give a list of batches or a loader that yields at least one")
    problem = Problem(model, loss_fn, first)
    with laboratory(problem.model, mode):
        called, skipped = _called(problem, nodes)
    if not called:
        raise ValueError(
            "Kronecker factors need a linear layer or convolution that is called exactly once; this model has none"
        )
    options: Any = {"mode": mode, "memory": memory}
    seen = lambda: _visits(problem.model, loss_fn, batch if many else [batch], called, labels, seed, options)
    kept = None if many else list(seen())  # of one batch the second look need not be taken
    factors = _factors(kept if kept is not None else seen())
    values = _measured(kept if kept is not None else seen(), factors)
    parts = {name: (*factors[name], values[name]) for name in factors}
    errors = _errors(model, loss_fn, batch, called, parts, seed, options)
    return Kronecker(layers=errors, labels=labels, skipped=skipped)


Visit = tuple[
    int, dict[str, tuple[Tensor, list[Tensor]]]
]  # examples; by layer inputs (B, T, in), gradients (B, T, out)


def _visits(
    model: nn.Module,
    loss_fn: LossFn,
    batches: Any,
    called: dict[str, nn.Module],
    labels: int,
    seed: int,
    options: Any,
) -> Iterator[Visit]:
    """Inputs and gradients of every layer, batch by batch; the same labels each time."""
    for number, batch in enumerate(batches):
        with _inputs(model, called) as kept, recorded(model, loss_fn, batch, nodes=list(called), **options) as tape:
            products = Products(tape, memory=options["memory"], roots="never")
            roots = products.likelihood.drawn(tape.outputs[0].detach(), labels, seed + number) / labels**0.5
            rows = products.rows_of(tape)
            gradients = [torch.autograd.grad(tape.outputs, rows, [c], retain_graph=True) for c in roots]
            found = {}
            for i, node in enumerate(tape.nodes):
                module = called[node.name]
                deltas = [_by_position(module, g[i].detach()) for g in gradients]
                found[node.name] = _unfolded(module, kept[node.name]), deltas
        yield tape.examples, found


def _called(problem: Problem, nodes: Choice) -> tuple[dict[str, nn.Module], dict[str, str]]:
    counts: dict[str, int] = {}
    kinds = {n: m for n, m in problem.model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)}
    if nodes is not None and not callable(nodes):
        wanted = [nodes] if isinstance(nodes, str) else list(nodes)
        if unknown := [n for n in wanted if n not in kinds]:
            raise KeyError(
                f"{unknown[0]!r} is not a linear layer or convolution of this model; those are {', '.join(kinds)}"
            )
        kinds = {n: kinds[n] for n in wanted}
    elif callable(nodes):
        kinds = {n: m for n, m in kinds.items() if nodes(n, m)}
    note = lambda name: lambda *_: counts.update({name: counts.get(name, 0) + 1})
    handles = [m.register_forward_hook(note(n)) for n, m in kinds.items()]
    try:
        with torch.no_grad():
            problem.outputs()
    finally:
        for handle in handles:
            handle.remove()
    skipped: dict[str, str] = {}
    for name, m in kinds.items():
        if counts.get(name, 0) != 1:
            skipped[name] = "never called as a module" if not counts.get(name) else f"called {counts[name]} times"
        elif isinstance(m, nn.Conv2d) and (m.groups > 1 or m.padding_mode != "zeros" or isinstance(m.padding, str)):
            skipped[name] = "a convolution with groups or non-zero padding mode has no Kronecker factors"
        elif not all(p.requires_grad for p in m.parameters(recurse=False)):
            skipped[name] = "frozen"
    return {n: m for n, m in kinds.items() if n not in skipped}, skipped


@contextmanager
def _inputs(model: nn.Module, called: dict[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    kept: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        return lambda module, args, out: kept.update({name: args[0].detach()})

    handles = [m.register_forward_hook(keep(n)) for n, m in called.items()]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


def _unfolded(module: nn.Module, x: Tensor) -> Tensor:
    """Inputs (B, T, in) of a layer, with a one for its bias."""
    if isinstance(module, nn.Conv2d):
        assert not isinstance(module.padding, str)
        size: Any = module.kernel_size
        x = F.unfold(x, size, module.dilation, module.padding, module.stride).mT
    else:
        x = x.reshape(x.shape[0], -1, x.shape[-1])
    return x if module.bias is None else torch.cat([x, torch.ones_like(x[..., :1])], -1)


def _by_position(module: nn.Module, delta: Tensor) -> Tensor:
    if isinstance(module, nn.Conv2d):
        return delta.flatten(2).mT
    return delta.reshape(delta.shape[0], -1, delta.shape[-1])


def _factors(visits: Iterable[Visit]) -> dict[str, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """A, G and their eigenvectors: A is a mean over input rows, G over examples."""
    sums: dict[str, list[Any]] = {}
    examples = 0
    for count, layers in visits:
        examples += count
        for name, (a, deltas) in layers.items():
            flat = a.reshape(-1, a.shape[-1])
            big_g = sum(d.reshape(-1, d.shape[-1]).mT @ d.reshape(-1, d.shape[-1]) for d in deltas)
            total = sums.setdefault(name, [0.0, 0.0, 0])
            total[0], total[1], total[2] = total[0] + flat.mT @ flat, total[1] + count * big_g, total[2] + len(flat)
    out = {}
    for name, (a, g, rows) in sums.items():
        big_a, big_g = a / rows, g / examples
        u_a, u_g = (torch.linalg.eigh(x.double())[1].to(x.dtype) for x in (big_a, big_g))
        out[name] = big_a, big_g, u_a, u_g
    return out


def _measured(visits: Iterable[Visit], factors: Mapping[str, tuple[Tensor, ...]]) -> dict[str, Tensor]:
    """The eigenvalues that EKFAC measures, in the basis of both factors."""
    sums: dict[str, Any] = {}
    examples = 0
    for count, layers in visits:
        examples += count
        for name, (a, deltas) in layers.items():
            _, _, u_a, u_g = factors[name]
            turned = a @ u_a
            for d in deltas:  # the gradient of an example is summed over its positions before it is squared
                sums[name] = sums.get(name, 0.0) + count * ((d @ u_g).mT @ turned).square().sum(0)
    return {name: total / examples for name, total in sums.items()}


def _errors(
    model: nn.Module, loss_fn: LossFn, batch: Any, called: dict[str, nn.Module], parts: Any, seed: int, options: Any
) -> dict[str, KroneckerBlock]:
    out = {}
    with operators(model, loss_fn, batch, nodes=list(parts), **options) as of:
        for v, (name, (big_a, big_g, u_a, u_g, values)) in enumerate(parts.items()):
            own = torch.outer((u_g.mT @ big_g @ u_g).diagonal(), (u_a.mT @ big_a @ u_a).diagonal())
            block = KroneckerBlock(
                A=big_a,
                G=big_g,
                A_vectors=u_a,
                G_vectors=u_g,
                corrected=values,
                plain=own,
                bias=called[name].bias is not None,
                error_kfac=float("nan"),
                error_ekfac=float("nan"),
            )
            at = of.names.index(name)
            leaves = of.products.leaves[at]
            z = torch.cat([p.flatten(1) for p in draw(PROBES, leaves, generator(seed + v, leaves[0].device))], 1)
            exact = of.block(name, name, "GN").apply(z)
            off = [float((block.apply(z, ekfac=e) - exact).norm() / exact.norm()) for e in (False, True)]
            out[name] = KroneckerBlock(**{**vars(block), "error_kfac": off[0], "error_ekfac": off[1]})
    return out
