r"""Candidate gauges of a model, read off one forward pass, and what must not change along their orbits.

Chains of layers joined by positively homogeneous operations (ReLU, LeakyReLU, pooling, reshaping), norms whose scale is
undone by the layers that read them, and the shift of all logits under cross-entropy.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals.anatomy import Anatomy, chart
from netvitals.anatomy.wiring import Links, find_links
from netvitals.capture import in_mode, preserved, undisturbed
from netvitals.capture.loss import LossFn, likelihood_of, resolve_loss
from netvitals.capture.nested import main_output, mapped, output_tensor
from netvitals.capture.task import Task, inputs_of, task_of
from netvitals.optim.gauges import Gauge, ce_shift_bias, ce_shift_rows, chained_rescale, ln_scale

# aten names of what commutes with a positive factor, or may: every candidate is proved afterwards
_HOMOGENEOUS = frozenset(
    [
        "relu",
        "leaky_relu",
        "_prelu_kernel",
        "threshold",
        "abs",
        "maximum",
        "minimum",
        "where",
        "clamp_min",
        "mul",
        "gt",
        "ge",
        "lt",
        "le",
        "max_pool1d_with_indices",
        "max_pool2d_with_indices",
        "max_pool3d_with_indices",
        "avg_pool1d",
        "avg_pool2d",
        "avg_pool3d",
        "_adaptive_avg_pool2d",
        "_adaptive_avg_pool3d",
        "adaptive_max_pool2d",
        "adaptive_max_pool3d",
        "mean",
        "sum",
        "native_dropout",
        "view",
        "_unsafe_view",
        "reshape",
        "transpose",
        "t",
        "permute",
        "squeeze",
        "unsqueeze",
        "expand",
        "select",
        "slice",
        "split",
        "unbind",
        "cat",
        "clone",
        "alias",
        "detach",
        "_to_copy",
        "contiguous",
        "lift_fresh",
        "zeros_like",
        "as_strided",
    ]
)


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
    model, anatomy = net.task.model, _charted(net, guessed)
    links = find_links(anatomy)
    skipped = {
        f"{link.first} → {link.second}": f"{', '.join(_blocking(link.between))} in between does not scale"
        for link in links.links
        if _blocking(link.between)
    }
    candidates = [*_rescales(model, anatomy, links, skipped), *_norm_scales(model, anatomy, skipped)]
    if net.kind == "ce":
        candidates += _logit_shifts(model, anatomy)
    known = dict(model.named_parameters(remove_duplicate=False))
    weights = {layer.name: known.get(layer.weight) for layer in anatomy.layers}
    return candidates, skipped, {n: (weights[n], why) for n, why in links.skipped.items()}


def _charted(net: Invariant, guessed: bool) -> Anatomy:
    """The anatomy of the model in eval mode; a sentence where its outputs could not show a change."""
    model = net.task.model
    with preserved(model), in_mode(model, "eval"), torch.no_grad():
        try:
            anatomy = chart(model, net.task.inputs)
            output = net.task.forward()
        except (RuntimeError, TypeError, IndexError) as error:
            raise ValueError(
                f"the model could not be run on {'a guessed' if guessed else 'the given'} input "
                f"({error}); pass batch=(inputs, targets)"
            ) from error
    _checked(output, net)
    return anatomy


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


def _rescales(model: nn.Module, anatomy: Anatomy, links: Links, skipped: dict[str, str]) -> Iterator[Gauge]:
    layers = {layer.name: layer for layer in anatomy.layers}
    for chain in _chains(links):
        name = f"rescale {chain[0]} … {chain[-1]}"
        if turned := [n for n in chain if layers[n].out_dim != 0]:
            skipped[name] = f"the weight of {', '.join(turned)} is stored with its inputs in front"
            continue
        weights = [model.get_parameter(layers[n].weight) for n in chain]
        biases = [model.get_parameter(layers[n].bias) if layers[n].bias else None for n in chain]
        yield chained_rescale(weights, biases, name)


def _norm_scales(model: nn.Module, anatomy: Anatomy, skipped: dict[str, str]) -> Iterator[Gauge]:
    layers = {layer.name: layer for layer in anatomy.layers}
    known = dict(model.named_parameters(remove_duplicate=False))
    norms = {norm.name: norm for norm in anatomy.norms}
    for reading in anatomy.norm_readers:
        norm, name = norms[reading.writer], f"norm scale {reading.writer}"
        if norm.weight not in known:
            continue
        readers = [layers[n] for n in reading.readers]
        gain = known[norm.weight]
        if not readers:
            skipped[norm.name] = "no layer reads its output directly"
        elif made := [layer.name for layer in readers if layer.reparametrised]:
            skipped[name] = f"the weight of {', '.join(made)} is computed from others"
        elif blocking := _blocking(reading.between):
            skipped[name] = f"{', '.join(blocking)} between it and its readers does not scale"
        elif reading.blocked:
            skipped[name] = reading.blocked
        elif any(layer.out_dim != 0 or known[layer.weight].shape[1] != gain.shape[0] for layer in readers):
            skipped[norm.name] = "channels and the columns that read them do not match"
        else:
            bias = known.get(norm.bias)
            yield ln_scale(gain, bias, [known[layer.weight] for layer in readers], name)


def _logit_shifts(model: nn.Module, anatomy: Anatomy) -> Iterator[Gauge]:
    known = dict(model.named_parameters(remove_duplicate=False))
    for head in anatomy.readouts:
        if head.weight in known and head.out_dim == 0:
            if head.bias:
                yield ce_shift_bias(known[head.bias], f"logit shift {head.bias}")
            yield ce_shift_rows(known[head.weight], f"logit shift {head.name}.weight")


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
    return op.rstrip("_") in _HOMOGENEOUS


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
