"""Claims on the paper's remarks: paths, skips, cost, length of a sequence, what stands in the place of H, kinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from netvitals_lab import Claims, Measured, Plot, Row, Series, Verdict, above, at_most
from netvitals_lab.engine.judges import column, compared, paired, some
from netvitals_lab.papers.dag_hessian.remarks import NAME

SIZES = ("depth, width and data are ours: the remark names none",)
MODELS = ("gauss_newton", "block_diagonal", "rank_4", "kronecker", "l_bfgs")


def by_seed(rows: Sequence[Row], key: str, **only: object) -> Mapping[int, float]:
    return {r["seed"]: r[key] for r in some(rows, **only)}


def closer(rows: Sequence[Row], net: str, key: str) -> Verdict:
    """Coupling of a wired net above that of the plain one, seed by seed."""
    wired, plain = by_seed(rows, key, net=net), by_seed(rows, key, net="plain")
    facts = {"with the skips": float(np.mean([*wired.values()])), "plain": float(np.mean([*plain.values()]))}
    return compared(paired(wired, plain), 1, note=f"coupling, {net} minus plain", facts=facts)


def lengths(rows: Sequence[Row]) -> Plot:
    series = []
    for net in ("attention", "positions"):
        at = sorted({r["length"] for r in rows})
        found = [[r["d_eff"] for r in some(rows, net=net, length=n)] for n in at]
        series.append(
            Series(
                name=net, x=at, y=[float(np.mean(f)) for f in found], error=[float(np.std(f)) for f in found], line=True
            )
        )
    return Plot("length of the sequence", "d_eff of the query–key block", series)


def costs(rows: Sequence[Row]) -> Plot:
    one = sorted({r["parameters"]: r for r in rows}.items())
    curve = lambda key: Series(name=key, x=[p for p, _ in one], y=[r[key] for _, r in one], line=True)
    return Plot(
        "parameters", "multiplications and additions", [curve("gradient"), curve("product")], log_x=True, log_y=True
    )


claim = Claims("dag-hessian", study=NAME, choices=SIZES)


@claim("R74d", "above a plain net", uses={"question": "shape"}, seeds=5)
def dense(rows: Sequence[Row]) -> Verdict:
    """In a dense net many paths keep far layers coupled."""
    return closer(rows, "dense", "far")


@claim("R74u", "above a plain net", uses={"question": "shape"}, seeds=5)
def u_net(rows: Sequence[Row]) -> Verdict:
    """A U-Net's skips keep an encoder's layers coupled with those that mirror them."""
    return closer(rows, "unet", "mirrored")


@claim(
    "C73",
    "no decay",
    uses={"question": "cancelling"},
    correction="The norm of the sum over all paths must stay; paths can cancel.",
)
def stable(rows: Sequence[Row]) -> Measured:
    """A path whose norm stays is enough for a resonance that does not decay."""
    rate = max(column(rows, "rate"))
    note = (
        "slope of log R a layer, although the path of skips has norm 1: it is the norm of the whole product that must "
        "stay, not that of one path (E23)"
    )
    return Measured(rate, note, ok=rate > -0.1, right=rate < -1)


@claim(
    "P75",
    "the best placement",
    uses={"question": "placement"},
    correction="A heuristic: the best placement has to be measured (`curvature.best_skips`).",
)
def uniform(rows: Sequence[Row]) -> Measured:
    """Evenly placed skips have the largest smallest resonance."""
    ranks, won = column(rows, "rank"), [r["best"] / r["uniform"] for r in rows]
    note = (
        f"median rank of the even placement among {rows[0]['placements']}, by the smallest measured resonance; the "
        "proof's bound is an upper one (E24): where skips belong has to be measured"
    )
    facts = {
        "best over even placement, median": float(np.median(won)),
        "without skips over even": float(np.median([r["none"] / r["uniform"] for r in rows])),
    }
    return Measured(float(np.median(ranks)), note, facts=facts, ok=max(ranks) == 1, right=min(won) > 1, otherwise=note)


@claim("P89", "slope 1", uses={"question": "cost"}, plot=costs)
def linear_cost(rows: Sequence[Row]) -> Measured:
    """A Hessian-vector product costs O(P), as a backward pass does."""
    p, product = (np.array(column(rows, key), float) for key in ("parameters", "product"))
    slope = float(np.polyfit(np.log(p), np.log(product), 1)[0])
    ratio = product / np.array(column(rows, "gradient"), float)
    facts = {"product over gradient, smallest": float(ratio.min()), "largest": float(ratio.max())}
    return Measured(slope, "growth of a product with P", facts=facts, ok=abs(slope - 1) < 0.03 and ratio.max() < 2.5)


@claim("R103a", "no band", uses={"question": "length"})
def dense_positions(rows: Sequence[Row]) -> Measured:
    """Attention joins the curvature of all positions."""
    mine, apart = some(rows, net="attention"), some(rows, net="positions")
    facts = {
        "joined position by position": max(column(apart, "joined")),
        "part of the block's square between positions, mean": float(np.mean(column(mine, "across"))),
    }
    least = min(column(mine, "joined"))
    note = "smallest share of the pairs of positions whose queries and keys share curvature"
    return Measured(least, note, facts=facts, ok=least == 1 and facts["joined position by position"] < 1)


@claim("R103b", "grows", uses={"question": "length"}, plot=lengths, seeds=5)
def inflates(rows: Sequence[Row]) -> Verdict:
    """d_eff grows with the length of the sequence."""
    ends = sorted({r["length"] for r in rows})
    grown = lambda net: paired(*(by_seed(rows, "d_eff", net=net, length=n) for n in (ends[-1], ends[0])))
    facts = {"growth position by position, mean": float(np.mean(grown("positions")))}
    note = f"d_eff at length {ends[-1]} minus at {ends[0]}; it grows without attention too, and more"
    return compared(grown("attention"), 1, note=note, facts=facts)


@claim("C29", "falls as ρ", uses={"question": "approximations"})
def falls(rows: Sequence[Row]) -> Measured:
    """In contracting nets the blocks that K-FAC drops fall exponentially with distance."""
    slopes = [float(np.polyfit(range(1, len(r["dropped"])), np.log(r["dropped"][1:]), 1)[0]) for r in rows]
    return Measured(
        max(slopes),
        "largest slope of log R a layer from distance one on; ρ is 0.5",
        ok=max(slopes) <= np.log(0.5) + 0.2,
    )


@claim("R96", "a larger fall of the loss", uses={"question": "approximations"}, seeds=5)
def better_model(rows: Sequence[Row]) -> Verdict:
    """Full products serve a trust region better than what stands in the place of H."""
    gains = {m: [r["full_gained"] - r[f"{m}_gained"] for r in rows] for m in MODELS}
    closest = min(gains, key=lambda m: float(np.mean(gains[m])))
    facts = {f"‖M − H‖/‖H‖, {m}": float(np.mean(column(rows, f"{m}_missed"))) for m in MODELS}
    note = f"fall of the loss in one trust-region step with H, minus that with the next best, {closest}"
    return compared(gains[closest], 1, note=note, facts=facts)


@claim("K1", at_most(1e-6, "inside"), uses={"question": "kinks"})
def inside(rows: Sequence[Row]) -> Measured:
    """At a kink autograd's Hessian lies in the hull of those around it."""
    return Measured(max(column(rows, "single")), "largest distance from the hull, over its size")


@claim("K2", above(0.01, "outside"), uses={"question": "kinks"})
def shared_kink(rows: Sequence[Row]) -> Measured:
    """Where two units share a kink it need not: autograd's Hessian is of a conservative field only."""
    out = min(column(rows, "difference"))
    return Measured(out, "smallest distance from the hull, over its size, of a net of relu(z) − relu(−z)")
