"""What is noted of a watched model at the beginning of a run, and of its activations as they are met."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from netvitals._help import hint
from netvitals.capture import Site

if TYPE_CHECKING:
    from netvitals.watching.api import Watch
    from netvitals.watching.measured_steps import MeasuredSteps


def open_run_of(
    watch: Watch, run: str | os.PathLike[str], resume: bool | int, overwrite: bool, optimizers: Sequence[Optimizer]
) -> None:
    """Give a watch the writer of its run, and the step at which it begins."""
    from netvitals.runs import RunWriter, run_file

    at = None if isinstance(resume, bool) else resume
    existing = "overwrite" if overwrite else "number" if resume is False else "resume"
    if at is not None and not run_file(run).is_file():
        raise FileNotFoundError(
            f"there is no run at {run} that could continue at step {at}; start a new run without resume "
            f"{hint('no-run')}"
        )
    meta = described(watch, watch._bare, optimizers)
    watch._writer = writer = RunWriter(run, meta, existing=existing, at=at, at_exit=False)
    watch._path, watch._buffer.writer, writer.source = writer.path, writer, watch._buffer.hand_over
    watch._step = writer.next_step
    watch._observations = -(-watch._step // watch.every)


def note_places(watch: MeasuredSteps) -> None:
    """Note in the run what was seen and what was not, where that has changed."""
    places = len(watch._observer.sites) + len(watch._observer.skipped)
    if watch._writer is not None and places != watch._noted:
        watch._noted = places
        watch._writer.note("sites", watch.sites)
        watch._writer.note("activations", watch.activations)
        watch._writer.note("skipped", watch.skipped)


def silent_vitals(watch: MeasuredSteps) -> dict[str, str]:
    """Vital signs that wrote nothing, and the loss where none was given → why."""
    found = {}
    skipped = watch._observer.skipped
    for vital in watch._schedule.vitals:
        if vital.name in watch._wrote or any(_is_about(place, vital.name) for place in skipped):
            continue
        off = {site for name, site in watch._schedule.off if name == vital.name}
        why = getattr(vital, "absent", "") or "nothing that it looks at was met"
        if not watch._observations:
            why = "no step was measured"
        elif off:
            why = f"it failed at {', '.join(sorted(off)[:3])}"
        elif not watch._observer.sites and watch._schedule.looks_at_passes(vital):
            why = skipped.get("model") or skipped.get("forward") or why
        found[vital.name] = why
    if watch._lossless and watch._observations:
        found["loss"] = "none was given: call vitals.step(loss), or return it from training_step"
    return found


def _is_about(place: str, vital: str) -> bool:
    return place == vital or place.startswith(f"{vital}: ") or place.endswith(f"({vital})")


def described(watch: Watch, model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Any]:
    """The first notes of a run."""
    return {
        "model": type(model).__name__,
        "architecture": str(model)[:20_000],
        "parameters": sum(p.numel() for p in model.parameters()),
        "every": watch.every,
        "vitals": [v.name for v in watch._schedule.vitals],
        "probe": watch._probe is not None,
        "seed": torch.initial_seed(),
        "sites": watch.sites,
        "skipped": watch.skipped,
        "optimizer": [{"name": type(o).__name__, **plain_settings(o)} for o in optimizers],
        "groups": group_members({**dict(model.named_parameters()), **watch._given}, optimizers),
        "untrained": untrained({**dict(model.named_parameters()), **watch._given}, optimizers),
        "embeddings": embeddings(model),
        "shapes": {n: list(p.shape) for n, p in model.named_parameters() if p.ndim > 1},
    }


def embeddings(model: nn.Module) -> list[str]:
    """Parameters whose rows are looked up and nothing else, in torch's own modules; a readout that is tied to one sums
    over its rows.

    >>> embeddings(nn.Sequential(nn.Embedding(5, 2), nn.Linear(2, 1)))
    ['0.weight']
    """
    tables = nn.Embedding | nn.EmbeddingBag
    summed = {id(p) for m in model.modules() if not isinstance(m, tables) for p in m.parameters(recurse=False)}
    return [
        f"{name}.weight".lstrip(".")
        for name, m in model.named_modules()
        if isinstance(m, tables) and id(m.weight) not in summed
    ]


def untrained(parameters: Mapping[str, Tensor], optimizers: Sequence[Optimizer]) -> dict[str, str]:
    """Parameters that no step will move, and why.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    >>> untrained(dict(net.named_parameters()), [torch.optim.SGD(net[1].parameters(), lr=0.1)])
    {'0.weight': 'not in the optimizer', '0.bias': 'not in the optimizer'}
    """
    held = {id(p) for o in optimizers for group in o.param_groups for p in group["params"]}
    out = {}
    for name, p in parameters.items():
        if not p.requires_grad:
            out[name] = "frozen"
        elif optimizers and id(p) not in held:
            out[name] = "not in the optimizer"
    return out


def activation_specs(model: nn.Module, sites: Iterable[Site]) -> dict[str, str]:
    """Which function acts at each site whose numbers are fixed.

    >>> net = nn.Sequential(nn.Softplus(beta=20))
    >>> site = Site(name="0", kind="activation", op="Softplus", follows="linear", channel_dim=1, module="0")
    >>> activation_specs(net, [site])
    {'0': 'softplus:20'}
    """
    from netvitals.activations import spec_of

    modules = dict(model.named_modules())
    found = {s.name: modules.get(s.module) for s in sites if s.kind == "activation"}
    specs = {name: spec_of(m) for name, m in found.items() if m is not None and not list(m.parameters())}
    return {name: spec for name, spec in specs.items() if spec is not None}


def plain_settings(optimizer: Optimizer) -> dict[str, Any]:
    """The hyperparameters of an optimizer's first group that are plain values."""
    group = optimizer.param_groups[0]
    return {k: v for k, v in group.items() if isinstance(v, int | float | bool | str | tuple) and k != "params"}


def group_members(parameters: Mapping[str, Tensor], optimizers: Sequence[Optimizer]) -> list[dict[str, Any]]:
    """Which parameters each group holds, as the sites of the vital sign ``optimizer`` are named.

    >>> net = nn.Linear(2, 1)
    >>> group_members(dict(net.named_parameters()), [torch.optim.SGD(net.parameters(), lr=0.1)])
    [{'site': 'group 0', 'optimizer': 'SGD', 'parameters': ['weight', 'bias']}]
    """
    names = {id(p): name for name, p in parameters.items()}
    groups = [(type(o).__name__, group) for o in optimizers for group in o.param_groups]
    return [
        {
            "site": f"group {i}",
            "optimizer": name,
            "parameters": [names[id(p)] for p in group["params"] if id(p) in names],
        }
        for i, (name, group) in enumerate(groups)
    ]
