"""Random models trained with and without every way to measure them, and what differs afterwards."""

from __future__ import annotations

import copy
import random
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

import netvitals as nv
from netvitals import curvature, drift, forecasts, gates, saddle, singular
from netvitals.singular.checkpoint.dead_directions import measure

sys.path.insert(0, str(Path(__file__).parent))

from random_models import STEPS, Calls, Stats, build, compose, loss_fn

# ---------------------------------------------------------------- ways to measure

KINDS = ["gates", "drift", "gradients", "spikes"]


def _watched(**options):
    def begin(model, optimizer, batch):
        given = dict(options)
        if given.pop("probe", False):
            given["probe"] = (*batch, loss_fn)
        if given.pop("optimizer", False):
            given["optimizer"] = optimizer
        return nv.watch(model, **given)

    return begin


WATCHES = {
    "watch every step": _watched(every=1, optimizer=True),
    "watch every other step": _watched(every=2),
    "watch a probe": _watched(every=2, probe=True, optimizer=True),
    "watch few signs": _watched(every=1, vitals=["gates"]),
}
CALLS = {
    "checkup": lambda m, b: nv.checkup(m, loss_fn, b, curvature=False),
    "checkup with curvature": lambda m, b: nv.checkup(m, loss_fn, b, curvature=True, vitals=["gates"]),
    "checkup with dead directions": lambda m, b: nv.checkup(m, loss_fn, b, curvature=False, singular=True),
    "interlayer": lambda m, b: curvature.between_layers(m, loss_fn, b, probes=2),
    "readout": lambda m, b: singular.readout(m, "ce", b, units=1),
    "learning coefficient": lambda m, b: singular.learning_coefficient(
        m, loss_fn, b, chains=1, draws=3, burn_in=1, step_size=1e-5
    ),
    "imbalance": lambda m, b: saddle.imbalance(m, loss_fn, b),
    "gates": lambda m, b: gates.measure(m, loss_fn, b),
    "euler": lambda m, b: drift.euler(m, loss_fn, b),
    "spikes": lambda m, b: drift.spikes(m, [b]),
    "sparsity": lambda m, b: drift.sparsity(m, [b]),
    "dead directions": lambda m, b: measure(m, "ce", b),
    "look ahead": lambda m, b: forecasts.look_ahead(
        m, loss_fn, [b], optimizer=torch.optim.Adam(m.parameters(), lr=0.1), steps=3
    ),
}
WAYS = (*WATCHES, *CALLS)


@dataclass
class Result:
    """What a training left: everything that must be the same."""

    state: dict = field(default_factory=dict)
    raised: str = ""


def train(names, way=None, seed=0):
    """Train the model of these parts, measured in one way or not at all."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old weight norm is still met in the wild
        model = build(names)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(seed)
    x, y = torch.randn(STEPS, 6, 4, generator=data), torch.randint(0, 3, (STEPS, 6), generator=data)
    result = Result()
    losses = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        watch = WATCHES[way](model, optimizer, (x[0], y[0])) if way in WATCHES else None
        for step in range(STEPS):
            if way in CALLS and step == 2:
                try:
                    CALLS[way](model, (x[0], y[0]))
                except Exception as error:  # a refusal must leave the model alone as well
                    result.raised = f"{type(error).__name__}: {error}"
            loss = loss_fn(model(x[step]), y[step])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().clone())
            if watch is not None:
                watch.step(loss)
        if watch is not None:
            watch.close()
    result.state = state_of(model, optimizer, losses)
    return result


def state_of(model, optimizer, losses):
    return {
        "losses": losses,
        "parameters": [p.detach().clone() for p in model.parameters()],
        "gradients": [p.grad for p in model.parameters()],
        "flags": [(p.requires_grad, p.stride()) for p in model.parameters()],
        "buffers": [b.clone() for b in model.buffers()],
        "optimizer": copy.deepcopy(optimizer.state_dict()),
        "modes": [m.training for m in model.modules()],
        "random": [torch.get_rng_state(), np.random.get_state()[1:3], random.getstate()],
        "attributes": [_plain(m) for m in model.modules()],
        "hooks": [
            [getattr(h, "calls", None) for h in table.values()]
            for m in model.modules()
            for table in (m._forward_hooks, m._forward_pre_hooks, m._backward_hooks, m._forward_hooks_with_kwargs)
        ],
        "settings": [
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.mha.get_fastpath_enabled(),
        ],
    }


def _plain(module):
    found = {}
    for key, value in vars(module).items():
        if key.startswith("_") or key == "function":
            continue
        if isinstance(value, Stats | Calls):
            value = vars(value)
        if isinstance(value, torch.Generator):
            value = value.get_state()
        if isinstance(value, np.random.Generator):
            value = value.bit_generator.state
        found[key] = value.detach().clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)
    return found


def differences(one, two, place=""):
    """Where two states differ."""
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        return [] if one.dtype == two.dtype and torch.equal(one.nan_to_num(), two.nan_to_num()) else [place]
    if isinstance(one, np.ndarray):
        return [] if np.array_equal(one, two) else [place]
    if isinstance(one, dict) and isinstance(two, dict):
        if one.keys() != two.keys():
            return [f"{place}: keys"]
        return [d for k in one for d in differences(one[k], two[k], f"{place}/{k}")]
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        if len(one) != len(two):
            return [f"{place}: {len(one)} and {len(two)}"]
        return [d for i, (a, b) in enumerate(zip(one, two)) for d in differences(a, b, f"{place}/{i}")]
    return [] if one == two else [f"{place}: {one!r} and {two!r}"]


def disturbed(seed, ways):
    """(way, parts, what differs) for each of ``ways`` that changed the training of one random model; None if the model
    does not repeat itself."""
    names = compose(seed)
    first, second = train(names, seed=seed).state, train(names, seed=seed).state
    if differences(first, second):
        return None
    found = []
    for way in ways:
        different = differences(first, train(names, way, seed=seed).state)
        if different:
            found.append((way, names, different[:4]))
    return found
