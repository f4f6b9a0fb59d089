"""The numbers that the paper prints (Tables 2 to 9 and N.1 to N.8), and those of its released files for Fig. 2.

They stand in ``printed.csv``. A cell names the rows it is about, the quantity, the distance where there is one, and the
printed value.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
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


def _key(text: str) -> Any:
    """
    >>> _key("relu True init"), _key("8")
    (('relu', True, 'init'), 8)
    """
    parts = [{"True": True, "False": False}.get(t, int(t) if t.isdigit() else t) for t in text.split()]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _read() -> dict[str, dict[Any, Any]]:
    """Quantity → what it is of → the printed number, or the numbers of a row."""
    tables: dict[str, dict[Any, Any]] = {}
    with Path(__file__).with_name("printed.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            values = tuple(map(float, row["values"].split()))
            of = _key(row["of"]) if row["of"] else ""
            tables.setdefault(row["quantity"], {})[of] = values[0] if len(values) == 1 else values
    return tables


_TABLES = _read()
# global gap by activation without norm and with layer norm: at the start, its deviation, after 20 epochs
BARE, BARE_SPREAD, BARE_FINAL = (_TABLES[n] for n in ("BARE", "BARE_SPREAD", "BARE_FINAL"))
NORMED, NORMED_SPREAD, NORMED_FINAL = (_TABLES[n] for n in ("NORMED", "NORMED_SPREAD", "NORMED_FINAL"))
SILU_SUMS = _TABLES["SILU_SUMS"]  # ‖GN‖ by distance
# cat+silu between the ends of the branches, by length: gap at the start, after training, and tensor part
MERGE, MERGE_FINAL, MERGE_TENSOR = (_TABLES[n] for n in ("MERGE", "MERGE_FINAL", "MERGE_TENSOR"))
RATES, RATES_FINAL = _TABLES["RATES"], _TABLES["RATES_FINAL"]  # fall of resonance a layer, by net and depth
COUPLING: float = _TABLES["COUPLING"][""]  # of the plain net of 12 layers, "1 → 0.24"
COUPLING_FINAL = _TABLES["COUPLING_FINAL"]
RHO = _TABLES["RHO"]  # largest block norm by net and depth at the start, halfway and at the end
SPECTRAL_RHO = _TABLES["SPECTRAL_RHO"]  # the same with spectral normalisation, first and final
DEEP = _TABLES["DEEP"]  # width 128: resonance at distance 0 and across, coupling across
NECK_RANK, NECK_COUPLING = _TABLES["NECK_RANK"], _TABLES["NECK_COUPLING"]  # of far pairs, by depth and phase
# the four towers by activation, shortcut and phase, a row over distances
TOWER_RESONANCE, TOWER_COUPLING = _TABLES["TOWER_RESONANCE"], _TABLES["TOWER_COUPLING"]
TOWER_RANK, TOWER_GAP = _TABLES["TOWER_RANK"], _TABLES["TOWER_GAP"]
