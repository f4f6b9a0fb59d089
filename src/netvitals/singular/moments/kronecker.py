r"""K-FAC factors of a real model: $A_\ell = E[x_{\ell-1} x_{\ell-1}^\top]$, $G_\ell = E[\delta_\ell \delta_\ell^\top]$.

$\delta_\ell$ is the per-sample gradient of the loss at the layer's output. Its covariance is taken over labels drawn
from the model: exactly (*expected*, one backward pass per output in one batched call), by sampling (*monte-carlo*), or
with the given labels (*empirical*). Convolutions use unfolded patches; positions are averaged in A and summed in G.
Moments are summed in float64 wherever spectra are asked for: summed in float32, a zero of G or A shows as 1e-7 of the
largest eigenvalue and passes for the smallest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals.capture import preserved
from netvitals.singular.moments.factors import FLOOR, FLOOR_SINGLE, Factor
from netvitals.singular.moments.second_moments import gram, input_moment

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Embedding)
FISHERS = ("expected", "monte-carlo", "empirical")


@dataclass(frozen=True)
class KFAC:
    """Factors by layer name, and what was not covered."""

    layers: dict[str, Factor]
    fisher: str
    loss: str
    samples: int
    skipped: dict[str, str]  # layer → reason

    def __getitem__(self, name: str) -> Factor:
        if name not in self.layers:
            raise KeyError(f"there is no layer {name!r}; K-FAC has {', '.join(self.layers)}")
        return self.layers[name]

    def __str__(self) -> str:
        head = f"K-FAC, {self.fisher} Fisher of {self.loss}, {self.samples} samples"
        rows = [f"  {n:24s} {f}" for n, f in self.layers.items()]
        return "\n".join([head, *rows, *(f"  not covered: {n}, {why}" for n, why in self.skipped.items())])


def kfac(
    model: nn.Module,
    batch: Any,
    loss: str = "mse",
    fisher: str = "expected",
    *,
    bias: bool = False,
    only: Callable[[str], bool] | None = None,
    seed: int = 0,
    spectra: bool = True,
) -> KFAC:
    """A and G of every Linear, Conv1d, Conv2d and Embedding of ``model``.

    Args:
        batch: (inputs, targets), or inputs alone where no labels are needed.
        loss: "mse" (½‖y − f‖²) or "ce" (softmax over the last dimension; (N, C) or (N, T, C)).
        fisher: "expected", "monte-carlo" or "empirical".
        bias: append a constant 1 to the layer input, so that A covers the bias.
        only: keep layers whose name it accepts.
        spectra: also eigenvalues, from moments summed in float64. Without them products are made in the model's own
            precision, which is faster.

    The model runs in its own mode with BatchNorm on batch statistics if training; everything is restored.
    """
    if loss not in ("mse", "ce"):
        raise ValueError(f"K-FAC knows the losses mse and ce, got {loss!r}")
    if fisher not in FISHERS:
        raise ValueError(f"fisher is one of {', '.join(FISHERS)}, got {fisher!r}")
    inputs, targets = batch if isinstance(batch, tuple | list) and len(batch) == 2 else (batch, None)
    if isinstance(inputs, Tensor) and not len(inputs):
        raise ValueError("the batch is empty: factors are means over samples")
    if fisher == "empirical" and targets is None:
        raise ValueError("the empirical Fisher needs labels: give batch as (inputs, targets)")
    chosen = {n: m for n, m in model.named_modules() if isinstance(m, LAYERS) and (only is None or only(n))}
    if not chosen:
        raise ValueError(f"{type(model).__name__} has no Linear, Conv or Embedding layer that was asked for")
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {n: [] for n in chosen}
    handles = []
    with preserved(model):
        try:
            for name, module in chosen.items():
                handles.append(module.register_forward_hook(_recorder(seen[name])))
            with torch.enable_grad():
                outputs = model(inputs)
        finally:
            for handle in handles:
                handle.remove()
        if not isinstance(outputs, Tensor):
            raise ValueError(
                f"{type(model).__name__} returns a {type(outputs).__name__}; K-FAC needs a model that "
                "returns one tensor"
            )
        if not torch.isfinite(outputs).all():
            raise ValueError("the model's outputs are not finite: look for NaN in the batch or the parameters")
        skipped = {n: "never called" for n, calls in seen.items() if not calls}
        skipped |= {
            n: "its projections run inside one fused call; separate nn.Linear projections are covered"
            for n, m in model.named_modules()
            if isinstance(m, nn.MultiheadAttention) and (only is None or only(n))
        }
        calls = [(n, x, z) for n, pairs in seen.items() for x, z in pairs]
        grouped = {n for n, m in chosen.items() if getattr(m, "groups", 1) > 1}
        skipped |= dict.fromkeys(grouped, "a grouped convolution has one pair of factors for each group")
        usable = [(n, x, z) for n, x, z in calls if z.requires_grad and n not in grouped]
        skipped |= {n: "its output needs no gradient" for n, _, z in calls if not z.requires_grad}
        if not usable:
            raise ValueError(
                "no layer's output needs a gradient: everything that was asked for is frozen or was not called"
            )
        if fisher == "empirical":
            _check_targets(outputs, targets, loss)
        deltas = _deltas(outputs, [z for *_, z in usable], targets, loss, fisher, seed)
        layers: dict[str, Factor] = {}
        for name in dict.fromkeys(n for n, *_ in usable):
            mine = [(x, z, d) for (n, x, z), d in zip(usable, deltas) if n == name]
            layers[name] = _factor(chosen[name], mine, bias, spectra)
    return KFAC(layers, fisher, loss, len(outputs), skipped)


def _check_targets(outputs: Tensor, targets: Any, loss: str) -> None:
    wanted = outputs.shape if loss == "mse" else outputs.shape[:-1]
    if not isinstance(targets, Tensor) or targets.shape != wanted:
        raise ValueError(
            f"outputs {tuple(outputs.shape)} under {loss} need targets of shape {tuple(wanted)}, got "
            f"{tuple(targets.shape) if isinstance(targets, Tensor) else type(targets).__name__}"
        )
    if loss == "ce" and (
        targets.is_floating_point() or int(targets.min()) < 0 or int(targets.max()) >= outputs.shape[-1]
    ):
        raise ValueError(
            f"targets under ce are classes 0 to {outputs.shape[-1] - 1}, got {targets.dtype} from "
            f"{targets.min():g} to {targets.max():g}; leave ignored positions out of the batch"
        )


def _recorder(calls: list[tuple[Tensor, Tensor]]) -> Callable[..., None]:
    def record(_: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        calls.append((args[0].detach(), output))

    return record


def _deltas(
    outputs: Tensor, zs: list[Tensor], targets: Tensor | None, loss: str, fisher: str, seed: int
) -> list[Tensor]:
    """Per-sample gradients at every z; the expected Fisher has a leading dimension over outputs."""
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


def _factor(module: nn.Module, calls: list[tuple[Tensor, Tensor, Tensor]], bias: bool, spectra: bool) -> Factor:
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
    a = a / len(calls) if len(calls) > 1 else a
    empty = torch.empty(0, dtype=torch.float64)
    return Factor(
        a,
        g,
        torch.linalg.eigvalsh(a) if spectra else empty,
        torch.linalg.eigvalsh(g) if spectra else empty,
        positions,
        FLOOR if calls[0][1].dtype == torch.float64 else FLOOR_SINGLE,
    )
