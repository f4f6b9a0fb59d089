"""Does the forecast of the watch come true? Networks are watched, asked early, trained to the end, and compared.

What is judged is what a user is told: the findings of the watch, from means, deviations and the activation alone. A
forecast hits if the measured density of its site, at its threshold and on the same batch, ends on the side it named.
Beside it stands the simplest rival: density goes on as it went so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from netvitals import gates
from netvitals.runs import Finding
from netvitals.vitals import Gates
from netvitals.watching.api import watch
from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.data import Dataset
from netvitals_lab.papers.gate_density._training import DEPENDS, FOUR, S, build, condition, load, prepared
from netvitals_lab.papers.gate_density.trajectories import PAPERS_ADAM, TEACHER
from netvitals_lab.training import steps_of, train

THETAS = (0.01, 0.1)
OBSERVATIONS = 60  # measured steps in a whole run


@dataclass(frozen=True)
class Forecasting:
    seeds: int = 5
    epochs: int = 25
    asked: float = 0.2  # share of the training after which the watch is asked
    networks: tuple[tuple[str, str], ...] = (
        ("mlp:64-128x3-10", "digits"),
        ("mlp:64-128x3-10", TEACHER),
        ("resnet-mini,width=8", "digits"),
    )
    activations: tuple[str, ...] = (*FOUR, "softplus:20")
    optimizers: tuple[tuple[str, float], ...] = (("sgd", S), ("adamw", PAPERS_ADAM))


def trials(p: Forecasting) -> list[Config]:
    # the control, where nothing collapses, on the first network only
    cases = [(n, d, o, s) for i, (n, d) in enumerate(p.networks) for o, s in p.optimizers if o == "sgd" or i == 0]
    return [
        condition(network=n, data=d, act=a, optimizer=o, S=s, epochs=p.epochs, asked=p.asked, seed=seed)
        for n, d, o, s in cases
        for a in p.activations
        for seed in range(p.seeds)
    ]


def trial(config: Config) -> list[Row]:
    data = load(config["data"], config["pool"])
    recipe, _ = prepared(config, data)
    net = build(config, data, config["seed"])
    total, _ = steps_of(recipe, data)
    moment = max(1, round(config["asked"] * total))
    before = _densities(net, data)
    facts: list[Finding] = []
    asked: dict[tuple[str, float], float] = {}
    watched = watch(
        net,
        every=max(1, total // OBSERVATIONS),
        probe=(data.probe.x, data.probe.y),
        vitals=[Gates(THETAS), "preactivations"],
    )

    def on_step(now: Any) -> None:
        if now.step == moment:
            facts.extend(f for f in watched.findings() if f.rule == "gate forecast")
            asked.update(_densities(net, data))

    with watched:
        history = train(net, data, replace(recipe, seed=config["seed"]), watch=watched, on_step=on_step)
    if history.stopped:
        return [{"quantity": "diverged", "step": history.steps}]
    after = _densities(net, data)
    spoken = _spoken(facts)
    rows: list[Row] = [{"quantity": "run", "sites": len(after), "spoken": len(spoken), "accuracy": history.accuracy}]
    for (site, theta), value in after.items():
        now, start = asked[site, theta], before[site, theta]
        row: Row = {
            "quantity": "site",
            "site": site,
            "theta": theta,
            "start": start,
            "asked_at": now,
            "end": value,
            "spoke": False,
            "persistence": bool(np.sign(now - start) == np.sign(value - now) != 0),
        }
        forecast = spoken.get(site)
        if forecast is not None and forecast["theta"] == theta:
            row |= {
                **forecast,
                "spoke": True,
                "hit": bool(np.sign(forecast["later"] - forecast["now"]) == np.sign(value - now)),
            }
        rows.append(row)
    return rows


def _densities(net: nn.Module, data: Dataset) -> dict[tuple[str, float], float]:
    report = gates.measure(net, data.probe.x, thetas=THETAS, mode="train")
    return {(name, t): site.density(t) for name, site in report.sites.items() for t in THETAS}


def _spoken(findings: Sequence[Finding]) -> dict[str, Row]:
    """What was forecast, site by site, out of the evidence of the findings."""
    out: dict[str, Row] = {}
    for finding in findings:
        for e in finding.evidence:
            row = out.setdefault(e.site, {})
            if e.metric.startswith("density@"):
                row |= {"theta": float(e.metric.split(" ")[0].split("@")[1]), "now": e.before, "later": e.value}
            elif e.metric.startswith("median margin"):
                row["margin"] = e.value
            elif e.metric.startswith("confidence"):
                row["confidence"] = e.value
    return out


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    sites = [r for r in rows if r["quantity"] == "site"]
    for network, data, optimizer, act in dict.fromkeys(
        (r["network"], r["data"], r["optimizer"], r["act"]) for r in sites
    ):
        mine = [
            r for r in sites if (r["network"], r["data"], r["optimizer"], r["act"]) == (network, data, optimizer, act)
        ]
        spoken = [r for r in mine if r["spoke"]]
        facts[f"{network}, {data.split(',')[0]}, {optimizer}, {act}"] = (
            f"{sum(r['hit'] for r in spoken)} of {len(spoken)} forecasts came true, {len(mine) // 2} sites"
            + (f"; going on as before: {sum(r['persistence'] for r in spoken)}" if spoken else "")
        )
    return facts


STUDIES = (
    Study(
        name="gate-density-forecast",
        paper="gate-density",
        title="The watch's forecast of gate density, asked after a fifth of the training, and what came",
        scales={
            "smoke": Forecasting(
                seeds=1,
                epochs=10,
                networks=(("mlp:64-48x2-10", "digits"),),
                activations=("relu", "gelu"),
                optimizers=(("sgd", S),),
                asked=0.3,
            ),
            "small": Forecasting(),
            "medium": Forecasting(seeds=10, epochs=50),
            "paper": Forecasting(networks=(("resnet18", "cifar10"),)),
        },
        trials=trials,
        resources=Resources(cpus=1, memory_gb=2, core_hours=8),
        trial=trial,
        summary=summary,
        depends=(*DEPENDS, "netvitals.findings.gates", "netvitals.gates.forecasting"),
        hypothesis="More than three quarters of the forecasts come true, and under AdamW at the paper's decay, where "
        "variance does not collapse, the watch keeps silent.",
    ),
)
