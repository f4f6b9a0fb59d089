r"""K-FAC factors of a real model: $A_\ell = E[x_{\ell-1} x_{\ell-1}^\top]$, $G_\ell = E[\delta_\ell \delta_\ell^\top]$.

$\delta_\ell$ is the per-example gradient of the loss at the layer's output. Its covariance is taken over labels drawn
from the model: exactly (*expected*, one backward pass per output in one batched call), by sampling (*monte-carlo*), or
with the given labels (*empirical*). Convolutions use unfolded patches; positions are averaged in A and summed in G.
Moments are summed in float64 wherever spectra are asked for: summed in float32, a zero of G or A shows as 1e-7 of the
largest eigenvalue and passes for the smallest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals.anatomy import layer_kind
from netvitals.capture import (
    LossFn,
    Mode,
    Only,
    Result,
    Task,
    batches_of,
    in_mode,
    inputs_of,
    likelihood_of,
    one_screen,
    output_tensor,
    picked,
    preserved,
    undisturbed,
)
from netvitals.singular.moments.factors import FLOOR, FLOOR_SINGLE, Factor
from netvitals.singular.moments.second_moments import gram, input_moment

FISHERS = ("expected", "monte-carlo", "empirical")
_FUSED = "its projections run inside one fused call; separate nn.Linear projections are covered"
_OTHER = "its parameter of {} is used by {}, which is none of linear layer, convolution and embedding"


@dataclass(frozen=True, kw_only=True)
class KFAC(Result):
    """Factors by layer name, and what was not covered.

    Returned by :func:`kfac`.

    Attributes:
        layers: both factors of each layer, by name.
        fisher: ``expected``, ``monte-carlo`` or ``empirical``.
        loss: ``mse`` or ``ce``.
        examples: how many there were.
        skipped: layer → reason.
    """

    layers: dict[str, Factor]
    fisher: str
    loss: str
    examples: int
    skipped: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Factor:
        if name not in self.layers:
            raise KeyError(f"there is no layer {name!r}; the layers with K-FAC factors are {', '.join(self.layers)}")
        return self.layers[name]

    def rows(self) -> list[dict[str, Any]]:
        """Sizes and the ends of both spectra, one row a layer."""
        return [{"layer": name, **factor.row()} for name, factor in self.layers.items()]

    def __str__(self) -> str:
        head = f"K-FAC, {self.fisher} Fisher of {self.loss}, {self.examples} examples"
        rows = [f"  {n:24s} {f}" for n, f in self.layers.items()]
        return one_screen([head, *rows, *(f"  not covered: {n}, {why}" for n, why in self.skipped.items())])


@dataclass
class Call:
    """One layer of the model and what it was given and gave, for each time it ran."""

    name: str
    module: nn.Module
    passes: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # input, output

    def record(self, _: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        self.passes.append((args[0].detach(), output))


def why_not(call: Call) -> str:
    """Why a layer has no pair of factors; empty where it has one."""
    if isinstance(call.module, nn.MultiheadAttention):
        return _FUSED
    if not _covered(call.module):
        shape = next(p.shape for p in call.module.parameters(recurse=False) if p.ndim > 1)
        return _OTHER.format("×".join(map(str, shape)), type(call.module).__name__)
    if not call.passes:
        return "never called"
    if getattr(call.module, "groups", 1) > 1:
        return "a grouped convolution has one pair of factors for each group"
    if not any(z.requires_grad for _, z in call.passes):
        return "its output needs no gradient"
    return ""


@undisturbed
def kfac(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    only: Only = None,
    seed: int = 0,
    fisher: str = "expected",
    bias: bool = False,
    spectra: bool = True,
) -> KFAC:
    """Compute the K-FAC factors A (inputs) and G (output gradients) of every linear layer, convolution and embedding.

    Every module with a weight matrix is listed in ``layers``, or in ``skipped`` with the reason. The model is left
    unchanged.

    Args:
        model: any model that returns one tensor, or an output with ``logits``.
        loss_fn: "mse" (½‖y − f‖²), "ce" (softmax over the last dimension; (N, C) or (N, T, C)), or torch's losses of
            that kind. It fixes the likelihood.
        batch: one batch as a data loader yields it; or an iterable of batches, of which one is in memory at a time. A
            target is needed for the empirical Fisher only.
        mode: "as_is", "train" (batch statistics, dropout modules off) or "eval".
        only: names or patterns of layers, or a function of a name.
        seed: seed of the labels drawn for "monte-carlo".
        fisher: "expected", "monte-carlo" or "empirical".
        bias: append a constant 1 to the layer input, so that A covers the bias.
        spectra: also eigenvalues, from moments summed in float64. Without them products are made in the model's own
            precision, which is faster.

    Returns:
        Factors by layer name.

    >>> print(kfac(nn.Linear(2, 1), "mse", torch.eye(2))[""].A)
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]], dtype=torch.float64)
    """
    if fisher not in FISHERS:
        raise ValueError(f"fisher= must be one of {', '.join(FISHERS)}, got {fisher!r}")
    means: dict[str, _Means] = {}
    skipped: dict[str, str] = {}
    examples, loss = 0, ""
    for number, one in enumerate(batches_of(batch)):
        loss, count, left = _add(
            means, inputs_of(model, one), loss_fn, mode, only, seed + number, fisher, bias, spectra
        )
        examples, skipped = examples + count, {**left, **skipped}
    if not examples:
        raise ValueError(
            "the data holds no batch: give a batch, a list of batches or a loader that yields at least one"
        )
    skipped = {name: why for name, why in skipped.items() if name not in means}
    layers = {name: mean.factor(spectra) for name, mean in means.items()}
    return KFAC(layers=layers, fisher=fisher, loss=loss, examples=examples, skipped=skipped)


@dataclass
class _Means:
    """Mean moments of one layer over batches: A by input rows, G by examples."""

    dtype: torch.dtype
    a: Tensor | None = None
    g: Tensor | None = None
    rows: int = 0
    examples: int = 0

    def add(self, a: Tensor, g: Tensor, examples: int, positions: int) -> None:
        rows = examples * positions
        self.rows, self.examples = self.rows + rows, self.examples + examples
        self.a = a if self.a is None else self.a.lerp(a, rows / self.rows)
        self.g = g if self.g is None else self.g.lerp(g, examples / self.examples)

    def factor(self, spectra: bool) -> Factor:
        assert self.a is not None and self.g is not None
        a, g = self.a, self.g
        empty = torch.empty(0, dtype=torch.float64)
        return Factor(
            A=a,
            G=g,
            A_spectrum=torch.linalg.eigvalsh(a) if spectra else empty,
            G_spectrum=torch.linalg.eigvalsh(g) if spectra else empty,
            positions=self.rows // self.examples,
            floor=FLOOR if self.dtype == torch.float64 else FLOOR_SINGLE,
        )


def _add(
    means: dict[str, _Means],
    task: Task,
    loss_fn: LossFn,
    mode: Mode,
    only: Only,
    seed: int,
    fisher: str,
    bias: bool,
    spectra: bool,
) -> tuple[str, int, dict[str, str]]:
    """Add the moments of one batch; its likelihood, its examples, and the layers without factors in it."""
    model = task.model
    targets = task.targets[0] if task.targets else None
    loss = likelihood_of(loss_fn, targets)
    if not task.examples:
        raise ValueError("the batch is empty: give at least one example")
    if fisher == "empirical" and targets is None:
        raise ValueError("the empirical Fisher needs labels: give batch as (inputs, targets)")
    calls = _asked_for(model, only)
    with preserved(model), in_mode(model, mode), torch.enable_grad():
        outputs = _run(task, calls)
        skipped = {call.name: why for call in calls if (why := why_not(call))}
        usable = [call for call in calls if call.name not in skipped]
        if not usable:
            raise ValueError(
                "none of the selected layers has an output that needs a gradient: all of them are frozen or were not "
                "called; choose other layers"
            )
        if fisher == "empirical":
            _check_targets(outputs, targets, loss)
        passes = [(call, x, z) for call in usable for x, z in call.passes if z.requires_grad]
        deltas = _deltas(outputs, [z for *_, z in passes], targets, loss, fisher, seed)
        for call in usable:
            mine = [(x, z, d) for (owner, x, z), d in zip(passes, deltas) if owner is call]
            mean = means.setdefault(call.name, _Means(mine[0][1].dtype))
            mean.add(*_moments(call.module, mine, bias, spectra))
    return loss, len(outputs), skipped


def _asked_for(model: nn.Module, only: Only) -> list[Call]:
    known = {n: m for n, m in model.named_modules() if any(p.ndim > 1 for p in m.parameters(recurse=False))}
    calls = [Call(n, known[n]) for n in picked(known, only, "layer")]
    if not any(_covered(call.module) for call in calls):
        raise ValueError(f"{type(model).__name__} has no Linear, Conv or Embedding layer that only= selects")
    return calls


def _covered(module: nn.Module) -> bool:
    return layer_kind(module) in ("linear", "convolution", "embedding") and not isinstance(module, nn.Conv3d)


def _run(task: Task, calls: list[Call]) -> Tensor:
    """The model's outputs, with every call recorded on the way."""
    handles = []
    try:
        for call in calls:
            if _covered(call.module):
                handles.append(call.module.register_forward_hook(call.record))
        outputs = output_tensor(task.forward(), task.model)
    finally:
        for handle in handles:
            handle.remove()
    if not torch.isfinite(outputs).all():
        raise ValueError(
            "the model's outputs contain NaN or infinity; a finite output is needed: check the batch and the parameters"
        )
    return outputs


def _check_targets(outputs: Tensor, targets: Any, loss: str) -> None:
    wanted = outputs.shape if loss == "mse" else outputs.shape[:-1]
    if not isinstance(targets, Tensor) or targets.shape != wanted:
        raise ValueError(
            f"with loss {loss} and outputs of shape {tuple(outputs.shape)}, targets must have shape {tuple(wanted)}, "
            f"got {tuple(targets.shape) if isinstance(targets, Tensor) else type(targets).__name__}"
        )
    if loss == "ce" and (
        targets.is_floating_point() or int(targets.min()) < 0 or int(targets.max()) >= outputs.shape[-1]
    ):
        raise ValueError(
            f"with loss ce, targets must be classes from 0 to {outputs.shape[-1] - 1}, got {targets.dtype} from "
            f"{targets.min():g} to {targets.max():g}; leave ignored positions out of the batch"
        )


def _deltas(
    outputs: Tensor, zs: list[Tensor], targets: Tensor | None, loss: str, fisher: str, seed: int
) -> list[Tensor]:
    """Per-example gradients at every z; the expected Fisher has a leading dimension over outputs."""
    classes = outputs.shape[-1]
    out = outputs.detach()
    generator = torch.Generator(out.device).manual_seed(seed)
    if fisher == "expected":
        if loss == "mse":
            root = torch.eye(classes, dtype=out.dtype, device=out.device)
            roots = root.reshape(classes, *(1,) * (out.ndim - 1), classes).expand(classes, *out.shape)
        else:
            roots = _softmax_roots(out)
            classes -= 1
        if out.ndim > 2:  # labels at different positions are independent: sum over positions one by one
            positions = out[0, ..., 0].numel()
            flat = roots.reshape(classes, len(out), positions, out.shape[-1])
            eye = torch.eye(positions, dtype=out.dtype, device=out.device)
            roots = (flat[:, None] * eye[None, :, None, :, None]).reshape(-1, *out.shape)
        return list(torch.autograd.grad(outputs, zs, roots, is_grads_batched=True))
    if fisher == "monte-carlo":
        if loss == "mse":
            seedling = torch.randn(out.shape, generator=generator, dtype=out.dtype, device=out.device)
        else:
            p = out.softmax(-1)
            drawn = torch.multinomial(p.flatten(0, -2), 1, generator=generator).reshape(p.shape[:-1])
            seedling = p - F.one_hot(drawn, classes).to(p)
    else:
        assert targets is not None
        seedling = (out - targets) if loss == "mse" else out.softmax(-1) - F.one_hot(targets, classes).to(out)
    return [d[None] for d in torch.autograd.grad(outputs, zs, seedling)]


def _softmax_roots(logits: Tensor) -> Tensor:
    r"""C − 1 vectors r with $\sum r r^\top = \mathrm{diag}(p) - p p^\top$, in front: its rank is one less than C.

    Taking classes out one by one, with $q_k = \sum_{j>k} p_j$: $r_k = \sqrt{p_k q_k/q_{k-1}}\,(e_k - p_{>k}/q_k)$.
    """
    p = logits.softmax(-1)
    rest = p.flip(-1).cumsum(-1).flip(-1)  # q_{k−1}: this class and all after it
    after = rest[..., 1:].clamp_min(torch.finfo(p.dtype).tiny)
    size = (p[..., :-1] * (after / rest[..., :-1].clamp_min(torch.finfo(p.dtype).tiny))).sqrt()
    shares = -(p[..., None, :] / after[..., None]).triu(1)[..., : p.shape[-1]]
    shares = shares + torch.eye(p.shape[-1], dtype=p.dtype, device=p.device)[:-1]
    return (size[..., None] * shares).movedim(-2, 0)


def _moments(
    module: nn.Module, calls: list[tuple[Tensor, Tensor, Tensor]], bias: bool, spectra: bool
) -> tuple[Tensor, Tensor, int, int]:
    """A and G of a layer in one batch, its examples, and the positions of each."""
    a = g = None
    positions = 0
    for x, z, d in calls:
        convolution = isinstance(module, nn.Conv1d | nn.Conv2d)
        channels = z.shape[1] if convolution else z.shape[-1]
        a_part = input_moment(module, x, bias, exact=spectra)
        per = d.movedim(2, -1) if convolution else d
        rows = per.reshape(-1, channels)
        g_part = gram(rows.double() if spectra else rows).div_(len(z))
        a, g = (a_part, g_part) if a is None or g is None else (a + a_part, g + g_part)
        positions += z[0].numel() // channels
    assert a is not None and g is not None
    return a / len(calls) if len(calls) > 1 else a, g, len(calls[0][1]), positions
