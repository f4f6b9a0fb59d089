"""The numbers that the paper prints (Tables 2 to 9 and N.1 to N.8), and those of its released files for Fig. 2.

A cell names the rows it is about, the quantity, the distance where there is one, and the printed value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ACTS = ("relu", "leaky_relu:0.01", "softplus", "silu", "gelu")
NECKS = (4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Cell:
    """One printed number and the rows that are to show it."""

    key: str
    value: float
    where: Mapping[str, Any] = field(default_factory=dict, hash=False)
    at: int | None = None  # entry of a list by distance

    @property
    def name(self) -> str:
        """
        >>> Cell("rho", 2.59, {"net": "plain", "depth": 8}).name
        'rho plain 8'
        """
        return " ".join([self.key, *(str(v) for v in self.where.values()), *([f"d={self.at}"] if self.at else [])])


def cells(key: str, name: str, by: Mapping[Any, float], **where: Any) -> tuple[Cell, ...]:
    """One cell for each value of one column."""
    return tuple(Cell(key, v, {**where, name: k}) for k, v in by.items())


def curve(key: str, values: Iterable[float], **where: Any) -> tuple[Cell, ...]:
    """One cell for each distance, from 0 on."""
    return tuple(Cell(key, v, where, d) for d, v in enumerate(values))


# without norm (Table 5) and with layer norm (Table 4): global gap at the start and after 20 epochs, and its deviation
BARE = {"softplus": 0.122, "silu": 0.225, "gelu": 0.358}
BARE_SPREAD = {"softplus": 0.020, "silu": 0.005, "gelu": 0.008}
BARE_FINAL = {"softplus": 0.111, "silu": 0.217, "gelu": 0.345}
NORMED = dict(zip(ACTS, (0.618, 0.626, 0.459, 1.967, 2.296)))
NORMED_SPREAD = dict(zip(ACTS, (0.160, 0.161, 0.098, 0.317, 0.415)))
NORMED_FINAL = dict(zip(ACTS, (0.199, 0.212, 0.272, 0.359, 0.516)))
SILU_SUMS = {0: 1.17e-1, 2: 9.59e-3, 4: 7.88e-4, 5: 2.08e-4}  # Table N.5, ‖GN‖ by distance

# cat+silu between the ends of the branches (Tables 6 and N.4), by length
MERGE = {1: 1.35, 2: 1.33, 3: 1.32}
MERGE_FINAL = {1: 0.078, 2: 0.082, 3: 0.090}
MERGE_TENSOR = {1: 3.3e-2, 2: 2.5e-2, 3: 2.1e-2}

# released values behind Fig. 2: rate of the fall of resonance a layer, coupling across the whole net
RATES = {("plain", 8): 0.108, ("plain", 12): 0.118, ("spectral", 8): 0.768, ("spectral", 12): 0.827}
RATES_FINAL = {("plain", 8): 0.175, ("plain", 12): 0.092, ("residual", 8): 0.040, ("residual", 12): 0.027}
COUPLING = 0.239  # of the plain net of 12 layers, "1 → 0.24"
COUPLING_FINAL = {("plain", 8): 0.695, ("plain", 12): 0.658, ("residual", 8): 0.929, ("residual", 12): 0.926}

# Table 2: largest block norm by net and depth at the start, halfway and at the end
RHO = {
    ("plain", 8): (2.59, 2.50, 2.78),
    ("plain", 10): (2.69, 2.47, 2.59),
    ("plain", 12): (2.69, 2.48, 2.55),
    ("residual", 8): (1.25, 1.31, 1.33),
    ("residual", 10): (1.22, 1.27, 1.29),
    ("residual", 12): (1.20, 1.23, 1.25),
}
SPECTRAL_RHO = {8: (0.91, 1.00), 12: (0.91, 0.89), 16: (0.91, 0.90)}  # Table N.2, first and final
# Table N.3, width 128: resonance at distance 0 and across, coupling across, before and after training
DEEP = {
    ("plain", 16, "init"): (0.072, 0.021, 0.263),
    ("plain", 16, "final"): (4.852, 0.80, 0.624),
    ("residual", 16, "init"): (0.121, 0.12, 0.983),
    ("residual", 16, "final"): (2.156, 1.44, 0.887),
    ("plain", 32, "init"): (0.067, 0.011, 0.145),
    ("plain", 32, "final"): (1.750, 0.52, 0.403),
    ("residual", 32, "init"): (0.120, 0.12, 0.986),
    ("residual", 32, "final"): (2.176, 1.48, 0.915),
}

# Tables 3 (L = 6) and N.1 (L = 8): stable rank and coupling of far pairs by neck, before and after training
NECK_RANK = {
    (6, "init"): (1.65, 2.58, 4.04, 5.67, 6.95, 9.16, 10.73, 11.17),
    (6, "final"): (2.03, 3.39, 4.90, 5.01, 5.15, 5.45, 5.18, 5.18),
    (8, "init"): (1.58, 2.43, 4.27, 6.36, 6.40, 7.90, 8.60, 9.21),
    (8, "final"): (2.44, 3.92, 5.01, 5.13, 5.41, 4.89, 5.73, 4.89),
}
NECK_COUPLING = {
    (6, "init"): (0.21, 0.35, 0.43, 0.52, 0.61, 0.66, 0.73, 0.77),
    (6, "final"): (0.37, 0.58, 0.68, 0.73, 0.77, 0.84, 0.86, 0.88),
    (8, "init"): (0.20, 0.34, 0.43, 0.51, 0.58, 0.65, 0.69, 0.70),
    (8, "final"): (0.33, 0.45, 0.56, 0.62, 0.68, 0.76, 0.79, 0.81),
}

# the four towers by (activation, shortcut): Table 9 at the start, N.7 halfway, and gaps of N.8 and 8
TOWER_RESONANCE = {
    ("relu", True, "init"): (4.5e-2, 3.5e-2, 3.3e-2, 3.6e-2, 4.8e-2),
    ("relu", False, "init"): (2.1e-2, 3.5e-4, 6.0e-5, 2.9e-5, 3.3e-5),
    ("silu", True, "init"): (3.0e-2, 1.0e-2, 4.2e-3, 2.1e-3, 1.2e-3),
    ("silu", False, "init"): (2.1e-2, 1.1e-4, 6.9e-6, 1.2e-6, 4.4e-7),
    ("relu", True, "mid"): (1.05, 0.87, 0.78, 0.72, 0.39),
    ("relu", False, "mid"): (3.81, 2.16, 1.80, 1.73, 0.41),
    ("silu", True, "mid"): (2.60, 1.68, 1.27, 1.64, 0.49),
    ("silu", False, "mid"): (3.89, 2.30, 1.61, 1.87, 0.45),
}
TOWER_COUPLING = {
    ("relu", True, "init"): (1, 0.95, 0.92, 0.89, 0.82),
    ("relu", False, "init"): (1, 0.93, 0.83, 0.71, 0.58),
    ("silu", True, "init"): (1, 0.56, 0.31, 0.17, 0.08),
    ("silu", False, "init"): (1, 0.24, 0.06, 0.01),
    ("relu", True, "mid"): (1, 0.93, 0.85, 0.79, 0.73),
    ("relu", False, "mid"): (1, 0.90, 0.81, 0.71, 0.66),
    ("silu", True, "mid"): (1, 0.90, 0.83, 0.74, 0.61),
    ("silu", False, "mid"): (1, 0.87, 0.79, 0.72, 0.60),
}
TOWER_RANK = {
    ("relu", True, "mid"): (2.87, 2.73, 2.65, 2.85, 2.91),
    ("relu", False, "mid"): (2.52, 2.40, 2.29, 2.47, 3.06),
    ("silu", True, "mid"): (3.47, 3.33, 3.30, 3.30, 2.95),
    ("silu", False, "mid"): (2.79, 2.64, 2.29, 2.46, 2.51),
}
TOWER_GAP = {
    ("silu", True, "init"): (0.426, 0.526, 0.619, 0.642),
    ("silu", False, "init"): (0.003, 0.028, 0.080, 0.132),
    ("silu", True, "mid"): (0.274, 0.144, 0.137, 0.136),
    ("silu", False, "mid"): (0.122, 0.062, 0.041, 0.056),
    ("silu", True, "final"): (0.426, 0.241, 0.220, 0.150),
    ("silu", False, "final"): (0.213, 0.118, 0.058, 0.054),
}
