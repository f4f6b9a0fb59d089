"""E1: does gradient descent on the full network follow the scalar chain?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from netvitals import saddle
from netvitals.saddle.students.network import ansatz_stack, loss_beside, normalized_rates, project
from netvitals_lab import Claims, Config, Measured, Plot, Resources, Row, Series, Study

INPUTS = 8192  # that show the loss of the full network beside the one of its projection


@dataclass(frozen=True)
class ReductionParameters:
    """Network, start, and how gradient descent is run. The learning rate of the paper's figure is not printed."""

    x0: tuple[float, ...]
    width: int
    inputs: int
    lr: float
    batch: int
    steps: int
    snapshots: int = 25


SCALES = {
    "smoke": ReductionParameters(x0=(0.2, 0.25, 0.3), width=16, inputs=4, lr=0.2, batch=1024, steps=900, snapshots=8),
    "small": ReductionParameters(x0=(0.03, 0.05, 0.07, 0.09), width=64, inputs=16, lr=0.1, batch=1024, steps=23_040),
    "medium": ReductionParameters(x0=(0.03, 0.05, 0.07, 0.09), width=64, inputs=16, lr=0.05, batch=8192, steps=46_080),
    "paper": ReductionParameters(
        x0=(0.03, 0.05, 0.07, 0.09), width=64, inputs=16, lr=0.02, batch=32_768, steps=120_000
    ),
}


def trials(p: ReductionParameters) -> list[Config]:
    return [
        {
            "x0": list(p.x0),
            "width": p.width,
            "inputs": p.inputs,
            "lr": p.lr,
            "batch": p.batch,
            "steps": p.steps,
            "snapshots": p.snapshots,
            "seed": 0,
        }
    ]


def trial(config: Config) -> list[Row]:
    """One row per snapshot: scales of the network and of the ODE, losses, residuals off the manifold."""
    task = saddle.teacher("tanh", config["inputs"])
    v = task.directions[0]
    x0 = torch.tensor(config["x0"], dtype=torch.float64)
    width, depth = config["width"], len(config["x0"])
    start = [w.float() for w in ansatz_stack(x0, width, v)]
    run = saddle.descend(
        start,
        task,
        lr=config["lr"],
        steps=config["steps"],
        batch=config["batch"],
        seed=config["seed"],
        rates=normalized_rates(depth, width),
        thresholds=(),
        snapshots=config["snapshots"],
    )
    ode = saddle.reduced_flow(x0, "tanh", width, t_max=1.0)
    times = [config["lr"] * step / width for step, _ in run.snapshots]
    states = np.vstack([x0.numpy()[None], ode.at(times[1:])])
    rows = []
    x, y = task.batch(INPUTS, torch.Generator().manual_seed(1), dtype=torch.float64)
    for t, state, (step, snapshot) in zip(times, states, run.snapshots):
        weights = [w.double() for w in snapshot]
        scales, residual = project(weights, v)
        known = float(ode.chain.loss(scales[0]))
        rows.append(
            {
                "step": step,
                "t": t,
                "network": scales[0].tolist(),
                "chain": state.tolist(),
                "deviation": float(np.abs(scales[0].numpy() - state).max()),
                "residual": residual[0].tolist(),
                "chain loss": float(ode.chain.loss(torch.from_numpy(state))),
                "network loss": loss_beside(weights, ansatz_stack(scales[0], width, v), known, x, y, task.f),
                "projected loss": known,
            }
        )
    return rows


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "largest deviation of the scales": max(r["deviation"] for r in rows),
        "snapshots": len(rows),
        "residual off the manifold, first layer": max(r["residual"][0] for r in rows),
        "loss at the end": rows[-1]["chain loss"],
        "largest loss of the full network off the chain's": max(
            abs(r["network loss"] / r["chain loss"] - 1) for r in rows
        ),
    }


def _plot(rows: Sequence[Row]) -> Plot:
    depth = len(rows[0]["chain"])
    t = [r["t"] for r in rows]
    series = [Series(f"X{i + 1}, chain", t, [r["chain"][i] for r in rows], line=True) for i in range(depth)]
    series += [Series(f"X{i + 1}, network", t, [r["network"][i] for r in rows]) for i in range(depth)]
    # panel (a) of the figure: the losses, on an axis of their own
    series.append(Series("loss, chain", t, [r["chain loss"] for r in rows], line=True, dashed=True, right=True))
    series.append(Series("loss, full network", t, [r["network loss"] for r in rows], right=True))
    return Plot("reduced time t", "layer scale", series, right_label="loss")


STUDIES = (
    Study(
        name="saddle-reduction",
        paper="saddle-escape",
        title="Does the full network follow the scalar chain? (E1)",
        scales=SCALES,
        trials=trials,
        resources=Resources(cpus=1, memory_gb=3, core_hours=1),
        trial=trial,
        summary=summary,
    ),
)


claim = Claims("saddle-escape", study="saddle-reduction")


@claim("C10", "largest deviation at most 2e-3", plot=_plot)
def same_trajectories(rows: Sequence[Row]) -> Measured:
    """On the symmetric manifold the full network equals an ODE in L scalars: the trajectories agree through escape (T4,
    E1)"""
    worst = max(r["deviation"] for r in rows)
    escaped = rows[-1]["chain loss"] < 0.25 * rows[0]["chain loss"]
    return Measured(
        worst,
        note=f"largest |X − X_ODE| over {len(rows)} snapshots, loss "
        f"{rows[0]['chain loss']:.4f} to {rows[-1]['chain loss']:.4f}, batch {rows[0]['batch']}",
        ok=worst <= 2e-3 and escaped,
    )
