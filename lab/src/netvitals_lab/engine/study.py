"""A study: parameters at its scales, the trials they make, what one trial does, and what it needs on a cluster."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

from netvitals_lab.engine.plain_values import plain

SCALES = ("smoke", "small", "medium", "paper")
REQUIRED = ("smoke", "small", "paper")  # medium, for a cluster, is declared too, or why small already tells all

Config = dict[str, Any]  # what one trial is told; plain values only
Row = dict[str, Any]  # one line of results: names to numbers, texts, or lists of numbers


@dataclass(frozen=True)
class Resources:
    """What a study takes on a Ray cluster.

    >>> print(Resources(cpus=2, memory_gb=4.0, core_hours=12.0))
    2 CPUs and 4 GB a trial, about 12 core-hours
    """

    cpus: int = 1  # of one trial
    memory_gb: float = 2.0  # of one trial
    core_hours: float = 1.0  # expected, of all trials together

    def __str__(self) -> str:
        cpus = f"{self.cpus} CPU{'s' * (self.cpus != 1)}"
        return f"{cpus} and {self.memory_gb:g} GB a trial, about {self.core_hours:g} core-hours"


@dataclass(frozen=True)
class Study:
    """A set of experiments, each independent of the others."""

    name: str
    paper: str
    title: str
    scales: Mapping[str, Any]
    trials: Callable[[Any], Sequence[Config]]
    trial: Callable[[Config], Sequence[Row]]
    summary: Callable[[Sequence[Row]], Mapping[str, Any]]
    depends: tuple[str, ...] = ()
    hypothesis: str = ""
    ready: Callable[[Any], str] | None = None
    resources: Resources | None = None
    reduced: str = ""
    unprinted: str = ""
    settled: str = ""

    def __post_init__(self) -> None:
        own = "medium" in self.scales and self.scales["medium"] != self.scales.get("small")
        if self.settled and own:
            raise ValueError(f"study {self.name}: it has a medium scale of its own and says that small tells all")
        if not set(REQUIRED) <= set(self.scales) <= set(SCALES):
            raise ValueError(f"study {self.name}: scales must be {', '.join(SCALES)}, got {', '.join(self.scales)}")
        if not self.settled and ("medium" in self.scales) != (self.resources is not None):
            raise ValueError(f"study {self.name}: a medium scale and the resources it takes are declared together")
        kinds = {type(p) for p in self.scales.values()}
        if len(kinds) != 1 or not is_dataclass(next(iter(kinds))):
            raise ValueError(f"study {self.name}: its scales must be instances of one dataclass of parameters")
        if self.settled:
            object.__setattr__(self, "scales", {**self.scales, "medium": self.scales["small"]})

    def configs(self, scale: str) -> list[Config]:
        """The configurations at ``scale`` as they are stored: plain values that survive JSON unchanged."""
        if scale not in self.scales:
            return []
        configs = [config_of(c, self.name) for c in self.trials(self.scales[scale])]
        texts = [canonical(c) for c in configs]
        twice = {t for t in texts if texts.count(t) > 1} if len(set(texts)) < len(texts) else set()
        if twice:
            raise ValueError(
                f"study {self.name}: two trials have the configuration {twice.pop()}; tell them apart by a seed"
            )
        return configs

    def obstacle(self, scale: str) -> str:
        """Why the study cannot run at ``scale`` here; empty when it can."""
        if scale not in self.scales:
            return f"{self.name} has no scale {scale}; it has {', '.join(self.scales)}"
        return self.ready(self.scales[scale]) if self.ready is not None else ""


def config_of(config: Mapping[str, Any], study: str) -> Config:
    try:
        return json.loads(canonical(plain(config)))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"study {study}: a configuration must hold plain finite values, got {config} ({error})"
        ) from None


def canonical(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)


def trial_key(study: str, config: Config, code: str) -> str:
    """What makes a trial the same trial: study, configuration, and the code it depends on."""
    return hashlib.sha256(f"{study}\n{canonical(config)}\n{code}".encode()).hexdigest()[:32]


def trial_name(config: Config) -> str:
    """A configuration in a few words.

    >>> trial_name({"depth": 3, "seed": 0})
    'depth=3 seed=0'
    """
    return " ".join(f"{k}={v}" for k, v in config.items()) or "the only trial"
