r"""Candidate gauges of a model, read off one forward pass, and what must not change along their orbits.

Chains of layers joined by positively homogeneous operations (ReLU, LeakyReLU, pooling, reshaping), norms whose scale is
undone by the layers that read them, and the shift of all logits under cross-entropy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter

from netvitals.anatomy.wiring import Links, find_links, recorded
from netvitals.capture import in_mode, preserved, undisturbed
from netvitals.capture.loss import LossFn, likelihood_of, resolve_loss
from netvitals.capture.nested import main_output, mapped, output_tensor
from netvitals.capture.task import Task, inputs_of, task_of
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


@dataclass(frozen=True)
class Invariant:
    """A model, its input, and what must not change along an orbit."""

    task: Task
    kind: str | None  # "ce" or "mse"; None for a loss of the user's own

    def value(self, output: Any) -> Tensor:
        """Log-probabilities for cross-entropy, the outputs for MSE, or the user's loss."""
        if self.kind is None:
            return torch.atleast_1d(self.task.loss(output))
        outputs = output_tensor(output, self.task.model)
        return F.log_softmax(outputs, -1) if self.kind == "ce" else outputs

    def change_along(self, gauge: Gauge, seed: int) -> float:
        """Relative change of the value when a float64 copy of the model is moved along the gauge's orbit."""
        memo: dict[int, Any] = {}
        twin = copy.deepcopy(self.task.model, memo).double().eval()
        moved = copy.deepcopy(gauge, memo)  # the copy's gauge acts on the copy's parameters
        cast = lambda nest: mapped(nest, lambda t: t.double() if t.is_floating_point() else t)
        args, kwargs = cast(self.task.args), cast(dict(self.task.kwargs))
        net = replace(self, task=replace(self.task, targets=cast(self.task.targets)))
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            before = net.value(twin(*args, **kwargs))
            moved.act(0.5 * torch.randn(gauge.modes, generator=generator, dtype=torch.float64))
            after = net.value(twin(*args, **kwargs))
        return float((after - before).abs().max() / before.abs().max().clamp_min(1e-12))


@undisturbed
def invariant_of(model: nn.Module, loss_fn: LossFn, batch: Any) -> Invariant:
    """What must not change along an orbit: the output up to its likelihood's own symmetry, or a user's own loss."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"gauges are looked for in a torch module, got {type(model).__name__}")
    resolve_loss(loss_fn)
    given = inputs_of(model, _guess(model) if batch is None else batch)
    try:
        kind = likelihood_of(loss_fn, given.targets[0] if given.targets else None)
    except ValueError:  # a loss of the user's own: its value must not change
        if batch is None:
            raise ValueError(
                "a loss of one's own is looked at on data of one's own: pass batch=(inputs, targets), or loss_fn as "
                "'ce' or 'mse'"
            ) from None
        return Invariant(task_of(model, loss_fn, batch), None)
    return Invariant(given, kind)


def found_candidates(net: Invariant, guessed: bool) -> tuple[list[Gauge], dict[str, str], dict[str, tuple[Any, str]]]:
    """Candidates; what was left out and why; and, by layer, its weight and why it is linked to no other."""
    model, seen = net.task.model, _observed(net, guessed)
    skipped = {
        f"{link.first} → {link.second}": f"{', '.join(_blocking(link.between))} in between does not scale"
        for link in seen.links.links
        if _blocking(link.between)
    }
    candidates = [*_rescales(model, seen, skipped), *_norm_scales(model, seen, skipped)]
    if net.kind == "ce":
        candidates += _logit_shifts(model, seen)
    return candidates, skipped, {n: (_weight(model, n), why) for n, why in seen.links.skipped.items()}


@dataclass(frozen=True)
class Observed:
    """What one forward pass shows: which layer feeds which, which norm each layer reads, and the last layer."""

    links: Links
    norms: tuple[str, ...]
    reads: dict[str, str | None]  # layer → norm
    head: str | None
    made: frozenset[str]  # modules whose weight is computed by a parametrisation


def _observed(net: Invariant, guessed: bool) -> Observed:
    model = net.task.model
    norms: dict[str, Tensor] = {}
    handles = [m.register_forward_hook(_note(norms, n)) for n, m in model.named_modules() if isinstance(m, _NORMS)]
    with preserved(model), in_mode(model, "eval"), torch.enable_grad():
        for p in model.parameters():
            if p.is_floating_point():
                p.requires_grad_(True)  # frozen ones are seen like the others, to say why they are left
        try:
            with recorded(model) as runs:
                output = net.task.forward()
        except (RuntimeError, TypeError, IndexError) as error:
            raise ValueError(
                f"the model could not be run on {'a guessed' if guessed else 'the given'} input "
                f"({error}); pass batch=(inputs, targets)"
            ) from error
        finally:
            for handle in handles:
                handle.remove()
        outputs = _checked(output, net)
        weights = {n: getattr(model.get_submodule(n), "weight", None) for n in (*runs, *norms)}
        return Observed(
            links=find_links(runs),
            norms=tuple(norms),
            reads={name: _norm_read_by(run.u, norms) for name, run in runs.items()},
            head=next((n for n, run in runs.items() if _is_output(outputs, run.z)), None),
            made=frozenset(n for n, w in weights.items() if not isinstance(w, Parameter | None)),
        )


def _checked(output: Any, net: Invariant) -> Any:
    """The outputs; a sentence where invariance of the loss could not be seen in them."""
    if net.kind is None:
        return main_output(output)
    outputs = output_tensor(output, net.task.model)
    if not torch.isfinite(outputs).all():
        raise ValueError("the model's outputs are not finite: look for NaN in the batch or the parameters")
    if net.kind == "ce" and outputs.shape[-1] < 2:
        raise ValueError(
            "cross-entropy over a single output is always zero and hides every change: pass loss_fn='mse' "
            "or a function of (output, target)"
        )
    return outputs


def _weight(model: nn.Module, name: str) -> Any:
    return getattr(model.get_submodule(name), "weight", None)


def _bias(model: nn.Module, name: str) -> Parameter | None:
    module = model.get_submodule(name)
    return module.get_parameter("bias") if getattr(module, "bias", None) is not None else None


def _rescales(model: nn.Module, seen: Observed, skipped: dict[str, str]) -> Iterator[Gauge]:
    for chain in _chains(seen.links):
        name = f"rescale {chain[0]} … {chain[-1]}"
        if computed := [n for n in chain if n in seen.made]:
            skipped[name] = f"the weight of {', '.join(computed)} is computed from others"
            continue
        yield chained_rescale([_weight(model, n) for n in chain], [_bias(model, n) for n in chain], name)


def _norm_scales(model: nn.Module, seen: Observed, skipped: dict[str, str]) -> Iterator[Gauge]:
    for name in seen.norms:
        readers = [n for n, source in seen.reads.items() if source == name]
        if computed := [n for n in (name, *readers) if n in seen.made]:
            skipped[f"norm scale {name}"] = f"the weight of {', '.join(computed)} is computed from others"
            continue
        gain, weights = _weight(model, name), [_weight(model, n) for n in readers]
        if gain is None:
            continue
        if not readers:
            skipped[name] = "no layer reads its output directly"
        elif any(w.shape[1] != gain.shape[0] for w in weights):
            skipped[name] = "channels and the columns that read them do not match"
        else:
            yield ln_scale(gain, _bias(model, name), weights, f"norm scale {name}")


def _logit_shifts(model: nn.Module, seen: Observed) -> Iterator[Gauge]:
    if seen.head is None or seen.head in seen.made:
        return
    if (bias := _bias(model, seen.head)) is not None:
        yield ce_shift_bias(bias, f"logit shift {seen.head}.bias")
    yield ce_shift_rows(_weight(model, seen.head), f"logit shift {seen.head}.weight")


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
