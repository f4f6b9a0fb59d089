"""Verdicts on the printed tables cell by cell, trained networks too: Tables 2 to 6, 8, 9 and N.1 to N.8.

What was measured stands beside what is printed. At small scale the data are others (noise and digits instead of CIFAR),
so that a distance is *not reproduced at this scale* and refutes nothing. Table 7 is with the other claims on attention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from netvitals_lab import Claim, Claims, Config, Measured, Plot, Row, Series, Verdict, at_most, not_judged
from netvitals_lab.engine.declaring import Measurement
from netvitals_lab.engine.judges import matches, some
from netvitals_lab.papers.dag_hessian import _printed as p
from netvitals_lab.papers.dag_hessian import bottleneck, diamond, distance, gap, resnet
from netvitals_lab.papers.dag_hessian._measuring import mean

FEW = 0.25  # relative distance that a mean of five networks may have


def beside(rows: Sequence[Row], cells: Sequence[p.Cell]) -> Measured | Verdict:
    """How far the printed cells that were measured lie from what was measured."""
    found = [(cell, value) for cell in cells if (value := measured(cell, rows)) is not None]
    if not found:
        return not_judged("no row shows a quantity of this table")
    return Measured(
        max(abs(value / cell.value - 1) for cell, value in found),
        f"largest relative distance of {len(found)} of {len(cells)} cells; facts are measured, printed",
        facts={cell.name: [value, cell.value] for cell, value in found},
    )


def measured(cell: p.Cell, rows: Sequence[Row]) -> float | None:
    """The mean over the rows that a cell is about, None where there is none."""
    here = matches(**cell.where)
    of = [r for r in rows if here(r) and r.get(cell.key) is not None]
    of = [r for r in of if cell.at is None or (len(r[cell.key]) > cell.at and r[cell.key][cell.at] is not None)]
    return mean(of, cell.key, cell.at) if of else None


def deviations(
    rows: Sequence[Row], key: str, by: Mapping[str, float], spread: Mapping[str, float], **where: object
) -> Measured:
    """How far the means lie from the table's, in units of two printed deviations."""
    found = {a: mean(some(rows, act=a, **where), key) for a in by}
    apart = {a: abs(found[a] - by[a]) / (2 * spread[a]) for a in by}
    facts = {f"{a}: measured, printed": [found[a], by[a]] for a in by}
    return Measured(max(apart.values()), "largest distance, in units of two printed deviations", facts=facts)


def beside_plot(cells: Sequence[p.Cell]) -> Callable[[Sequence[Row]], Plot]:
    """Measured against printed: on the dashed line both agree."""

    def plot(rows: Sequence[Row]) -> Plot:
        found = [(cell.value, value) for cell in cells if (value := measured(cell, rows)) is not None and value > 0]
        ends = [min(min(f) for f in found), max(max(f) for f in found)] if found else [1.0, 1.0]
        points = Series("cells", [f[0] for f in found], [f[1] for f in found])
        return Plot("printed", "measured", [points, Series("equal", ends, ends, line=True, dashed=True)], True, True)

    return plot


def trained(c: Config) -> bool:
    return c["epochs"] > 0


RHO_TRAINED = tuple(
    p.Cell("rho", v, {"net": n, "depth": d, "phase": phase})
    for (n, d), by in p.RHO.items()
    for phase, v in zip(("mid", "final"), by[1:])
)
DECAY_FINAL = tuple(
    cell
    for (n, d), rate in p.RATES_FINAL.items()
    for cell in (
        p.Cell("rate", rate, {"net": n, "depth": d, "phase": "final"}),
        p.Cell("coupling", p.COUPLING_FINAL[n, d], {"net": n, "depth": d, "phase": "final"}, d - 1),
    )
)
SPECTRAL = tuple(
    p.Cell("rho", v[1], {"net": "spectral", "depth": d, "phase": "final"}) for d, v in p.SPECTRAL_RHO.items()
)
DEEP = tuple(
    cell
    for (n, d, phase), (near, far, coupling) in p.DEEP.items()
    for cell in (
        p.Cell("resonance", near, {"net": n, "depth": d, "phase": phase}, 0),
        p.Cell("resonance", far, {"net": n, "depth": d, "phase": phase}, d - 1),
        p.Cell("coupling", coupling, {"net": n, "depth": d, "phase": phase}, d - 1),
    )
)


def necks(depth: int, phase: str) -> tuple[p.Cell, ...]:
    where = {"depth": depth, "phase": phase}
    return tuple(
        p.Cell(key, v, {**where, "neck": n})
        for key, table in (("far_rank", p.NECK_RANK), ("far_coupling", p.NECK_COUPLING))
        for n, v in zip(p.NECKS, table[depth, phase])
    )


def towers(key: str, table: Mapping[tuple[str, bool, str], Sequence[float]], phase: str) -> tuple[p.Cell, ...]:
    return tuple(
        cell
        for (act, shortcut, when), values in table.items()
        if when == phase
        for cell in p.curve(key, values, act=act, shortcut=shortcut, phase=when)
    )


HALFWAY = (
    *towers("resonance", p.TOWER_RESONANCE, "mid"),
    *towers("coupling", p.TOWER_COUPLING, "mid"),
    *towers("stable_rank", p.TOWER_RANK, "mid"),
)
COUPLING = towers("coupling", p.TOWER_COUPLING, "init")
GAPS = {phase: towers("gap_by_distance", p.TOWER_GAP, phase) for phase in ("mid", "final")}
MERGED = {"merge": "cat", "act": "silu", "phase": "final"}
MERGES = p.cells("end_gap", "length", p.MERGE_FINAL, **MERGED) + p.cells(
    "end_tensor", "length", p.MERGE_TENSOR, **MERGED
)
NORMED = p.cells("gap", "act", p.NORMED_FINAL, norm="layer", phase="final")
BARE = p.cells("gap", "act", p.BARE_FINAL, norm="none", phase="final")


def shallow(c: Config) -> bool:
    return trained(c) and c["net"] != "spectral" and c["depth"] < 16


def full(c: Config) -> bool:
    return c["width"] == 64


claim = Claims(
    "dag-hessian",
    study=distance.NAME,
    effect="largest relative distance of a measured mean from its printed cell",
)


def tabled(
    number: str, cells: Sequence[p.Cell], tolerance: float = FEW, **options: Any
) -> Callable[[Measurement], Claim]:
    """The decorator of a claim on printed cells: how near every one of them has to be, and the picture of them."""
    return claim(number, at_most(tolerance, f"every cell within {tolerance:.0%}"), plot=beside_plot(cells), **options)


@tabled("H1.9", RHO_TRAINED, 0.15, uses=shallow)
def norms_trained(rows: Sequence[Row]) -> Measured | Verdict:
    """Largest block norms halfway and at the end of training."""
    return beside(rows, RHO_TRAINED)


@tabled("H1.10", DECAY_FINAL, uses=shallow)
def decay_trained(rows: Sequence[Row]) -> Measured | Verdict:
    """Rates and couplings of trained plain and residual nets."""
    return beside(rows, DECAY_FINAL)


@tabled("H1.11", SPECTRAL, 0.15, uses=lambda c: trained(c) and c["net"] == "spectral")
def spectral_trained(rows: Sequence[Row]) -> Measured | Verdict:
    """Spectral normalisation keeps ρ at 1 or below through training."""
    return beside(rows, SPECTRAL)


@tabled("H1.12", DEEP, uses=lambda c: c["depth"] in (16, 32) and c["net"] != "spectral")
def deep(rows: Sequence[Row]) -> Measured | Verdict:
    """Depths 16 and 32: resonance and coupling before and after training."""
    return beside(rows, DEEP)


for number, depth, phase in (("H2.4", 6, "init"), ("H2.5", 6, "final"), ("H2.6", 8, "init"), ("H2.7", 8, "final")):
    word = "at the start" if phase == "init" else "after training"

    @tabled(
        number,
        necks(depth, phase),
        study=bottleneck.NAME,
        statement=f"Stable rank and coupling across necks of 4 to 512 in nets of {depth} layers, {word}.",
        uses=lambda c, depth=depth, phase=phase: (
            c["depth"] == depth and c["base"] == 512 and (phase == "init" or trained(c))
        ),
    )
    def across_necks(rows: Sequence[Row], depth: int = depth, phase: str = phase) -> Measured | Verdict:
        return beside(rows, necks(depth, phase))


@tabled(
    "H3.11",
    NORMED,
    study=gap.NAME,
    statement=f"Gaps after training with layer norm: {', '.join(f'{v:.3f}' for v in p.NORMED_FINAL.values())}",
    uses=lambda c: trained(c) and c["norm"] == "layer" and c["depth"] == 6,
)
def normed_gaps_trained(rows: Sequence[Row]) -> Measured | Verdict:
    return beside(rows, NORMED)


@tabled(
    "H3.12",
    BARE,
    study=gap.NAME,
    statement=f"Gaps after training without norm: {', '.join(f'{v:.3f}' for v in p.BARE_FINAL.values())}",
    uses=lambda c: trained(c) and c["norm"] == "none" and c["depth"] == 6,
)
def bare_gaps_trained(rows: Sequence[Row]) -> Measured | Verdict:
    return beside(rows, BARE)


@tabled("H4.5", MERGES, study=diamond.NAME, uses=lambda c: trained(c) and c["width"] == 32)
def merges_trained(rows: Sequence[Row]) -> Measured | Verdict:
    """After training the gap of cat+silu is .078, .082, .090 and its tensor part 3.3e-2, 2.5e-2, 2.1e-2."""
    return beside(rows, MERGES)


@tabled("H6.6", COUPLING, 0.35, study=resnet.NAME, uses=full)
def tower_coupling(rows: Sequence[Row]) -> Measured | Verdict:
    """Coupling by distance at the start."""
    return beside(rows, COUPLING)


@tabled("H6.7", HALFWAY, 0.35, study=resnet.NAME, uses=lambda c: full(c) and trained(c))
def towers_halfway(rows: Sequence[Row]) -> Measured | Verdict:
    """Resonance, coupling and stable rank halfway."""
    return beside(rows, HALFWAY)


@tabled("H6.8", GAPS["mid"], 0.5, study=resnet.NAME, uses=lambda c: full(c) and trained(c))
def gaps_halfway(rows: Sequence[Row]) -> Measured | Verdict:
    """Gaps of the silu towers by distance halfway."""
    return beside(rows, GAPS["mid"])


@tabled("H6.9", GAPS["final"], 0.5, study=resnet.NAME, uses=lambda c: full(c) and trained(c))
def gaps_trained(rows: Sequence[Row]) -> Measured | Verdict:
    """Gaps of the silu towers by distance after training."""
    return beside(rows, GAPS["final"])
