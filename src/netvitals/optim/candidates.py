r"""Candidate gauges of a model, read off one forward pass, and what must not change along their orbits.

Units between two layers joined by positively homogeneous operations (ReLU and its square, LeakyReLU, PReLU, pooling,
reshaping), norms whose scale is undone by the layers that read them, and the shift of all logits under cross-entropy.
Attention and gated MLPs are in ``optim.branches``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from netvitals.anatomy import Anatomy, Links, chart, find_links
from netvitals.capture import in_mode, main_output, output_tensor, preserved
from netvitals.optim.blocks import GaugeBlock
from netvitals.optim.branches import branch_gauges
from netvitals.optim.gauges import Gauge, Rescale, ce_shift_bias, ce_shift_rows, ln_scale
from netvitals.optim.invariance import Invariant

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
        "pow",
        "square",
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


def found_candidates(net: Invariant, guessed: bool) -> tuple[list[Gauge], dict[str, str], dict[str, tuple[Any, str]]]:
    """Candidates; what was left out and why; and, by layer, its weight and why it is linked to no other."""
    model, anatomy = net.task.model, _charted(net, guessed)
    links = find_links(anatomy)
    skipped = {
        f"{link.first} → {link.second}": f"{', '.join(_blocking(link.between))} in between does not scale"
        for link in links.links
        if _blocking(link.between)
    }
    candidates: list[Gauge] = [*_rescales(net, anatomy, links, skipped), *_norm_scales(model, anatomy, skipped)]
    candidates += branch_gauges(net, anatomy)
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
                f"the model raised an error on {'a guessed' if guessed else 'the given'} input ({error}); pass "
                "batch=(inputs, targets)"
            ) from error
    _checked(output, net)
    return anatomy


def _checked(output: Any, net: Invariant) -> Any:
    """The outputs; a sentence where invariance of the loss could not be seen in them."""
    if net.kind is None:
        return main_output(output)
    outputs = output_tensor(output, net.task.model)
    if not torch.isfinite(outputs).all():
        raise ValueError("the model's outputs contain NaN or infinity: check the batch and the parameters")
    if net.kind == "ce" and outputs.shape[-1] < 2:
        raise ValueError(
            "cross-entropy of a single output is always zero, so no change of the loss can be measured: pass "
            "loss_fn='mse' or a function of (output, target)"
        )
    return outputs


def _rescales(net: Invariant, anatomy: Anatomy, links: Links, skipped: dict[str, str]) -> Iterator[Gauge]:
    """One gauge a pair of layers, with a mode for every unit between them."""
    layers = {layer.name: layer for layer in anatomy.layers}
    known = dict(net.task.model.named_parameters(remove_duplicate=False))
    for link in links.links:
        if _blocking(link.between):
            continue
        first, second = layers[link.first], layers[link.second]
        name = f"rescale {link.first} → {link.second}"
        units, inputs = known[first.weight].shape[first.out_dim], known[second.weight].shape[1 - second.out_dim]
        if inputs % units:
            skipped[name] = f"{units} units and the {inputs} inputs that read them do not match"
            continue
        into = [(known[n], d) for n, d in ((first.weight, first.out_dim), (first.bias, 0)) if n]
        columns = (torch.arange(inputs) // (inputs // units),)
        blocks = (
            GaugeBlock(tuple(p for p, _ in into), tuple(d for _, d in into)),
            GaugeBlock((known[second.weight],), (1 - second.out_dim,), columns),
        )
        squared = any(op.rstrip("_") in ("mul", "pow", "square") for op in link.between)
        found = [Rescale(name, blocks, degree=q) for q in ((1.0, 2.0) if squared else (1.0,))]
        yield next((g for g in found[:-1] if _works(g) and net.change_along(g, 0) < 1e-8), found[-1])


def _works(gauge: Gauge) -> bool:
    with contextlib.suppress(ValueError):
        gauge.check()
        return True
    return False


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


def _blocking(between: tuple[str, ...]) -> list[str]:
    """Operations on the way that do not commute with a positive factor, each once, four at most."""
    return list(dict.fromkeys(op for op in between if not _scales(op)))[:4]


def _scales(op: str) -> bool:
    return op.rstrip("_") in _HOMOGENEOUS
