"""The optimiser a recipe asks for, with its parameters in groups."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from netvitals.optim import MuonAdamW, fused_parts, muon_split
from netvitals_lab.training.recipe import Recipe


def kinds(model: nn.Module) -> dict[str, str]:
    """What every parameter is: ``matrix``, ``bias``, ``norm`` or ``embedding``.

    >>> kinds(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
    {'0.weight': 'matrix', '0.bias': 'bias', '1.weight': 'norm', '1.bias': 'norm'}
    """
    found: dict[int, str] = {}
    for module in model.modules():
        for p in module.parameters(recurse=False):
            if "norm" in type(module).__name__.lower():
                kind = "norm"
            elif isinstance(module, nn.Embedding):
                kind = "embedding"
            else:
                kind = "matrix" if p.ndim >= 2 else "bias"
            found.setdefault(id(p), kind)
    return {name: found[id(p)] for name, p in model.named_parameters()}


def make_optimizer(
    model: nn.Module, recipe: Recipe, parameters: dict[str, Any] | None = None, **options: Any
) -> Optimizer:
    """SGD, Adam, AdamW, or Muon with AdamW for ``model``; every group keeps its own rate under ``base_lr``."""
    named = dict(model.named_parameters()) if parameters is None else parameters
    named = {name: p for name, p in named.items() if p.requires_grad}
    if not named:
        raise ValueError(f"{type(model).__name__} has no parameter to train")
    kind = kinds(model)
    matrices: dict[str, Any] = {}
    if recipe.optimizer == "muon":
        if parameters is not None:
            raise ValueError("Muon cannot train stacked seeds; use sgd, adam or adamw for an ensemble")
        matrices = {n: p for n, p in muon_split(model)[0].items() if n in named}
    gathered: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for name, p in named.items():
        rule = next((g for g in recipe.groups if re.search(g.names, name) and kind[name] in g.kinds), None)
        scale, decay = (1.0, None) if rule is None else (rule.lr, rule.weight_decay)
        rate = (recipe.hidden_lr if name in matrices else recipe.lr) * scale
        parts = fused_parts(name, p) if name in matrices else 0
        gathered[(rate, recipe.weight_decay if decay is None else decay, parts)].append(p)
    groups = [
        ({"params": params, "lr": rate, "base_lr": rate, "weight_decay": decay}, parts)
        for (rate, decay, parts), params in gathered.items()
    ]
    adam: dict[str, Any] = {"betas": recipe.betas, "eps": recipe.eps}
    if recipe.optimizer == "muon":
        muon = [{**g, "parts": parts, "momentum": 0.95, "nesterov": True} for g, parts in groups if parts]
        rest = [{**g, **adam} for g, parts in groups if not parts]
        if not muon or not rest:
            raise ValueError(
                f"Muon trains hidden matrices beside a readout; {type(model).__name__} has "
                f"{len(muon)} groups for Muon and {len(rest)} for AdamW"
            )
        return MuonAdamW(muon, rest)
    plain = [g for g, _ in groups]
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            plain, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.nesterov and recipe.momentum > 0, **options
        )
    make = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
    return make(plain, lr=recipe.lr, **adam, **options)


def set_rate(optimizer: Optimizer, factor: float) -> None:
    """Every group at ``factor`` times its own base rate."""
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor
