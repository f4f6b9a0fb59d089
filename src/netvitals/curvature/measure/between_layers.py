r"""Curvature between layers: $\partial^2 L/\partial f_v\partial f_w = H^{GN}_{v,w} + H^T_{v,w}$ for all pairs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from netvitals.capture import LossFn, Mode, undisturbed
from netvitals.curvature.engine.journal import opened
from netvitals.curvature.engine.nodes import Choice
from netvitals.curvature.engine.products import Products, Progress
from netvitals.curvature.engine.stream import BatchStream, several
from netvitals.curvature.engine.tape import Space, Tape, recorded
from netvitals.curvature.measure import metrics
from netvitals.curvature.measure.block_estimates import estimates, over_batches
from netvitals.curvature.measure.exact import Blocks, block_norms, exact_blocks, mean_blocks
from netvitals.curvature.measure.result import FLAGS, METRICS, InterlayerCurvature
from netvitals.curvature.measure.sweeping import Sweep, sweep

Matrices = dict[str, np.ndarray]
Method = Literal["stochastic", "exact"]
Reduction = Literal["mean_block", "per_sample", "mean_of_norms", "joint"]


@undisturbed
def between_layers(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    nodes: Choice = None,
    seed: int = 0,
    progress: Progress | None = None,
    method: Method = "stochastic",
    reduction: Reduction = "mean_block",
    probes: int = 30,
    space: Space = "activation",
    dtype: torch.dtype | None = None,
    memory: int = 2 << 30,
    plain: bool = False,
    refine: int = 0,
    resume: str | os.PathLike[str] | None = None,
) -> InterlayerCurvature:
    r"""Measure the Hessian blocks between layers: resonance, coupling, stable rank and GN-gap of every pair of nodes.

    The loss may depend on more than the output, such as penalties stored as module attributes. GN then includes the
    curvature of the loss in all tensors that it reads. A Python number that the model computes is treated as a
    constant.

    $R=\|H_{v,w}\|_F$, $C=R(v,w)/\sqrt{R(v,v)R(w,w)}$, $D=\|H\|_F^2/\|H\|_2^2$, $\mathrm{Gap}=\|H^T\|_F/\|H^{GN}\|_F$.

    Args:
        model: any module; it is not changed.
        loss_fn: ``loss_fn(output, target)``, its name, or None for the model's own ``output.loss``.
        batch: one batch as a data loader yields it: ``(x, y)``, several inputs and a target, or a dict; or a list of
            batches or a loader, whose mean Hessian is then measured with one batch in memory at a time. Each batch has
            its own draw of dropout and other noise: ``[batch] * 16`` is a mean over draws, ``sampling`` their spread.
        mode: ``"as_is"``, ``"train"`` (batch statistics, dropout off) or ``"eval"``.
        nodes: names or glob patterns of submodules, a function ``(name, module) -> bool``, or None for the model's
            blocks.
        seed: seed of the random probes; the same seed gives the same numbers.
        progress: called with (products done, products planned).
        method: ``"stochastic"`` (norms with standard errors) or ``"exact"`` (dense blocks in float64, or in ``dtype``).
        reduction: ``"mean_block"`` (norms of the batch-averaged block), ``"mean_of_norms"`` (average of the norms by
            example), ``"per_sample"`` (the same, and each example's numbers), ``"joint"`` (all examples as one vector).
        probes: products spent on each node; a node no wider than this is measured exactly.
        space: ``"activation"`` or ``"parameter"`` ($\partial^2L/\partial\theta_v\partial\theta_w$, per module).
        dtype: measure a copy of the model in this dtype. Default: float64 if exact, else the model's own.
        memory: memory budget in bytes for graph, products and blocks.
        plain: spend all probes as plain ones, without basis (the paper's estimator; the stable rank is then unknown).
        refine: rounds of Golub–Kahan (Lanczos on the diagonal) for the spectral norms, N products a node each; wanted
            where ``stable_rank_is_bound`` says that a stable rank is only known from above.
        resume: a folder in which a measurement of many batches keeps its products, pass by pass, until it is over: the
            same call goes on after an interruption.

    Returns:
        The four matrices over pairs of nodes with their standard errors; ``to_frame()`` has one row a pair.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> found = between_layers(net, nn.MSELoss(), (torch.randn(8, 3), torch.randn(8, 2)), method="exact")
    >>> found.nodes, found.block("1", "3").H.shape
    (('1', '3'), torch.Size([4, 4]))
    """
    _check(method, reduction, probes, space)
    if method == "exact" and dtype is None:
        dtype = torch.float64
    by_sample = reduction in ("per_sample", "mean_of_norms")
    if several(batch):
        if reduction != "mean_block":
            raise ValueError(
                f"reduction={reduction!r} keeps examples apart and accepts only one batch; for many batches use "
                "reduction='mean_block'"
            )
        about = {"nodes": nodes, "seed": seed, "probes": probes, "space": space, "plain": plain, "refine": refine}
        journal = None
        if method == "stochastic":
            journal = opened(resume, "between_layers", model, {**about, "dtype": dtype, "mode": mode})
        with BatchStream(
            model, loss_fn, batch, nodes=nodes, space=space, dtype=dtype, mode=mode, memory=memory, journal=journal
        ) as stream:
            if method == "exact":
                blocks, shares = mean_blocks(stream, budget=memory)
                values, errors = _of_blocks(block_norms(blocks))
                bound = None
            else:
                blocks, found = (
                    None,
                    sweep(
                        stream, probes=probes, seed=seed, by_sample=False, plain=plain, refine=refine, progress=progress
                    ),
                )
                values, errors, bound = _of_sweep(stream.tape, stream, found, False)
                shares = found.shares
        settings = _Settings(method, reduction, probes=probes if method == "stochastic" else 0, seed=seed)
        sampling = over_batches(shares, np.array(stream.weights, float))
        if journal is not None:
            journal.close()
        return _result(stream.tape, stream, settings, values, errors, blocks=blocks, bound=bound, sampling=sampling)
    with recorded(model, loss_fn, batch, nodes=nodes, space=space, dtype=dtype, mode=mode, memory=memory) as tape:
        if by_sample:
            _require_separate_examples(tape, reduction)
        wide = max(int(np.mean([n.size for n in tape.nodes])), 1)
        planned = wide if method == "exact" else probes
        products = Products(tape, by_sample=by_sample or reduction == "joint", memory=memory, planned=planned)
        if method == "exact":
            blocks = exact_blocks(products, per_sample=by_sample, budget=memory, progress=progress)
            values, errors = _of_blocks(block_norms(blocks))
            settings = _Settings("exact", reduction, probes=0, seed=seed)
            return _result(tape, products, settings, values, errors, blocks=blocks)
        found = sweep(
            products, probes=probes, seed=seed, by_sample=by_sample, plain=plain, refine=refine, progress=progress
        )
        values, errors, bound = _of_sweep(tape, products, found, by_sample)
        settings = _Settings("stochastic", reduction, probes=probes, seed=seed)
        return _result(tape, products, settings, values, errors, bound=bound)


@dataclass(frozen=True)
class _Settings:
    method: Method
    reduction: Reduction
    probes: int
    seed: int

    @property
    def by_sample(self) -> bool:
        return self.reduction in ("per_sample", "mean_of_norms")


def _of_blocks(norms: Matrices) -> tuple[Matrices, Matrices]:
    """The metrics of dense blocks; they have no error."""
    top = np.where(norms["spectral"] > metrics.floor(norms["spectral"]), norms["spectral"], 0.0)
    values = {
        "resonance": norms["H"],
        "gauss_newton": norms["GN"],
        "tensor": norms["T"],
        "coupling": metrics.coupling_matrix(norms["H"]),
        "stable_rank": metrics.ratio(norms["H"], top, np.nan) ** 2,
        "gn_gap": metrics.gn_gap(norms["T"], norms["GN"]),
        "spectral_norm": norms["spectral"],
        "effective_dimension": metrics.ratio(norms["nuclear"], top, np.nan),
    }
    return values, {k: np.zeros_like(v) for k, v in values.items()}


def _of_sweep(
    tape: Tape, products: Products | BatchStream, found: Sweep, by_sample: bool
) -> tuple[Matrices, Matrices, Matrices]:
    """The metrics that a sweep estimates, the standard errors of its probes, and where a stable rank is a bound."""
    copies = tape.examples if by_sample else 1
    e = estimates(found, [products.size(v) // copies for v in range(len(tape.nodes))])
    scale = copies  # the loss holds 1/B; H_b is of one example's own loss
    values = {
        "resonance": scale * e.frobenius["H"],
        "gauss_newton": scale * e.frobenius["GN"],
        "tensor": scale * e.frobenius["T"],
        "coupling": e.coupling,
        "stable_rank": e.stable_rank,
        "gn_gap": e.gap,
        "spectral_norm": scale * e.spectral,
        "effective_dimension": e.effective_dimension,
    }
    bound = {
        "stable_rank_is_bound": np.asarray(e.stable_rank_is_bound.any(0)),
        "effective_dimension_is_partial": np.asarray(e.effective_dimension_is_partial.any(0)),
    }
    errors = {
        "resonance": scale * e.frobenius_stderr["H"],
        "gauss_newton": scale * e.frobenius_stderr["GN"],
        "tensor": scale * e.frobenius_stderr["T"],
        "coupling": e.coupling_stderr,
        "stable_rank": e.stable_rank_stderr,
        "gn_gap": e.gap_stderr,
        "spectral_norm": np.zeros_like(e.spectral),
        "effective_dimension": np.zeros_like(e.spectral),
    }
    rounding = metrics.noise_floor(tape.narrowest)  # a column known exactly is still rounded
    errors = {k: np.maximum(errors[k], rounding * np.abs(values[k])) for k in errors}
    if not by_sample:
        values, errors = {k: v[0] for k, v in values.items()}, {k: v[0] for k, v in errors.items()}
    return values, errors, bound


def _result(
    tape: Tape,
    products: Products | BatchStream,
    how: _Settings,
    values: Matrices,
    errors: Matrices,
    *,
    blocks: Blocks | None = None,
    bound: Matrices | None = None,
    sampling: Matrices | None = None,
) -> InterlayerCurvature:
    kept: Matrices = {}
    if how.by_sample:
        kept = values if how.reduction == "per_sample" else {}
        b = tape.examples
        # the noise of the probes and the spread of the examples are both inside the spread over examples
        errors = {k: v.std(0, ddof=1) / np.sqrt(b) if b > 1 else errors[k][0] for k, v in values.items()}
        values = {k: v.mean(0) for k, v in values.items()}
    fields: dict[str, Any] = dict(values)
    fields |= {f"{k}_stderr": v for k, v in errors.items() if k in METRICS}
    copies = tape.examples if how.by_sample else 1
    return InterlayerCurvature(
        nodes=tuple(n.name for n in tape.nodes),
        sizes=tuple(products.size(v) // copies for v in range(len(tape.nodes))),
        space=tape.space,
        method=how.method,
        reduction=how.reduction,
        probes=how.probes,
        seed=how.seed,
        examples=tape.examples,
        loss=tape.loss,
        cost=products.cost.gradients,
        products=products.cost.products,
        graph=tape.graph,
        chosen=tape.chosen,
        floor=metrics.noise_floor(tape.narrowest, len(tape.nodes)),
        per_sample=kept,
        blocks=blocks,
        **(bound or dict.fromkeys(FLAGS, np.zeros_like(values["resonance"], bool))),
        sampling=sampling or {},
        skipped=tape.skipped,
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
            raise ValueError(f"{name}= must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    if not isinstance(probes, int) or probes < 2:
        raise ValueError(
            f"probes= must be an integer of at least 2, got {probes!r}: the standard error is estimated from them"
        )
    if space == "parameter" and reduction != "mean_block":
        raise ValueError(
            f"reduction={reduction!r} treats each example separately, but all examples share the parameters: with "
            "space='parameter' use reduction='mean_block'"
        )


def _require_separate_examples(tape: Tape, reduction: str) -> None:
    if tape.interacts:
        norm = " (batch normalisation is in train mode)" if tape.problem.couples_examples else ""
        raise ValueError(
            f"reduction={reduction!r} needs independent examples, but in this model the output for one example "
            f"depends on other examples{norm}. If a normalisation layer is the cause, call model.eval() or pass "
            "mode='eval'; otherwise use reduction='joint'"
        )
    whole, parts = tape.mean_check()
    allowed = max(1e-3, 4 * torch.finfo(tape.outputs[0].dtype).eps)
    if abs(whole - parts) > allowed * max(abs(whole), abs(parts)):
        raise ValueError(
            f"the loss is not a mean over examples (whole batch {whole:.6g}, mean of its halves {parts:.6g}): "
            f"reduction={reduction!r} of this measurement needs a loss_fn that averages over examples"
        )
