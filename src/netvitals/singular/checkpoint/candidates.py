r"""Candidate dead directions of a checkpoint, from three places.

The joint mode of a hidden unit (its incoming row with its outgoing column), the bottom direction of each layer's K-FAC
factors, and the kernel of each LayerNorm.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from netvitals.anatomy import Anatomy, chart
from netvitals.anatomy.kinds import by_output, layer_kind
from netvitals.anatomy.wiring import Links, find_links
from netvitals.capture.nested import output_tensor
from netvitals.capture.task import Task
from netvitals.singular.moments.factors import joint_mode, kronecker_lift
from netvitals.singular.moments.kronecker import kfac

_MOVING = frozenset({"view", "_unsafe_view", "reshape", "alias", "detach", "clone", "transpose", "permute", "expand"})
ANSWERS = 64  # outputs per example up to which K-FAC factors sum over all of them
Named = tuple[str, str, dict[str, Tensor]]  # name, kind, direction by parameter name


def candidate_directions(task: Task, loss: str, units: int) -> tuple[list[Named], dict[str, str]]:
    """Joint modes, K-FAC bottoms and norm kernels of a model in float64, and what was left out and why.

    Args:
        task: the model and its inputs, in eval mode.
        loss: "ce" or "mse".
        units: hidden units per pair of layers, the weakest first.

    Returns:
        Directions by name and kind, and what was skipped.
    """
    anatomy = chart(task.model, task.inputs)
    with torch.no_grad():
        answers = output_tensor(task.forward(), task.model)[0].numel()
    links = find_links(anatomy)
    skipped = dict(links.skipped)
    joint = _joint_modes(task.model, links, units, skipped)
    bottoms = _bottoms(task, loss, "expected" if answers <= ANSWERS else "monte-carlo")
    return [*joint, *bottoms, *_norm_kernels(task.model, anatomy, skipped)], skipped


def _joint_modes(model: nn.Module, links: Links, units: int, skipped: dict[str, str]) -> list[Named]:
    out: list[Named] = []
    modules = dict(model.named_modules())
    for link in links.links:
        first, second = (modules.get(n, model) for n in (link.first, link.second))
        if any(layer_kind(m) not in ("linear", "convolution") or by_output(m) is not m.weight for m in (first, second)):
            skipped[f"{link.first} → {link.second}"] = "joint modes are built between linear layers and convolutions"
            continue
        into, out_of = first.get_parameter("weight").detach(), second.get_parameter("weight").detach()
        if into.shape[0] != out_of.shape[1] or max(getattr(m, "groups", 1) for m in (first, second)) > 1:
            skipped[f"{link.first} → {link.second}"] = "joint modes are built between layers of one width, not grouped"
            continue
        strength = into.flatten(1).norm(dim=1) * out_of.transpose(0, 1).flatten(1).norm(dim=1)
        for unit in torch.argsort(strength)[:units].tolist():
            out.append(
                (
                    f"{link.first} → {link.second}, unit {unit}",
                    "joint mode",
                    joint_mode(model, link.first, link.second, unit),
                )
            )
    return out


def _bottoms(task: Task, loss: str, fisher: str) -> list[Named]:
    # to find candidates, sampled labels do; the scans along them use the expected Fisher (§2.5)
    inputs = (dict(task.kwargs) if task.kwargs else task.args, None)
    out: list[Named] = []
    for name, factor in kfac(task.model, loss, inputs, fisher=fisher).layers.items():
        module = task.model.get_submodule(name)
        if layer_kind(module) in ("linear", "convolution") and getattr(module, "groups", 1) == 1:
            turned = by_output(module)
            bottom = by_output(module, kronecker_lift(factor)[0].reshape(turned.shape))
            out.append((name or "model", "K-FAC bottom", {f"{name}.weight".lstrip("."): bottom}))
    return out


def _norm_kernels(model: nn.Module, anatomy: Anatomy, skipped: dict[str, str]) -> list[Named]:
    """For every LayerNorm that a layer reads directly: the direction of that layer's rows which the norm removes."""
    layers = {layer.name: layer for layer in anatomy.layers}
    known = dict(model.named_parameters(remove_duplicate=False))
    norms = {norm.name: norm for norm in anatomy.norms}
    out: list[Named] = []
    for reading in anatomy.norm_readers:
        norm = norms[reading.writer]
        if norm.kind != "layer" or norm.weight not in known:
            continue
        gain = known[norm.weight].detach()
        readers = [layers[n] for n in reading.readers if layers[n].weight in known and not layers[n].reparametrised]
        direct = [r for r in readers if known[r.weight].shape[1 - r.out_dim] == len(gain)] if gain.ndim == 1 else []
        if not direct or not bool((gain != 0).all()) or any(name not in _MOVING for name in reading.between):
            skipped[norm.name] = "no linear layer reads this norm directly, or a gain is zero"
            continue
        reader = direct[0]
        weight, kernel = known[reader.weight], 1 / gain
        row = torch.outer(torch.ones(weight.shape[reader.out_dim], dtype=weight.dtype), kernel / kernel.norm())
        row = row.transpose(0, reader.out_dim) / row.norm()
        out.append((f"{norm.name} read by {reader.name}", "norm kernel", {reader.weight: row}))
    return out
