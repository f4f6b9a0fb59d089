"""Verdicts on the printed tables cell by cell, trained networks too: Tables 2 to 6, 8, 9 and N.1 to N.8.

What was measured stands beside what is printed. At small scale the data are others (noise and digits instead of CIFAR),
so that a distance is *not reproduced at this scale* and refutes nothing. Table 7 is with the other claims on attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from netvitals_lab import Claim, Config, Expected, Plot, Row, Series, Verdict, decide, not_judged
from netvitals_lab.engine.judges import matches, some
from netvitals_lab.papers.dag_hessian import _printed as p
from netvitals_lab.papers.dag_hessian import bottleneck, diamond, distance, gap, resnet
from netvitals_lab.papers.dag_hessian._measuring import mean

FEW = 0.25  # relative distance that a mean of five networks may have
Judge = Callable[[Sequence[Row]], Verdict]


def beside(cells: Sequence[p.Cell], tolerance: float = FEW) -> Judge:
    """A judge: every printed cell that was measured lies within ``tolerance`` of what was measured."""

    def judge(rows: Sequence[Row]) -> Verdict:
        found = [(cell, value) for cell in cells if (value := measured(cell, rows)) is not None]
        if not found:
            return not_judged("no row shows a quantity of this table")
        worst = max(abs(value / cell.value - 1) for cell, value in found)
        return decide(
            worst <= tolerance,
            worst,
            note=f"largest relative distance of {len(found)} of {len(cells)} cells; facts are measured, printed",
            facts={cell.name: [value, cell.value] for cell, value in found},
        )

    return judge


def measured(cell: p.Cell, rows: Sequence[Row]) -> float | None:
    """The mean over the rows that a cell is about, None where there is none."""
    here = matches(**cell.where)
    of = [r for r in rows if here(r) and r.get(cell.key) is not None]
    of = [r for r in of if cell.at is None or (len(r[cell.key]) > cell.at and r[cell.key][cell.at] is not None)]
    return mean(of, cell.key, cell.at) if of else None


def deviations(key: str, by: dict[str, float], spread: dict[str, float], **where: object) -> Judge:
    """A judge: within two of the table's printed deviations."""

    def judge(rows: Sequence[Row]) -> Verdict:
        found = {a: mean(some(rows, act=a, **where), key) for a in by}
        apart = {a: abs(found[a] - by[a]) / (2 * spread[a]) for a in by}
        facts = {f"{a}: measured, printed": [found[a], by[a]] for a in by}
        note = "largest distance, in units of two printed deviations"
        return decide(max(apart.values()) <= 1, max(apart.values()), note=note, facts=facts)

    return judge


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


def _claim(
    id: str,
    study: str,
    statement: str,
    cells: Sequence[p.Cell],
    uses: Callable[[Config], bool],
    tolerance: float = FEW,
) -> Claim:
    return Claim(
        id=f"dag-hessian/{id}",
        study=study,
        statement=statement,
        expected=Expected(direction=f"every cell within {tolerance:.0%}"),
        judge=beside(cells, tolerance),
        uses=uses,
        plot=beside_plot(cells),
        effect="largest relative distance of a measured mean from its printed cell",
    )


def _claims() -> Iterator[Claim]:
    d = distance.NAME
    shallow = lambda c: trained(c) and c["net"] != "spectral" and c["depth"] < 16
    yield _claim("H1.9", d, "Largest block norms halfway and at the end of training.", RHO_TRAINED, shallow, 0.15)
    yield _claim(
        "H1.10",
        d,
        "Rates and couplings of trained plain and residual nets.",
        DECAY_FINAL,
        shallow,
    )
    yield _claim(
        "H1.11",
        d,
        "Spectral normalisation keeps ρ at 1 or below through training.",
        SPECTRAL,
        lambda c: trained(c) and c["net"] == "spectral",
        0.15,
    )
    yield _claim(
        "H1.12",
        d,
        "Depths 16 and 32: resonance and coupling before and after training.",
        DEEP,
        lambda c: c["depth"] in (16, 32) and c["net"] != "spectral",
    )
    for depth in (6, 8):
        for phase, word in (("init", "at the start"), ("final", "after training")):
            yield _claim(
                f"H2.{4 + 2 * (depth == 8) + (phase == 'final')}",
                bottleneck.NAME,
                f"Stable rank and coupling across necks of 4 to 512 in nets of {depth} layers, {word}.",
                necks(depth, phase),
                lambda c, depth=depth, phase=phase: (  # type: ignore[misc]
                    c["depth"] == depth and c["base"] == 512 and (phase == "init" or trained(c))
                ),
            )
    for name, norm, by in (("H3.11", "layer", p.NORMED_FINAL), ("H3.12", "none", p.BARE_FINAL)):
        yield _claim(
            name,
            gap.NAME,
            f"Gaps after training {'with layer norm' if norm == 'layer' else 'without norm'}: "
            + ", ".join(f"{v:.3f}" for v in by.values()),
            p.cells("gap", "act", by, norm=norm, phase="final"),
            lambda c, norm=norm: trained(c) and c["norm"] == norm and c["depth"] == 6,  # type: ignore[misc]
        )
    merged = {"merge": "cat", "act": "silu", "phase": "final"}
    yield _claim(
        "H4.5",
        diamond.NAME,
        "After training the gap of cat+silu is .078, .082, .090 and its tensor part 3.3e-2, 2.5e-2, 2.1e-2.",
        p.cells("end_gap", "length", p.MERGE_FINAL, **merged)
        + p.cells("end_tensor", "length", p.MERGE_TENSOR, **merged),
        lambda c: trained(c) and c["width"] == 32,
    )
    full = lambda c: c["width"] == 64
    learnt = lambda c: full(c) and trained(c)
    r = resnet.NAME
    yield _claim(
        "H6.6",
        r,
        "Coupling by distance at the start.",
        towers("coupling", p.TOWER_COUPLING, "init"),
        full,
        0.35,
    )
    halfway = (
        *towers("resonance", p.TOWER_RESONANCE, "mid"),
        *towers("coupling", p.TOWER_COUPLING, "mid"),
        *towers("stable_rank", p.TOWER_RANK, "mid"),
    )
    yield _claim("H6.7", r, "Resonance, coupling and stable rank halfway.", halfway, learnt, 0.35)
    mid, final = (towers("gap_by_distance", p.TOWER_GAP, phase) for phase in ("mid", "final"))
    yield _claim("H6.8", r, "Gaps of the silu towers by distance halfway.", mid, learnt, 0.5)
    yield _claim("H6.9", r, "Gaps of the silu towers by distance after training.", final, learnt, 0.5)


CLAIMS = tuple(_claims())
