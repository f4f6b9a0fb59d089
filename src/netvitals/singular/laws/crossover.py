r"""How near is near enough? A dead axis turned by a small angle s keeps the ladder down to $t_\times \sim s^{1/K}$.

Canonical alignment has measure zero; with nonlinear activations a rotation adds a floor $(\gamma s c)^2$ to
$b\,t^{2K}$, K = L − ℓ, so the slope is 2K above $t_\times = ((\gamma s c)^2/b)^{1/2K}$ and 0 below (dead-directions
Corollary 120, a model; no theorem). The crossover is read where the local slope is K.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from netvitals.capture import Result
from netvitals.singular.networks.architecture import Chain
from netvitals.singular.networks.ladders import freeze_probe
from netvitals.singular.orders.rates import RateFit, rate_fit

ANGLES = tuple(np.geomspace(1e-3, 1e-1, 5).tolist())


@dataclass(frozen=True)
class Crossover(Result):
    """Where the canonical slope ends, against the angle."""

    layer: str
    rungs: int  # K = L − ℓ
    predicted: float  # 1/K
    fit: RateFit  # of t_× against the angle
    angles: tuple[float, ...]
    crossings: tuple[float, ...]  # NaN where the grid did not reach it

    def __str__(self) -> str:
        return f"{self.layer}: t_× ~ s^{self.fit.slope:.3f} ± {self.fit.stderr:.3f}, predicted s^{self.predicted:.3f}"


def rotation_crossover(
    chain: Chain,
    angles: Sequence[float] = ANGLES,
    *,
    ts: Sequence[float] | None = None,
    examples: int = 2000,
    seed: int = 0,
) -> tuple[Crossover, ...]:
    """Crossovers of every layer below the last, by a freeze probe at each angle."""
    grid = np.geomspace(1e-4, 0.7, 36) if ts is None else np.asarray(ts, float)
    if len(angles) < 3 or min(angles) <= 0:
        raise ValueError(f"this fit needs at least three positive angles, got {tuple(angles)}")
    found: list[list[float]] = []
    for angle in angles:
        values = freeze_probe(replace(chain, rotation=float(angle)), grid.tolist(), examples=examples, seed=seed).values
        found.append([_crossing(grid, values[f"layer{i + 1}"], chain.depth - 1 - i) for i in range(chain.depth - 1)])
    out = []
    for i in range(chain.depth - 1):
        crossings = [row[i] for row in found]
        known = [(s, t) for s, t in zip(angles, crossings) if math.isfinite(t)]
        fit = rate_fit([s for s, _ in known], [t for _, t in known], floor=0.0)
        rungs = chain.depth - 1 - i
        out.append(
            Crossover(
                layer=f"layer{i + 1}",
                rungs=rungs,
                predicted=1 / rungs,
                fit=fit,
                angles=tuple(map(float, angles)),
                crossings=tuple(crossings),
            )
        )
    return tuple(out)


def _crossing(ts: np.ndarray, values: np.ndarray, level: float) -> float:
    """Largest t at which the local slope falls through ``level``, between grid points in log t."""
    x, y = np.log(ts), np.log(values)
    local, middle = np.diff(y) / np.diff(x), (x[1:] + x[:-1]) / 2
    below = np.flatnonzero((local[:-1] < level) & (local[1:] >= level))
    if not below.size:
        return math.nan
    i = int(below[0])
    return float(np.exp(middle[i] + (level - local[i]) / (local[i + 1] - local[i]) * (middle[i + 1] - middle[i])))
