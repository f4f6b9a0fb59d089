"""Claims on the paper's remarks: paths, skips, cost, length of a sequence, what stands in the place of H, kinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from netvitals_lab import Claim, Expected, Plot, Row, Series, Verdict, decide
from netvitals_lab.engine.judges import at_most, column, compared, corrected, matches, paired, some
from netvitals_lab.papers.dag_hessian.remarks import NAME

Judge = Callable[[Sequence[Row]], Verdict]
SIZES = ("depth, width and data are ours: the remark names none",)
MODELS = ("gauss_newton", "block_diagonal", "rank_4", "kronecker", "l_bfgs")


def by_seed(rows: Sequence[Row], key: str, **only: object) -> Mapping[int, float]:
    return {r["seed"]: r[key] for r in some(rows, **only)}


def closer(net: str, key: str) -> Judge:
    """Coupling of a wired net above that of the plain one, seed by seed."""

    def judge(rows: Sequence[Row]) -> Verdict:
        wired, plain = by_seed(rows, key, net=net), by_seed(rows, key, net="plain")
        facts = {"with the skips": float(np.mean([*wired.values()])), "plain": float(np.mean([*plain.values()]))}
        return compared(paired(wired, plain), 1, note=f"coupling, {net} minus plain", facts=facts)

    return judge


def stable(rows: Sequence[Row]) -> Verdict:
    rate = max(column(rows, "rate"))
    note = (
        "slope of log R a layer, although the path of skips has norm 1: it is the norm of the whole product that must "
        "stay, not that of one path (E23)"
    )
    return corrected(rate > -0.1, rate < -1, rate, note)


def uniform(rows: Sequence[Row]) -> Verdict:
    ranks, won = column(rows, "rank"), [r["best"] / r["uniform"] for r in rows]
    note = (
        f"median rank of the even placement among {rows[0]['placements']}, by the smallest measured resonance; the "
        "proof's bound is an upper one (E24): where skips belong has to be measured"
    )
    facts = {
        "best over even placement, median": float(np.median(won)),
        "without skips over even": float(np.median([r["none"] / r["uniform"] for r in rows])),
    }
    return corrected(max(ranks) == 1, min(won) > 1, float(np.median(ranks)), note, otherwise=note, facts=facts)


def linear_cost(rows: Sequence[Row]) -> Verdict:
    p, product = (np.array(column(rows, key), float) for key in ("parameters", "product"))
    slope = float(np.polyfit(np.log(p), np.log(product), 1)[0])
    ratio = product / np.array(column(rows, "gradient"), float)
    facts = {"product over gradient, smallest": float(ratio.min()), "largest": float(ratio.max())}
    return decide(abs(slope - 1) < 0.03 and ratio.max() < 2.5, slope, note="growth of a product with P", facts=facts)


def dense_positions(rows: Sequence[Row]) -> Verdict:
    mine, apart = some(rows, net="attention"), some(rows, net="positions")
    facts = {
        "joined position by position": max(column(apart, "joined")),
        "part of the block's square between positions, mean": float(np.mean(column(mine, "across"))),
    }
    least = min(column(mine, "joined"))
    note = "smallest share of the pairs of positions whose queries and keys share curvature"
    return decide(least == 1 and facts["joined position by position"] < 1, least, note=note, facts=facts)


def inflates(rows: Sequence[Row]) -> Verdict:
    ends = sorted({r["length"] for r in rows})
    grown = lambda net: paired(*(by_seed(rows, "d_eff", net=net, length=n) for n in (ends[-1], ends[0])))
    facts = {"growth position by position, mean": float(np.mean(grown("positions")))}
    note = f"d_eff at length {ends[-1]} minus at {ends[0]}; it grows without attention too, and more"
    return compared(grown("attention"), 1, note=note, facts=facts)


def falls(rows: Sequence[Row]) -> Verdict:
    slopes = [float(np.polyfit(range(1, len(r["dropped"])), np.log(r["dropped"][1:]), 1)[0]) for r in rows]
    return at_most(max(slopes), np.log(0.5) + 0.2, "largest slope of log R a layer from distance one on; ρ is 0.5")


def better_model(rows: Sequence[Row]) -> Verdict:
    gains = {m: [r["full_gained"] - r[f"{m}_gained"] for r in rows] for m in MODELS}
    closest = min(gains, key=lambda m: float(np.mean(gains[m])))
    facts = {f"‖M − H‖/‖H‖, {m}": float(np.mean(column(rows, f"{m}_missed"))) for m in MODELS}
    note = f"fall of the loss in one trust-region step with H, minus that with the next best, {closest}"
    return compared(gains[closest], 1, note=note, facts=facts)


def inside(rows: Sequence[Row]) -> Verdict:
    return at_most(max(column(rows, "single")), 1e-6, "largest distance from the hull, over its size")


def beside(rows: Sequence[Row]) -> Verdict:
    out = min(column(rows, "difference"))
    return decide(
        out > 0.01, out, note="smallest distance from the hull, over its size, of a net of relu(z) − relu(−z)"
    )


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


def claims() -> Iterator[Claim]:
    def put(id: str, question: str, text: str, expected: str, judge: Judge, **more: object) -> Claim:
        return Claim(
            id=f"dag-hessian/{id}",
            study=NAME,
            statement=text,
            expected=Expected(direction=expected),
            judge=judge,
            uses=matches(question=question),
            choices=SIZES,
            **more,  # type: ignore[arg-type]
        )

    seeds = {"seeds": 5}
    yield put(
        "R74d",
        "shape",
        "In a dense net many paths keep far layers coupled.",
        "above a plain net",
        closer("dense", "far"),
        **seeds,
    )
    yield put(
        "R74u",
        "shape",
        "A U-Net's skips keep an encoder's layers coupled with those that mirror them.",
        "above a plain net",
        closer("unet", "mirrored"),
        **seeds,
    )
    yield put(
        "C73",
        "cancelling",
        "A path whose norm stays is enough for a resonance that does not decay.",
        "no decay",
        stable,
        correction="The norm of the sum over all paths must stay; paths can cancel.",
    )
    yield put(
        "P75",
        "placement",
        "Evenly placed skips have the largest smallest resonance.",
        "the best placement",
        uniform,
        correction="A heuristic: the best placement has to be measured (`curvature.best_skips`).",
    )
    yield put(
        "P89",
        "cost",
        "A Hessian-vector product costs O(P), as a backward pass does.",
        "slope 1",
        linear_cost,
        plot=costs,
    )
    yield put("R103a", "length", "Attention joins the curvature of all positions.", "no band", dense_positions)
    yield put(
        "R103b",
        "length",
        "d_eff grows with the length of the sequence.",
        "grows",
        inflates,
        plot=lengths,
        **seeds,
    )
    yield put(
        "C29",
        "approximations",
        "In contracting nets the blocks that K-FAC drops fall exponentially with distance.",
        "falls as ρ",
        falls,
    )
    yield put(
        "R96",
        "approximations",
        "Full products serve a trust region better than what stands in the place of H.",
        "a larger fall of the loss",
        better_model,
        **seeds,
    )
    yield put("K1", "kinks", "At a kink autograd's Hessian lies in the hull of those around it.", "inside", inside)
    yield put(
        "K2",
        "kinks",
        "Where two units share a kink it need not: autograd's Hessian is of a conservative field only.",
        "outside",
        beside,
    )


CLAIMS = tuple(claims())
