"""What the callbacks of all trainers share: how a watch begins, goes on after a checkpoint, and is replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from netvitals.runs import run_file
from netvitals.watching import Watch, watch


def begin(model: nn.Module, optimizer: Any, step: int, options: Mapping[str, Any]) -> Watch:
    """A watch that begins at the step where a trainer stands.

    A run that is there already is continued if the trainer goes on from a checkpoint, and with ``resume=True``: at the
    trainer's step, whatever the run has beyond it. The trainer may begin the next watch of the same model without
    closing this one, as after Ctrl-C.

    >>> net = nn.Linear(2, 1)
    >>> vitals = begin(net, None, 7, {"every": 5})
    >>> vitals.step(0.5); vitals.close(); [(r.step, r.value) for r in vitals.measurements]
    [(7, 0.5)]
    """
    settings = dict(options)
    run = settings.get("run")
    if run is not None and settings.setdefault("resume", step > 0) is True:
        settings["resume"] = step if run_file(run).is_file() else False
    vitals = watch(model, optimizer, **settings)
    vitals.yields = True
    if step and settings.get("resume", False) is False:
        vitals.go_on_at(step)
    return vitals


def network(module: nn.Module, name: str | None = None) -> nn.Module:
    """What is watched of a LightningModule: the part that is named, its only network, or all of it."""
    if name is not None:
        return module.get_submodule(name)
    inside = [m for m in module.children() if any(True for _ in m.parameters())]
    own = any(True for _ in module.parameters(recurse=False))
    return inside[0] if len(inside) == 1 and not own else module
