"""From numbers to verdicts: the judges of the claims in :mod:`claims`. The rows of a claim are those of one check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from netvitals_lab import Row, Verdict, decide
from netvitals_lab.engine.judges import all_near, at_most, column, corrected

Judge = Callable[[Sequence[Row]], Verdict]


def values(rows: Sequence[Row], quantity: str) -> list[float]:
    """The values of one quantity, one per seed."""
    return [float(v) for v in column(rows, "value", quantity=quantity)]


def first(rows: Sequence[Row], quantity: str) -> float:
    return values(rows, quantity)[0]


def firsts(rows: Sequence[Row], form: str, names: Iterable[str]) -> dict[str, float]:
    """Name → the quantity that ``form`` makes of it."""
    return {name: first(rows, form.format(name)) for name in names}


def bounded(quantity: str, limit: float) -> Judge:
    """No value of the quantity is larger than the limit in size."""
    return lambda rows: at_most(max(map(abs, values(rows, quantity))), limit, f"{quantity}, at most {limit:g}")


def at(wanted: dict[str, tuple[float, float]]) -> Judge:
    """Every quantity is at its value within its tolerance."""
    return lambda rows: all_near({q: values(rows, q) for q in wanted}, wanted)


def matrix_identity(rows: Sequence[Row]) -> Verdict:
    least = min(values(rows, "least printed matrix defect"))
    worst = max(values(rows, "matrix defect") + values(rows, "neuron defect"))
    return corrected(
        least <= 1e-12,
        worst <= 1e-12,
        worst,
        "right is E[(σ'⊙b)zᵀ + z(σ'⊙b)ᵀ − bσᵀ − σbᵀ], and its diagonal neuron by neuron (E2)",
        facts={"least relative defect as printed, nonlinear activations": least},
    )


def first_layer_drive(rows: Sequence[Row]) -> Verdict:
    printed, gap = first(rows, "printed over true first-layer drive"), max(values(rows, "gradient gap"))
    return corrected(
        abs(printed - 1) < 1e-3,
        gap <= 1e-10,
        gap,
        "right is g, which agrees with automatic differentiation",
        facts={"drive as printed over the true one": printed},
    )


def resonance(rows: Sequence[Row]) -> Verdict:
    names = ("tanh", "sin", "erf", "gelu", "silu")
    slope, right, printed = (firsts(rows, f"{{}} {what}", names) for what in ("slope", "corrected", "printed"))
    off = max(abs(slope[n] - right[n]) for n in names)
    return corrected(
        False,
        off <= 0.01,
        off,
        "there is a logarithm at L = q + 1 with slope −λ; the printed λ is too small by 2q/(q+1) and its sign is plus "
        "(E3)",
        otherwise="the slopes do not equal −λ",
        facts={
            **{f"slope of {n}": slope[n] for n in names},
            "the printed ones are off by at least": min(abs(slope[n] - printed[n]) for n in names),
        },
    )


def gamma_c(rows: Sequence[Row]) -> Verdict:
    lowest, others, printed = (first(rows, f"gelu {what}") for what in ("layer 1", "layer 2", "printed"))
    return corrected(
        False,
        abs(lowest - 2.2508) <= 0.02 and abs(others - 1.1254) <= 0.02 and abs(lowest - printed) > 0.5,
        lowest,
        "relative next order of GELU in the first layer, 2λ'; λ' in the others (E4)",
        facts={"in the others": others, "printed for all layers": printed},
    )


def correction_order(rows: Sequence[Row]) -> Verdict:
    names = ("tanh", "gelu", "silu")
    measured, formula = (firsts(rows, f"{{}} {what}", names) for what in ("measured", "formula"))
    gap = max(abs(measured[n] - formula[n]) for n in names)
    below = first(rows, "order below resonance")
    right = gap <= 0.01 and abs(below - 1) <= 0.05
    return corrected(
        False,
        right,
        below if right else gap,
        "O(ε^(q−1)) holds for L > q + 1, with coefficients as derived; for L = 3 < q + 1 the order is L − 2 = 1, not "
        "q − 1 = 2 (E7)",
        otherwise="coefficients or the order at L = 3 are not as derived",
        facts={"coefficients off by": gap, "order at L = 3": below},
    )


def class_d(rows: Sequence[Row]) -> Verdict:
    velocities = list(firsts(rows, "sigmoid velocity {}", "123").values())
    centred = list(firsts(rows, "centered:{} time over leading", ("sigmoid", "softplus")).values())
    return corrected(
        False,
        all(abs(t - 1) < 0.1 for t in centred) and velocities[2] > 0.1,
        velocities[2],
        "the centred model escapes like its class; without biases the plain one has no plateau at zero (E16)",
        facts={"times over leading law": centred, "velocities at X = 1e-3": velocities},
    )


def blocks(rows: Sequence[Row]) -> Verdict:
    ratio, gap = (max(values(rows, quantity)) for quantity in ("off over on", "reduction gap"))
    return corrected(
        False,
        ratio > 0.5 and gap <= 1e-12,
        ratio,
        "off-block velocities over the on-block ones; there is an exact manifold for K = 3, L = 4 (E12)",
        facts={"its scalars": first(rows, "scalars"), "it agrees with the full network to": gap},
    )


def perron(rows: Sequence[Row]) -> Verdict:
    bad, cases, pairs = (sum(values(rows, quantity)) for quantity in ("violations", "cases", "complex leads"))
    return decide(
        bad == 0 and pairs == 0,
        bad,
        note="violations in random cases; complex leading pairs cannot be (E19)",
        facts={"cases": cases, "complex leading pairs": pairs},
    )


def stage_one(rows: Sequence[Row]) -> Verdict:
    """Erratum E22: the x block grows by itself, at the order ε^(L−2) that Prop. 24 gives to the coupling."""
    off, own, rate = (first(rows, q) for q in ("off its diagonal", "own rate", "rate"))
    order = first(rows, "order of the rate")
    return corrected(
        off == 0 and first(rows, "least of B") >= 0,
        0 < own <= rate and abs(order - 2) < 0.1,
        own / rate,
        "the on-block coordinates feed each other at order ε^(L−2) and grow without any rotation; the decay rates on "
        "the diagonal are smaller by another ε^(L−2), and B has negative entries of that order, so the loop gain of "
        "Prop. 24 does not decide (E22)",
        facts={q: first(rows, q) for q in dict.fromkeys(r["quantity"] for r in rows)},
    )


def truncations(rows: Sequence[Row]) -> Verdict:
    return decide(
        first(rows, "strictly increasing") == 1 and first(rows, "first over last time") > 1,
        first(rows, "last rate"),
        note="rates rise strictly to this value; a weaker hierarchy has a growing mode from some truncation on (E20)",
        facts={"first such truncation": first(rows, "smallest growing truncation")},
    )


def drive(rows: Sequence[Row]) -> Verdict:
    gap = max(firsts(rows, "{} drive gap", ("tanh", "gelu")).values())
    note = "the drive is √N β h α^(L−1) in every layer in the clock t; the printed 1/√N belongs to s = N t (E1)"
    return corrected(False, gap <= 5e-3, gap, note, otherwise="the drive is not √N β h α^(L−1) either")


def gap_drift(rows: Sequence[Row]) -> Verdict:
    wanted = {"tanh": {"12": 6, "14": 6, "23": 8, "34": 10}, "gelu": {"12": 5, "14": 5, "23": 6, "34": 7}}
    gap = max(abs(first(rows, f"{n} gap order {p}") - order) for n, ps in wanted.items() for p, order in ps.items())
    coefficient = max(abs(v - 1) for v in firsts(rows, "{} gap coefficient", wanted).values())
    return decide(
        gap <= 0.3 and coefficient <= 0.04,
        gap,
        note="largest gap of a measured order to L + (q−1)i",
        facts={"leading coefficient off by": coefficient},
    )


def signal_drive(rows: Sequence[Row]) -> Verdict:
    gap, order = max(values(rows, "drive gap")), values(rows, "drive gap order")
    return decide(
        gap < 2e-4 and all(abs(o - 2) < 0.3 for o in order),
        gap,
        note="teacher term over β h T, minus 1, at ε = 0.01",
        facts={"it falls with order in M": order[0]},
    )


def bootstrap(rows: Sequence[Row]) -> Verdict:
    least = min(values(rows, "least drive ratio"))
    facts = {"|S|/(γ T) there at most": max(values(rows, "largest self ratio"))}
    return decide(least >= 0.5, least, note="smallest γ̇/(β h T) while M ≤ 0.4", facts=facts)


def am_gm(rows: Sequence[Row]) -> Verdict:
    least = min(values(rows, "least am-gm"))
    return decide(least >= 1, least, note="smallest T/γ^(2−2/r) along the plateau, r = 3")


def path(rows: Sequence[Row]) -> Verdict:
    ratio = max(abs(v - 1) for v in values(rows, "gamma over path"))
    return corrected(
        False,
        ratio < 1e-2,
        ratio,
        "γ over α^(L−1) W_L⋯W_1v_1, minus 1: the printed extra factor h is wrong (E10), and ‖f‖ is not of the size of "
        "γ, because of the part across v_1 (E17)",
        facts={"h": first(rows, "h"), "‖f‖/|γ|": max(values(rows, "output over gamma"))},
    )


def density(rows: Sequence[Row]) -> Verdict:
    found, errors = values(rows, "density"), values(rows, "density error")
    return decide(
        all(abs(x - 0.399) < 4 * s for x, s in zip(found, errors)),
        found[0],
        errors[0],
        "density of the path at 0 in units of its width (unit Gaussian: 0.399); the sign is an event (E18)",
        facts={"share of positive starts": first(rows, "positive")},
    )


def critical(rows: Sequence[Row]) -> Verdict:
    cases = [f"{r} {place}" for r in ("r3", "r4") for place in ("first prefactor", "last prefactor")]
    gap = max(abs(first(rows, q) - 1) for q in (*cases, "r2 first log rate", "r2 last log rate"))
    return corrected(
        False,
        gap <= 0.01,
        gap,
        "1/[(r−2)KΠs] is right with the small layers first; placed last the time is longer, and the law with "
        "E[σ(g)u_p(g)] in K holds at every position (E14)",
        otherwise="time over the law, minus 1",
        facts={"times longer for r = 3": first(rows, "r3 position ratio")},
    )


def depth_free(rows: Sequence[Row]) -> Verdict:
    slopes, necks = firsts(rows, "depth {} r3 exponent", "457"), firsts(rows, "r{} first exponent", "34")
    gap = max([abs(v + 1) for v in slopes.values()] + [abs(v + (int(r) - 2)) for r, v in necks.items()])
    facts = {"r = 3 at depth 4, 5, 7": list(slopes.values()), "depth 6 at r = 3, 4": list(necks.values())}
    return at_most(gap, 0.02, "largest gap of an exponent to −(r−2)", facts=facts)


def corner(rows: Sequence[Row]) -> Verdict:
    change, rate = first(rows, "r1 change"), first(rows, "r2 first log rate")
    return decide(
        change < 1e-2 and abs(rate - 1) < 1e-2,
        change,
        note="r = 1: change of the time from ε = 1e-3 to 1e-4",
        facts={"r = 2: dt/d ln(1/ε)·K Πs": rate},
    )


def shell(rows: Sequence[Row]) -> Verdict:
    edge = first(rows, "shell edge")
    note = "relative error at the edge of a shell; it holds inside, and for integrals (E15)"
    return corrected(False, abs(edge + 0.293) < 1e-3, edge, note)


def corners(rows: Sequence[Row]) -> Verdict:
    change, rate = (max(values(rows, quantity)) for quantity in ("r1 change", "r2 rate change"))
    return decide(change <= 0.02 and rate <= 0.05, change, facts={"r = 2: dt/d ln(1/ε) changes by": rate})


def output_order(rows: Sequence[Row]) -> Verdict:
    return at_most(max(firsts(rows, "{} output order gap", ("tanh", "gelu")).values()), 0.1)
