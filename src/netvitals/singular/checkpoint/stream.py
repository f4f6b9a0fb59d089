r"""The residual stream's smallest active singular value over depth: $\sigma_r(X_\ell)$, r the rank of the input stream.

With exact identity skips it cannot vanish on the way: $\sigma_r(X_\ell) = \Theta(1)\,\sigma_r(X_0)$ at every depth
(dead-directions Corollary 58), so the ratio is a falsifier: where it collapses, a block cancels the identity on the
weakest active direction. Everything runs in float64; in float32 the rounding of a covariance fakes a rank deficit.

Where a LayerNorm stands on the stream itself (post-norm), every row has $\sum_i (x_i - \beta_i)/\gamma_i = 0$: the
direction $\gamma^{-1}$ carries nothing by construction, and $\sigma_r$ there would be a false alarm (§9.2). Such nodes
are read on its complement ($1^\perp$ for equal gains), and held against the input on the same complement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.capture import (
    Mode,
    Recorder,
    Result,
    Task,
    TensorView,
    Vital,
    in_double,
    in_mode,
    inputs_of,
    observe,
    preserved,
    undisturbed,
)
from netvitals.singular.checkpoint.layernorm import ln_kernel

_RANK = 1e-9  # of the largest singular value; float64 leaves about 1e-15
_COLLAPSE = 0.01  # ratio below which the identity counts as cancelled


@dataclass(frozen=True, kw_only=True)
class StreamSigma(Result):
    """Singular values of the stream by node, divided by √rows.

    Returned by :func:`sigma_stream`.

    Attributes:
        nodes: "input", then one per block.
        sigma: σ_r, r the rank at the input.
        largest: σ_1 at each node.
        ranks: numerical rank at each node.
        rank: r.
        row_count: tokens or pixels behind the numbers.
        reference: σ of the input that each node is held against, on the same complement.
        projected: whether a node lies behind a LayerNorm and was read on the complement of its kernel.
    """

    nodes: tuple[str, ...]
    sigma: tuple[float, ...]
    largest: tuple[float, ...]
    ranks: tuple[int, ...]
    rank: int
    row_count: int
    reference: tuple[float, ...]
    projected: tuple[bool, ...]

    @property
    def ratio(self) -> tuple[float, ...]:
        """σ_r over that of the input: Θ(1) at every depth where skips are identities."""
        return tuple(s / start if start > 0 else math.nan for s, start in zip(self.sigma, self.reference))

    @property
    def kept(self) -> bool:
        """Whether the weakest active direction survives to every node."""
        return all(r > _COLLAPSE for r in self.ratio)

    def rows(self) -> list[dict[str, Any]]:
        """One row a node."""
        columns = zip(self.nodes, self.sigma, self.largest, self.ranks, self.ratio, self.projected)
        names = ("node", "sigma_r", "sigma_1", "rank", "ratio", "projected")
        return [dict(zip(names, column)) for column in columns]

    def __str__(self) -> str:
        words = (
            "kept at every depth"
            if self.kept
            else f"lost at {next(n for n, r in zip(self.nodes, self.ratio) if not r > _COLLAPSE)}"
        )
        return (
            f"σ_{self.rank} of the stream, {words}: "
            + " → ".join(f"{s:.3g}" for s in self.sigma)
            + f" ({self.row_count} rows)"
            + ("; on the complement of γ⁻¹ behind norms" if any(self.projected) else "")
        )


@undisturbed
def sigma_stream(
    model: nn.Module,
    batch: Any,
    *,
    mode: Mode = "eval",
    nodes: Sequence[str] | None = None,
    rows: int = 4096,
    project: bool = True,
) -> StreamSigma:
    """σ_r of the residual stream at the input of the first block and after each block; no loss is needed.

    Args:
        model: the model; a copy of it in float64 is run.
        batch: one batch as a data loader yields it; a target is not used.
        mode: "eval", "train" (batch statistics, dropout modules off) or "as_is".
        nodes: modules whose outputs are the stream, in order; by default those that add to a stream.
        rows: at most so many tokens (or pixels), evenly strided.
        project: read nodes behind a LayerNorm on the complement of its kernel; without, they read zero.

    Returns:
        Singular values by node.

    >>> net = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), 2)
    >>> found = sigma_stream(net, torch.randn(4, 6, 4))
    >>> found.nodes, found.row_count
    (('input', 'layers.0', 'layers.1'), 24)
    """
    task = in_double(inputs_of(model, batch))
    if rows < 1 or (nodes is not None and not len(nodes)) or not task.examples:
        raise ValueError(
            "sigma_stream needs a batch with at least one example, rows ≥ 1, and nodes as a list of names or None"
        )
    found = _stream(task, nodes, mode)
    matrices = [_thinned(m, rows) for m in found.values()]
    if not all(bool(torch.isfinite(m).all()) for m in matrices):
        raise ValueError("the residual stream contains NaN or infinity: check the batch and the parameters")
    kernels = [_kernel(m, matrices[0], task.model) if i and project else None for i, m in enumerate(matrices)]
    spectra = [_spectrum(m, kernel) for m, kernel in zip(matrices, kernels)]
    starts = [_spectrum(matrices[0], kernel) for kernel in kernels]
    ranks = [_rank(s) for s in spectra]
    wanted = [max(_rank(s), 1) for s in starts]
    return StreamSigma(
        nodes=tuple(found),
        sigma=tuple(_value(s, r) for s, r in zip(spectra, wanted)),
        largest=tuple(float(s[0]) for s in spectra),
        ranks=tuple(ranks),
        rank=wanted[0],
        row_count=len(matrices[0]),
        reference=tuple(_value(s, r) for s, r in zip(starts, wanted)),
        projected=tuple(kernel is not None for kernel in kernels),
    )


def _spectrum(m: Tensor, kernel: Tensor | None) -> Tensor:
    """Singular values over √rows, without a kernel's part of the rows."""
    rest = m if kernel is None else m - (m @ kernel) @ kernel.T
    return torch.linalg.svdvals(rest) / math.sqrt(len(m))


def _rank(spectrum: Tensor) -> int:
    return int((spectrum > _RANK * spectrum[0]).sum())


def _value(spectrum: Tensor, r: int) -> float:
    return float(spectrum[r - 1]) if len(spectrum) >= r else 0.0


def _kernel(m: Tensor, start: Tensor, model: nn.Module) -> Tensor | None:
    """The kernel of a LayerNorm whose output a node is, by its rows: constant along γ⁻¹, where the input's are not.

    Gains are all vectors of parameters of the stream's width, and equal ones, so that norms of any class are known.
    """
    width = m.shape[1]
    if width < 3 or len(m) < 2 or start.shape[1] != width:
        return None
    gains = [torch.ones(width, dtype=m.dtype, device=m.device)]
    gains += [p.detach().to(m) for p in model.parameters() if p.shape == (width,) and bool(torch.isfinite(p).all())]
    return next((k for g in gains if _constant(m, k := ln_kernel(g)) and not _constant(start, k)), None)


def _constant(m: Tensor, kernel: Tensor) -> bool:
    along, whole = (m @ kernel).var(0).max(), m.var(0).mean()
    return bool(along <= _RANK**2 * whole) and bool(whole > 0)


class _Collector(Vital):
    name = "collector"
    tensors_of = ("stream",)

    def __init__(self) -> None:
        self.seen: dict[str, tuple[str, Tensor]] = {}

    def tensor(self, recorder: Recorder, view: TensorView) -> None:
        self.seen[view.site.name] = (view.site.module, view.channels.clone())


def _stream(task: Task, nodes: Sequence[str] | None, mode: Mode) -> dict[str, Tensor]:
    """Stream matrices (rows, channels) by node, the first block's input first."""
    model = task.model
    if nodes is None:
        collector = _Collector()
        observe(model, None, task.inputs, vitals=[collector], mode=mode)
        if not collector.seen:
            raise ValueError(
                f"no residual stream was found in {type(model).__name__}: name the modules whose outputs form the "
                "stream, with nodes=[...]"
            )
        owners = {module for module, _ in collector.seen.values()}
        outer = {name: pair for name, pair in collector.seen.items() if not inside(pair[0], owners)}
        first = next(iter(outer.values()))[0]
        values = {name: value for name, (_, value) in outer.items()}
    else:
        modules = dict(model.named_modules())
        if missing := [n for n in nodes if n not in modules]:
            raise ValueError(f"the model has no module {missing[0]!r}: give names from model.named_modules()")
        first, values = nodes[0], {}
        handles = [
            modules[n].register_forward_hook(
                lambda m, a, o, n=n: values.setdefault(n, o.detach().reshape(-1, o.shape[-1]))
            )
            for n in nodes
        ]
        _run(task, mode, handles)
    width = next(iter(values.values())).shape[1]
    start = _input_of(task, first, mode, width)
    return {"input": start, **values} if start is not None else values


def inside(module: str, owners: set[str]) -> bool:
    """Whether a module that is itself a node holds this one: an addition inside a block is not the stream."""
    parts = module.split(".")
    return any(".".join(parts[:i]) in owners for i in range(1, len(parts)))


def _input_of(task: Task, name: str, mode: Mode, width: int) -> Tensor | None:
    """What enters the first block, if it has the stream's width."""
    kept: list[Tensor] = []

    def note(_: nn.Module, args: tuple[Any, ...]) -> None:
        if not kept and args and isinstance(args[0], Tensor):
            kept.append(args[0].detach())

    _run(task, mode, [task.model.get_submodule(name).register_forward_pre_hook(note)])
    if not kept or not kept[0].is_floating_point():
        return None
    value = kept[0]
    if value.ndim == 4:
        value = value.movedim(1, -1)
    return value.reshape(-1, value.shape[-1]) if value.shape[-1] == width else None


def _run(task: Task, mode: Mode, handles: Sequence[Any]) -> None:
    try:
        with preserved(task.model), in_mode(task.model, mode), torch.no_grad():
            task.forward()
    finally:
        for handle in handles:
            handle.remove()


def _thinned(m: Tensor, rows: int) -> Tensor:
    return m[:: -(-len(m) // rows)].double()
