r"""Candidate dead directions of a checkpoint, from three places.

The joint mode of a hidden unit (its incoming row with its outgoing column), the bottom direction of each layer's K-FAC
factors, and the kernel of each LayerNorm.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn

from netvitals.anatomy import chart
from netvitals.anatomy.wiring import LayerRun, Links, find_links, recorded
from netvitals.capture.nested import output_tensor
from netvitals.capture.task import Task
from netvitals.singular.moments.factors import joint_mode, kronecker_lift
from netvitals.singular.moments.kronecker import kfac

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
    with recorded(task.model, anatomy) as runs, torch.enable_grad():
        answers = output_tensor(task.forward(), task.model)[0].numel()
    links = find_links(anatomy)
    skipped = dict(links.skipped)
    joint = _joint_modes(task.model, links, units, skipped)
    bottoms = _bottoms(task, loss, "expected" if answers <= ANSWERS else "monte-carlo")
    return [*joint, *bottoms, *_norm_kernels(task, runs, skipped)], skipped


def _joint_modes(model: nn.Module, links: Links, units: int, skipped: dict[str, str]) -> list[Named]:
    out: list[Named] = []
    uses = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    for link in links.links:
        first, second = (model.get_submodule(n) for n in (link.first, link.second))
        into, out_of = first.get_parameter("weight").detach(), second.get_parameter("weight").detach()
        if into.shape[0] != out_of.shape[1] or max(getattr(m, "groups", 1) for m in (first, second)) > 1:
            skipped[f"{link.first} → {link.second}"] = "joint modes are built between layers of one width, not grouped"
            continue
        if any(uses[id(m.weight)] > 1 for m in (first, second)):
            skipped[f"{link.first} → {link.second}"] = "a weight is tied to another layer: it is no unit's own"
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
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d) and getattr(module, "groups", 1) == 1:
            bottom = kronecker_lift(factor)[0].reshape(module.weight.shape)
            out.append((name or "model", "K-FAC bottom", {f"{name}.weight".lstrip("."): bottom}))
    return out


def _norm_kernels(task: Task, runs: dict[str, LayerRun], skipped: dict[str, str]) -> list[Named]:
    model = task.model
    out: list[Named] = []
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm) and module.elementwise_affine:
            reader = next(
                (
                    n
                    for n, m in model.named_modules()
                    if isinstance(m, nn.Linear)
                    and n in runs
                    and m.in_features == module.weight.numel()
                    and runs[n].u.shape[-1] == module.weight.numel()
                    and _reads(runs[n].u, module, task)
                ),
                None,
            )
            if reader is None or not bool((module.weight != 0).all()):
                skipped[name] = "no linear layer reads this norm directly, or a gain is zero"
                continue
            weight = model.get_submodule(reader).get_parameter("weight")
            kernel = 1 / module.weight.detach()
            row = torch.outer(torch.ones(weight.shape[0], dtype=weight.dtype), kernel / kernel.norm())
            out.append((f"{name} read by {reader}", "norm kernel", {f"{reader}.weight": row / row.norm()}))
    return out


def _reads(u: Tensor, norm: nn.LayerNorm, task: Task) -> bool:
    """Whether ``u`` is the norm's output, by value."""
    kept: list[Tensor] = []
    handle = norm.register_forward_hook(lambda m, a, o: kept.append(o.detach()))
    try:
        with torch.no_grad():
            task.forward()
    finally:
        handle.remove()
    return bool(kept) and kept[0].shape == u.shape and torch.equal(kept[0], u.detach())
