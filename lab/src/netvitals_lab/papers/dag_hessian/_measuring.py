"""What the experiments share: the batch a Hessian is taken on, training with looks at three moments, small tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals import curvature
from netvitals_lab import Config, Plot, Row, Series, data, models
from netvitals_lab.data import Dataset
from netvitals_lab.engine.judges import groups
from netvitals_lab.training import recipe_named, train

SEEDS = (42, 43, 44, 45, 46)  # the paper's
Measurement = Callable[[nn.Module, tuple[Tensor, Tensor], str], Row]


def dataset(name: str, *, classes: int = 10, side: int = 32, seed: int = 0) -> Dataset:
    """Images by name. ``noise`` is smooth noise of three channels in [−1, 1]: what an untrained net needs of images."""
    if name == "noise":
        return data.load("noise", side=side, channels=3, classes=classes, smooth=True, count=64, test=64, seed=seed)
    return data.load(name, scaling="range")


def obstacle(names: Iterable[str]) -> str:
    """Why data cannot be had here, or nothing."""
    for name in names:
        if name in ("noise", "digits"):
            continue
        try:
            dataset(name)
        except (FileNotFoundError, ValueError) as error:
            return f"needs {name}: {error}"
    return ""


def moments(
    config: Config,
    spec: str,
    loaded: Dataset,
    measured: Measurement,
    *,
    samples: int,
    recipe: str = "dag-hessian",
    loss: str = "ce",
    **options: Any,
) -> list[Row]:
    """Rows of ``observe`` at the start and, if ``config['epochs']`` is not 0, halfway and at the end of training.

    The Hessian is taken on the first test examples, in eval mode.
    """
    net = models.build(spec, seed=config["seed"], data=loaded, **options)
    batch = (loaded.test.x[:samples], loaded.test.y[:samples])
    epochs = config["epochs"]
    rows: list[Row] = []

    def see(phase: str) -> None:
        net.eval()
        rows.append(
            {
                "phase": phase,
                "accuracy": accuracy(net, loaded),
                "loss": loss_of(net, loaded, loss),
                **measured(net, batch, phase),
            }
        )
        net.train()

    see("init")
    if epochs:
        half = max(1, epochs // 2)

        def hook(moment: Any) -> None:
            if moment.epoch + 1 == half and epochs > 1:
                see("mid")

        train(net, loaded, recipe_named(recipe, epochs=epochs, seed=config["seed"], evaluate_on=0), callback=hook)
        see("final")
    return rows


def accuracy(net: nn.Module, loaded: Dataset) -> float | None:
    if loaded.task != "classes":
        return None
    with torch.no_grad():
        return float((net(loaded.test.x[:1000]).argmax(1) == loaded.test.y[:1000]).float().mean())


def loss_of(net: nn.Module, loaded: Dataset, loss: str) -> float:
    with torch.no_grad():
        out = net(loaded.test.x[:1000])
        found = F.cross_entropy(out, loaded.test.y[:1000]) if loss == "ce" else F.mse_loss(out, loaded.test.y[:1000])
    return float(found)


def numbers(found: curvature.InterlayerCurvature) -> dict[str, Any]:
    """Curves over distance and the global gap, as plain lists."""
    d = curvature.decay(found)
    listed = lambda x: [None if not np.isfinite(v) else float(v) for v in x]
    return {
        "distance": listed(d.distance),
        "resonance": listed(d.resonance),
        "coupling": listed(d.coupling),
        "stable_rank": listed(d.stable_rank),
        "gn_sums": listed(d.gauss_newton),
        "t_sums": listed(d.tensor),
        "gap_by_distance": listed(d.gap),
        "rate": _finite(d.rate),
        "r2": _finite(d.r2),
        "gap": found.global_gap,
    }


def _finite(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None


def block_nodes(net: nn.Module) -> list[str]:
    """The measured nodes of an MLP: every block but the one that meets the input."""
    return [f"blocks.{i}" for i in range(1, len(net.blocks))]  # type: ignore[arg-type]


def mean(rows: Sequence[Row], key: str, at: int | None = None) -> float:
    """Mean over rows of a number, or of entry ``at`` of a list."""
    return float(np.mean([r[key] if at is None else r[key][at] for r in rows]))


def spread(rows: Sequence[Row], key: str, at: int | None = None) -> float | None:
    """Standard error of that mean; None from a single row."""
    values = [r[key] if at is None else r[key][at] for r in rows]
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else None


def table(rows: Sequence[Row], keys: Sequence[str], value: str) -> Mapping[str, float]:
    """Means of ``value`` by the values of ``keys``, for a summary."""
    groups: dict[str, list[float]] = {}
    for r in rows:
        if r.get(value) is not None:
            groups.setdefault(" ".join(str(r[k]) for k in keys), []).append(float(r[value]))
    return {k: float(np.mean(v)) for k, v in groups.items()}


def by_distance(key: str, nets: Sequence[str]) -> Callable[[Sequence[Row]], Plot]:
    """Means over seeds with their deviation at each distance, a line for each depth; dashed after training."""

    def plot(rows: Sequence[Row]) -> Plot:
        series = []
        for phase in ("init", "final"):
            here = [r for r in rows if r["phase"] == phase and r["net"] in nets]
            here = [r for r in here if phase == "final" or r["data"] == "noise"]
            for (net, depth), mine in sorted(groups(here, "net", "depth").items()) if here else ():
                table = np.array([r[key] for r in mine], float)
                series.append(
                    Series(
                        name=f"{net} L={depth}" + (" trained" if phase == "final" else ""),
                        x=list(range(table.shape[1])),
                        y=table.mean(0).tolist(),
                        error=table.std(0).tolist(),
                        line=True,
                        dashed=phase == "final",
                    )
                )
        return Plot("distance", key, series, log_y=key == "resonance")

    return plot
