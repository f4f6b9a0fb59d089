r"""Curvature between layers: $\partial^2 L/\partial f_v\partial f_w = H^{GN}_{v,w} + H^T_{v,w}$ for all pairs."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from netvitals.curvature.engine.nodes import Choice
from netvitals.curvature.engine.problem import Loss
from netvitals.curvature.engine.products import Products, Progress
from netvitals.curvature.engine.tape import Space, Tape, recorded
from netvitals.curvature.measure import metrics
from netvitals.curvature.measure.block_estimates import estimates
from netvitals.curvature.measure.exact import Blocks, block_norms, exact_blocks
from netvitals.curvature.measure.result import InterlayerCurvature
from netvitals.curvature.measure.sweeping import sweep

Method = Literal["stochastic", "exact"]
Reduction = Literal["mean_block", "per_sample", "mean_of_norms", "joint"]


def interlayer(
    model: nn.Module,
    loss_fn: Loss,
    batch: Any,
    nodes: Choice = None,
    method: Method = "stochastic",
    reduction: Reduction = "mean_block",
    probes: int = 30,
    seed: int = 0,
    space: Space = "activation",
    *,
    dtype: torch.dtype | None = None,
    train: bool | None = None,
    memory: int = 2 << 30,
    plain: bool = False,
    refine: int = 0,
    progress: Progress | None = None,
) -> InterlayerCurvature:
    r"""Resonance, coupling, stable rank and GN-gap of every pair of nodes, in one sweep.

    $R=\|H_{v,w}\|_F$, $C=R(v,w)/\sqrt{R(v,v)R(w,w)}$, $D=\|H\|_F^2/\|H\|_2^2$, $\mathrm{Gap}=\|H^T\|_F/\|H^{GN}\|_F$.

    Args:
        model: any module; left exactly as it was.
        loss_fn: ``loss_fn(model(x), y)``, one number, mean over the batch.
        batch: the pair ``(x, y)``.
        nodes: names or globs of submodules, a rule ``(name, module) -> bool``, or None for the model's blocks.
        method: ``"stochastic"`` (norms with standard errors) or ``"exact"`` (dense blocks in float64, or in ``dtype``).
        reduction: ``"mean_block"`` (norms of the batch-averaged block), ``"mean_of_norms"`` (average of the norms by
            sample), ``"per_sample"`` (the same, and each sample's numbers), ``"joint"`` (all samples as one vector).
        probes: products spent on each node; a node no wider than this is measured exactly.
        seed: of the probes; the same seed gives the same numbers.
        space: ``"activation"`` or ``"parameter"`` ($\partial^2L/\partial\theta_v\partial\theta_w$, per module).
        dtype: measure a copy in this dtype (default: float64 if exact, the model's own otherwise).
        train: measure in train or eval mode; None leaves the mode as it is.
        memory: bytes for graph, products and blocks.
        plain: spend all probes as plain ones, without basis (the paper's estimator; the stable rank is then unknown).
        refine: extra rounds of power iteration for the spectral norms, N products a node each; wanted when the stable
            rank is large against ``probes`` and its standard error says so.
        progress: called with (products done, products planned).

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> found = interlayer(net, nn.MSELoss(), (torch.randn(8, 3), torch.randn(8, 2)), method="exact")
    >>> found.nodes, found.block("1", "3").H.shape
    (('1', '3'), torch.Size([4, 4]))
    """
    _check(method, reduction, probes, space)
    if method == "exact" and dtype is None:
        dtype = torch.float64
    by_sample = reduction in ("per_sample", "mean_of_norms")
    with recorded(model, loss_fn, batch, nodes=nodes, space=space, dtype=dtype, train=train, memory=memory) as tape:
        if by_sample:
            _require_separate_samples(tape, reduction)
        wide = max(int(np.mean([n.size for n in tape.nodes])), 1)
        planned = wide if method == "exact" else probes
        products = Products(tape, by_sample=by_sample or reduction == "joint", memory=memory, planned=planned)
        if method == "exact":
            return _exact(tape, products, reduction, memory, probes, seed, progress)
        return _stochastic(tape, products, reduction, probes, seed, plain, refine, progress)


def _exact(
    tape: Tape, products: Products, reduction: str, memory: int, probes: int, seed: int, progress: Progress | None
) -> InterlayerCurvature:
    by_sample = reduction in ("per_sample", "mean_of_norms")
    blocks = exact_blocks(products, per_sample=by_sample, budget=memory, progress=progress)
    norms = block_norms(blocks)
    with np.errstate(divide="ignore", invalid="ignore"):
        ranks = np.where(norms["spectral"] ** 2 < metrics.ZERO, np.nan, norms["H"] ** 2 / norms["spectral"] ** 2)
    values = {
        "resonance": norms["H"],
        "gauss_newton": norms["GN"],
        "tensor": norms["T"],
        "coupling": metrics.coupling_matrix(norms["H"]),
        "stable_rank": ranks,
        "gn_gap": metrics.gn_gap(norms["T"], norms["GN"]),
        "spectral_norm": norms["spectral"],
    }
    errors = {k: np.zeros_like(v) for k, v in values.items()}
    return _result(tape, products, "exact", reduction, 0, seed, values, errors, by_sample, blocks)


def _stochastic(
    tape: Tape,
    products: Products,
    reduction: str,
    probes: int,
    seed: int,
    plain: bool,
    refine: int,
    progress: Progress | None,
) -> InterlayerCurvature:
    by_sample = reduction in ("per_sample", "mean_of_norms")
    found = sweep(
        products, probes=probes, seed=seed, by_sample=by_sample, plain=plain, refine=refine, progress=progress
    )
    copies = tape.samples if by_sample else 1
    e = estimates(found, [products.size(v) // copies for v in range(len(tape.nodes))])
    scale = copies  # the loss holds 1/B; H_b is of one sample's own loss
    values = {
        "resonance": scale * e.frobenius["H"],
        "gauss_newton": scale * e.frobenius["GN"],
        "tensor": scale * e.frobenius["T"],
        "coupling": e.coupling,
        "stable_rank": e.stable_rank,
        "gn_gap": e.gap,
        "spectral_norm": scale * e.spectral,
    }
    errors = {
        "resonance": scale * e.frobenius_stderr["H"],
        "gauss_newton": scale * e.frobenius_stderr["GN"],
        "tensor": scale * e.frobenius_stderr["T"],
        "coupling": e.coupling_stderr,
        "stable_rank": e.stable_rank_stderr,
        "gn_gap": e.gap_stderr,
        "spectral_norm": np.zeros_like(e.spectral),
    }
    rounding = metrics.noise_floor(products.flat[0].dtype)  # a column known exactly is still rounded
    errors = {k: np.maximum(errors[k], rounding * np.abs(values[k])) for k in errors}
    if not by_sample:
        values, errors = {k: v[0] for k, v in values.items()}, {k: v[0] for k, v in errors.items()}
    return _result(tape, products, "stochastic", reduction, probes, seed, values, errors, by_sample, None)


def _result(
    tape: Tape,
    products: Products,
    method: str,
    reduction: str,
    probes: int,
    seed: int,
    values: dict[str, np.ndarray],
    errors: dict[str, np.ndarray],
    by_sample: bool,
    blocks: Blocks | None,
) -> InterlayerCurvature:
    kept: dict[str, np.ndarray] = {}
    if by_sample:
        kept = values if reduction == "per_sample" else {}
        b = tape.samples
        # the noise of the probes and the spread of the samples are both inside the spread over samples
        errors = {k: v.std(0, ddof=1) / np.sqrt(b) if b > 1 else errors[k][0] for k, v in values.items()}
        values = {k: v.mean(0) for k, v in values.items()}
    fields: dict[str, Any] = dict(values)
    fields |= {f"{k}_stderr": v for k, v in errors.items() if k != "spectral_norm"}
    copies = tape.samples if by_sample else 1
    return InterlayerCurvature(
        nodes=tuple(n.name for n in tape.nodes),
        sizes=tuple(products.size(v) // copies for v in range(len(tape.nodes))),
        space=tape.space,
        method=method,
        reduction=reduction,
        probes=probes,
        seed=seed,
        samples=tape.samples,
        loss=tape.loss,
        cost=products.cost.gradients,
        products=products.cost.products,
        graph=tape.graph,
        chosen=tape.chosen,
        floor=metrics.noise_floor(products.flat[0].dtype, len(tape.nodes)),
        per_sample=kept,
        blocks=blocks,
        **fields,
    )


def _check(method: str, reduction: str, probes: int, space: str) -> None:
    choices = (
        ("method", method, ("stochastic", "exact")),
        ("space", space, ("activation", "parameter")),
        ("reduction", reduction, ("mean_block", "per_sample", "mean_of_norms", "joint")),
    )
    for name, value, allowed in choices:
        if value not in allowed:
            raise ValueError(f"{name} is {value!r}, expected one of {', '.join(map(repr, allowed))}")
    if not isinstance(probes, int) or probes < 2:
        raise ValueError(f"probes is {probes!r}, expected an integer of at least 2: a standard error needs two")
    if space == "parameter" and reduction != "mean_block":
        raise ValueError(
            f"reduction={reduction!r} keeps samples apart, but parameters are shared by all samples: use "
            "reduction='mean_block' in parameter space"
        )


def _require_separate_samples(tape: Tape, reduction: str) -> None:
    if tape.problem.couples_samples:
        raise ValueError(
            f"reduction={reduction!r} needs samples that do not see each other, but batch normalisation "
            "is in train mode: call model.eval(), pass train=False, or use reduction='joint'"
        )
    whole, parts = tape.mean_check()
    if abs(whole - parts) > 1e-3 * max(abs(whole), abs(parts), 1e-12):
        raise ValueError(
            f"the loss is not a mean over samples (whole batch {whole:.6g}, mean of single samples "
            f"{parts:.6g}): reduction={reduction!r} needs reduction='mean' in loss_fn"
        )
