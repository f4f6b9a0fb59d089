"""Rivals on the scripts of the published half: each stands in for ``netvitals.watch``, one seed.

python bench/bugs/rivals.py [--tools torchmortem,neural-observatory] [--rows rows.jsonl] [--jobs 2]

The tools must be importable (``install_peers.sh``). An alarm is a finding of theirs that is a warning or critical; the
cause counts as named where the detector that speaks first or later stands for it below.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from netvitals_lab.bugs import Case, cases
from netvitals_lab.bugs.runner import executed, in_fork, quiet

ANY_GRADIENT = ("vanishing-gradients", "exploding-gradients", "init-too-small", "init-too-large", "lr-too-high")
NAMES: dict[str, tuple[str, ...]] = {  # detector or analyzer → causes that it stands for, generously
    "gradient": (*ANY_GRADIENT, "bad-values", "detached-graph", "layers-unused", "frozen-by-mistake"),
    "dead": ("dead-units", "lr-too-high", "init-too-large"),
    "saturat": ("saturated-units", "init-too-large", "inputs-not-scaled", "dead-units"),
    "activation": ("dead-units", "saturated-units", "exploding-activations", "inputs-not-scaled", "bad-values"),
    "rank": ("init-symmetric",),
    "update": ("lr-too-high", "lr-too-low", "update-lost", "scheduler-misuse"),
    "learning": ("lr-too-high", "lr-too-low", "scheduler-misuse"),
    "curvature": ("lr-too-high",),
    "loss": ("lr-too-high", "bad-values"),
    "parameter": ("weight-decay-too-strong", "init-too-large", "init-too-small", "frozen-by-mistake", "bad-values"),
    "anomaly": ("bad-values", "exploding-gradients"),
}


def together(model: Any) -> Any:
    """One module for what a script hands over."""
    from torch import nn

    if isinstance(model, nn.Module):
        return model
    return nn.ModuleList(model.values() if isinstance(model, dict) else model)


class Watched:
    """What a script sees of a rival: the interface of a watch."""

    def __init__(self, tool: Any) -> None:
        self.tool = tool

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def close(self) -> None: ...


class Torchmortem(Watched):
    def __init__(self, model: Any, optimizer: Any = None, **_: Any) -> None:
        import torchmortem

        first = optimizer[0] if isinstance(optimizer, list | tuple) and optimizer else optimizer
        super().__init__(torchmortem.Autopsy(together(model), optimizer=first))
        self.tool.attach()

    def step(self, loss: Any = None) -> None:
        self.tool.step(loss=None if loss is None else float(loss))

    def close(self) -> None:
        self.tool.detach()

    def alarms(self) -> list[str]:
        found = sorted(self.tool.get_report().findings, key=lambda f: -int(f.severity))
        return [f"{f.detector} {f.category} {f.title}".lower() for f in found if int(f.severity) >= 1]


class NeuralObservatory(Watched):
    def __init__(self, model: Any, optimizer: Any = None, **_: Any) -> None:
        import neural_observatory

        super().__init__(neural_observatory.Observatory(together(model)))
        self.tool.watch()
        self.steps = 0

    def step(self, loss: Any = None) -> None:
        self.tool.step(self.steps)
        self.steps += 1

    def alarms(self) -> list[str]:
        found = sorted(self.tool.report().results, key=lambda r: -r.severity)
        return [r.analyzer_name.lower() for r in found if r.status.value in ("warning", "critical")]


TOOLS = {"torchmortem": Torchmortem, "neural-observatory": NeuralObservatory}


def asked(tool: str, case: Case, variant: str) -> dict[str, Any]:
    """What ``tool`` says of a script."""

    def work() -> dict[str, Any]:
        import netvitals

        netvitals.watch = TOOLS[tool]  # type: ignore[assignment]
        with quiet():
            names = executed(case, variant, 0)
            return {"alarms": names["watch"].alarms()}

    return {"tool": tool, "case": case.name, "variant": variant, "alarms": [], **in_fork(work)}


def stands_for(alarm: str, case: Case) -> bool:
    return any(word in alarm and set(causes) & set(case.causes) for word, causes in NAMES.items())


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--variants", default="bug,fixed,healthy")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    import netvitals.watching  # noqa: F401  loaded once, before the first fork

    for tool in args.tools.split(","):
        __import__(tool.replace("-", "_"))
    chosen = cases("published")
    known = {case.name: case for case in chosen}
    work = [
        (tool, case, variant)
        for tool in args.tools.split(",")
        for case in chosen
        for variant in (("bug", "fixed") if case.kind == "bug" else ("healthy",))
        if variant in args.variants
    ]
    counts: dict[str, Counter[str]] = {tool: Counter() for tool in args.tools.split(",")}
    with ThreadPoolExecutor(args.jobs) as pool:
        for row in pool.map(lambda one: asked(*one), work):
            if args.rows:
                with args.rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            case, found = known[row["case"]], counts[row["tool"]]
            if "error" in row:
                found[f"{row['variant']}: could not run"] += 1
            elif row["variant"] != "bug":
                found.update({row["variant"]: 1, f"{row['variant']}: quiet": not row["alarms"]})
            elif case.observable:
                named = [stands_for(alarm, case) for alarm in row["alarms"]]
                found.update(bug=1, named=any(named), first=bool(named) and named[0], alarm=bool(named))
    for tool, found in counts.items():
        print(tool, dict(found))


if __name__ == "__main__":
    main()
