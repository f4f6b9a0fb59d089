r"""Find the gauges of a model by itself, and prove each of them before use.

Looked for: chains of layers joined by positively homogeneous operations (ReLU, LeakyReLU, pooling, reshaping), norms
whose scale is undone by the layers that read them, and the shift of all logits under cross-entropy. Every candidate is
moved along its orbit on a float64 copy of the model; only those that leave the loss unchanged are kept.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter

from netvitals.capture import preserved
from netvitals.optim.gauges import Gauge, ce_shift_bias, ce_shift_rows, chained_rescale, ln_scale

_HOMOGENEOUS = (
    "Relu",
    "LeakyRelu",
    "MaxPool",
    "AvgPool",
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "Mean",
    "View",
    "UnsafeView",
    "Reshape",
    "Transpose",
    "Permute",
    "Squeeze",
    "Unsqueeze",
    "Clone",
    "Threshold",
    "NativeDropout",
    "Select",
    "Slice",
    "Expand",
)
_NORMS = (nn.LayerNorm, nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.RMSNorm)
_TRANSPOSED = "T"  # autograd's name of x.T; as a prefix it would let Tanh through
_TOLERANCE = 1e-8  # relative change of the loss, in float64, that still counts as none


@dataclass(frozen=True)
class Gauges:
    """Gauges found in a model, each with the change of the loss along its orbit, and what was left to AdamW and why."""

    gauges: tuple[Gauge, ...]
    residuals: dict[str, float]
    left: dict[str, str] = field(default_factory=dict)  # parameter or candidate → reason

    def __iter__(self) -> Iterator[Gauge]:
        return iter(self.gauges)

    def __len__(self) -> int:
        return len(self.gauges)

    def __str__(self) -> str:
        lines = [f"{g} (loss changes by {self.residuals[g.name]:.1e} along the orbit)" for g in self.gauges]
        return "\n".join(
            [
                *(lines or ["no gauge found: DDCAdam is AdamW here"]),
                *(f"left to AdamW: {n}: {why}" for n, why in self.left.items()),
            ]
        )


def find_gauges(
    model: nn.Module, batch: Any = None, loss: str | Callable[[Tensor], Tensor] = "ce", *, seed: int = 0
) -> Gauges:
    """The symmetries of ``model``'s loss that :class:`DDCAdam` can respect, on disjoint parameters.

    Args:
        batch: an input, or (input, targets); without it an input is guessed from the first layer.
        loss: "ce", "mse", torch's losses of that kind, or a function of the outputs alone.

    The model is run in eval mode (dropout off) and left as it was.
    """
    from netvitals.anatomy.wiring import find_links, recorded

    if not isinstance(model, nn.Module):
        raise TypeError(f"gauges are looked for in a torch module, got {type(model).__name__}")
    loss = _named(loss)
    x = batch[0] if isinstance(batch, tuple | list) else batch
    x = _guess(model) if x is None else x
    frozen = {p for p in model.parameters() if not p.requires_grad}
    norms: dict[str, Tensor] = {}
    handles = [m.register_forward_hook(_note(norms, n)) for n, m in model.named_modules() if isinstance(m, _NORMS)]
    with preserved(model, train=False), torch.enable_grad():
        for p in frozen:
            if p.is_floating_point():
                p.requires_grad_(True)  # seen like the others, to say why they are left; restored afterwards
        try:
            with recorded(model) as runs:
                outputs = model(x)
        except (RuntimeError, TypeError, IndexError) as error:
            raise ValueError(
                f"the model could not be run on {'the given' if batch is not None else 'a guessed'} input "
                f"({error}); pass batch=(inputs, targets)"
            ) from error
        finally:
            for handle in handles:
                handle.remove()
        _check_outputs(outputs, loss)
        links = find_links(runs)
        reads = {name: _norm_read_by(run.u, norms) for name, run in runs.items()}
        head = next((n for n, r in runs.items() if _is_output(outputs, r.z)), None)
    names = {p: n for n, p in model.named_parameters()}
    tied = _tied(model)
    left = {
        f"{link.first} → {link.second}": f"{', '.join(_blocking(link.between))} in between does not scale"
        for link in links.links
        if _blocking(link.between)
    }
    weights_of = {n: getattr(model.get_submodule(n), "weight", None) for n in (*runs, *norms)}
    made = {n for n, w in weights_of.items() if not isinstance(w, Parameter | None)}  # by a parametrisation
    candidates: list[Gauge] = []
    for chain in _chains(links):
        layers = [model.get_submodule(n) for n in chain]
        if computed := [n for n in chain if n in made]:
            left[f"rescale {chain[0]} … {chain[-1]}"] = f"the weight of {', '.join(computed)} is computed from others"
            continue
        weights = [m.get_parameter("weight") for m in layers]
        biases = [m.get_parameter("bias") if getattr(m, "bias", None) is not None else None for m in layers]
        candidates.append(chained_rescale(weights, biases, f"rescale {chain[0]} … {chain[-1]}"))
    for name in norms:
        readers = [n for n, source in reads.items() if source == name]
        module = model.get_submodule(name)
        if computed := [n for n in (name, *readers) if n in made]:
            left[f"norm scale {name}"] = f"the weight of {', '.join(computed)} is computed from others"
            continue
        if getattr(module, "weight", None) is None or not readers:
            if getattr(module, "weight", None) is not None:
                left[name] = "no layer reads its output directly"
            continue
        bias = module.get_parameter("bias") if getattr(module, "bias", None) is not None else None
        weights = [model.get_submodule(n).get_parameter("weight") for n in readers]
        if all(w.shape[1] == module.get_parameter("weight").shape[0] for w in weights):
            candidates.append(ln_scale(module.get_parameter("weight"), bias, weights, f"norm scale {name}"))
        else:
            left[name] = "channels and the columns that read them do not match"
    if loss == "ce" and head is not None and head not in made:
        layer = model.get_submodule(head)
        if getattr(layer, "bias", None) is not None:
            candidates.append(ce_shift_bias(layer.get_parameter("bias"), f"logit shift {head}.bias"))
        candidates.append(ce_shift_rows(layer.get_parameter("weight"), f"logit shift {head}.weight"))
    found = _keep(model, x, loss, candidates, names, tied, frozen, left, seed)
    covered = {p for gauge in found for p in gauge.params}
    left |= {n: why for n, why in links.skipped.items() if weights_of[n] not in covered}
    return found


def _keep(
    model: nn.Module,
    x: Any,
    loss: str | Callable[[Tensor], Tensor],
    candidates: list[Gauge],
    names: dict[Parameter, str],
    tied: set[Parameter],
    frozen: set[Parameter],
    left: dict[str, str],
    seed: int,
) -> Gauges:
    kept: list[Gauge] = []
    residuals: dict[str, float] = {}
    taken: set[Parameter] = set()
    for gauge in candidates:
        shared = [names[p] for p in gauge.params if p in tied]
        if shared:
            left[gauge.name] = f"{', '.join(shared)} is tied: scaling it changes both of its uses"
        elif still := [names[p] for p in gauge.params if p in frozen]:
            left[gauge.name] = f"{', '.join(still)} is frozen: a gauge moves all of its parameters"
        elif any(p in taken for p in gauge.params):
            left[gauge.name] = "its parameters already belong to another gauge"
        else:
            try:
                gauge.check()
            except ValueError as error:
                left[gauge.name] = str(error)
                continue
            residual = orbit_change(model, x, loss, gauge, seed)
            if residual <= _TOLERANCE:
                kept.append(gauge)
                residuals[gauge.name] = residual
                taken.update(gauge.params)
            else:
                left[gauge.name] = f"the loss changes by {residual:.1e} along the supposed orbit"
    return Gauges(tuple(kept), residuals, left)


def orbit_change(
    model: nn.Module, x: Any, loss: str | Callable[[Tensor], Tensor], gauge: Gauge, seed: int = 0
) -> float:
    """Relative change of the loss when a float64 copy of the model is moved along the gauge's orbit."""
    loss = _named(loss)
    memo: dict[int, Any] = {}
    twin = copy.deepcopy(model, memo).double().eval()
    moved = copy.deepcopy(gauge, memo)  # the copy's gauge acts on the copy's parameters
    x = x.double() if isinstance(x, Tensor) and x.is_floating_point() else x
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        before = _value(twin(x), loss)
        moved.act(0.5 * torch.randn(gauge.modes, generator=generator, dtype=torch.float64))
        after = _value(twin(x), loss)
    return float((after - before).abs().max() / before.abs().max().clamp_min(1e-12))


def _named(loss: Any) -> Any:
    """Torch's losses by the name of their likelihood; anything else as it is."""
    if loss is F.cross_entropy or isinstance(loss, nn.CrossEntropyLoss):
        return "ce"
    if loss is F.mse_loss or isinstance(loss, nn.MSELoss):
        return "mse"
    if not callable(loss) and loss not in ("ce", "mse"):
        raise ValueError(f"loss is 'ce', 'mse' or a function of the outputs, got {loss!r}")
    return loss


def _check_outputs(outputs: Any, loss: str | Callable[[Tensor], Tensor]) -> None:
    """A sentence where invariance of the loss could not be seen."""
    if callable(loss):
        return
    if not isinstance(outputs, Tensor):
        raise ValueError(
            f"the model returns a {type(outputs).__name__}, not a tensor: pass loss as a function of what it returns"
        )
    if not torch.isfinite(outputs).all():
        raise ValueError("the model's outputs are not finite: look for NaN in the batch or the parameters")
    if loss == "ce" and outputs.shape[-1] < 2:
        raise ValueError(
            "cross-entropy over a single output is always zero and hides every change: pass loss='mse' "
            "or a function of the outputs"
        )


def _value(outputs: Tensor, loss: str | Callable[[Tensor], Tensor]) -> Tensor:
    """What must not change: log-probabilities for cross-entropy, the outputs for MSE, or the user's loss."""
    if callable(loss):
        return torch.atleast_1d(loss(outputs))
    return F.log_softmax(outputs, -1) if loss == "ce" else outputs


def _chains(links: Any) -> list[tuple[str, ...]]:
    """Maximal runs of links through positively homogeneous operations."""
    after = {link.first: link.second for link in links.links if not _blocking(link.between)}
    out = []
    for start in [n for n in after if n not in set(after.values())]:
        chain = [start]
        while chain[-1] in after:
            chain.append(after[chain[-1]])
        out.append(tuple(chain))
    return out


def _blocking(between: tuple[str, ...]) -> list[str]:
    """Operations on the way that do not commute with a positive factor, each once, four at most."""
    return list(dict.fromkeys(op for op in between if not _scales(op)))[:4]


def _scales(op: str) -> bool:
    return op.startswith(_HOMOGENEOUS) or op == _TRANSPOSED


def _note(norms: dict[str, Tensor], name: str) -> Callable[..., Tensor]:
    def hook(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        norms[name] = output
        return output.clone()

    return hook


def _norm_read_by(u: Tensor, norms: dict[str, Tensor]) -> str | None:
    """The norm whose output reaches ``u`` through homogeneous operations alone."""
    sources = {id(t.grad_fn): n for n, t in norms.items() if t.grad_fn is not None}
    node = u.grad_fn
    while node is not None:
        if id(node) in sources:
            return sources[id(node)]
        kind = node.name().replace("Backward0", "").replace("Backward1", "")
        parents = [p for p, _ in node.next_functions if p is not None]
        if not _scales(kind) or len(parents) != 1:
            return None
        node = parents[0]
    return None


def _is_output(outputs: Any, z: Tensor) -> bool:
    node = getattr(outputs, "grad_fn", None)
    while node is not None and node.name() in ("CloneBackward0", "ViewBackward0", "UnsafeViewBackward0"):
        if node is z.grad_fn:
            return True
        node = node.next_functions[0][0]
    return node is not None and node is z.grad_fn


def _tied(model: nn.Module) -> set[Parameter]:
    seen: dict[Parameter, int] = {}
    for _, p in model.named_parameters(remove_duplicate=False):
        seen[p] = seen.get(p, 0) + 1
    return {p for p, count in seen.items() if count > 1}


def _guess(model: nn.Module) -> Tensor:
    """A small random input that the first layer accepts."""
    like = next(model.parameters(), None)
    if like is None:
        raise ValueError(f"{type(model).__name__} has no parameters: there is nothing to look for gauges in")
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            return torch.randint(0, module.num_embeddings, (2, 8), generator=generator)
        if isinstance(module, nn.Linear):
            return torch.randn(4, module.in_features, generator=generator).to(like)
        if isinstance(module, nn.Conv2d):
            return torch.randn(2, module.in_channels, 32, 32, generator=generator).to(like)
        if isinstance(module, nn.Conv1d):
            return torch.randn(2, module.in_channels, 32, generator=generator).to(like)
    raise ValueError("the model has no layer whose input could be guessed; pass batch=(inputs, targets)")
