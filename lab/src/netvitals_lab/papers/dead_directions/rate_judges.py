"""How measured exponents decide the claims about K-FAC rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netvitals_lab import Plot, Row, Series, Verdict, decide
from netvitals_lab.engine.judges import at_most, column, corrected, groups, largest_gap, one, some
from netvitals_lab.papers.dead_directions._judging import SLOPE, predicted, read


def picture(rows: Sequence[Row]) -> Plot:
    both = [r for r in rows if r.get("predicted") is not None and r.get("measured") is not None]
    span = [min(r["predicted"] for r in both), max(r["predicted"] for r in both)]
    return Plot(
        "predicted exponent",
        "measured exponent",
        (
            Series("measured", [r["predicted"] for r in both], [r["measured"] for r in both]),
            Series("equal", span, span, line=True, dashed=True),
        ),
    )


def schur(rows: Sequence[Row]) -> Verdict:
    facts = {"widths": column(rows, "width"), "fewest samples": min(column(rows, "drawn"))}
    return at_most(largest_gap(rows, relative=True)[0], 0.01, "largest relative gap", facts=facts)


def lift(rows: Sequence[Row]) -> Verdict:
    row = one(rows, what="lift")
    return decide(
        abs(row["overlap"] - 1) < 1e-8 and abs(row["ratio"] - 1) < 1e-8,
        row["overlap"],
        note="overlap with the bottom eigenvector of A ⊗ G",
    )


def joint(rows: Sequence[Row]) -> Verdict:
    found = some(rows, what="joint mode")
    ok = all(r["order"] == r["depth"] and r["single"] == "gauge" for r in found)
    return decide(ok, ", ".join(f"L={r['depth']}: k={r['order']}, one layer {r['single']}" for r in found))


def kernel(norm: str) -> Callable[[Sequence[Row]], Verdict]:
    def judge(rows: Sequence[Row]) -> Verdict:
        overlap, variance, passes = (column(rows, name, norm=norm) for name in ("overlap", "variance", "passes"))
        facts = {"norms": len(overlap), "variance along γ⁻¹ over the mean": [min(variance), max(variance)]}
        if norm == "layer":
            ok = all(passes) and min(overlap) > 0.999 and max(variance) < 1e-12
            return decide(ok, min(overlap), note="smallest overlap, two models with random gains", facts=facts)
        return decide(not any(passes), max(overlap), note="largest overlap", facts=facts)

    return judge


def closed(rows: Sequence[Row]) -> Verdict:
    dead = [r["zero"] for r in rows if r["readout"] == "G" and r["layer"] in ("layer2", "layer3")]
    return decide(bool(dead) and all(dead), f"{sum(dead)} of {len(dead)} hidden entries are identically zero")


def finite_t(rows: Sequence[Row]) -> Verdict:
    worst = max(abs(r["measured"] - r["predicted"]) / abs(r["stderr"]) for r in rows)
    tight = max(abs(r["stderr"]) / r["predicted"] for r in rows) < 0.02
    return decide(worst < 4 and tight, worst, note="largest gap in standard errors, E[z_h²] at t = 0.1, d = 8, 16, 64")


def printed_kappa(rows: Sequence[Row]) -> Verdict:
    row = one(rows, width=8)
    off = row["kappa4_printed"] / row["kappa4"] - 1
    tells, ours = (abs(row["measured"] - row[k]) / abs(row["stderr"]) for k in ("printed", "predicted"))
    right = ours <= 4 and tells >= ours and 0.15 <= off <= 0.3
    return corrected(
        False,
        right,
        row["kappa4"] if right else off,
        "the printed κ₄ is too large at d = 8: E[z_h²] needs the change of σ(t)",
        otherwise="the corrected expansion does not hold either",
        facts={
            "printed κ₄": row["kappa4_printed"],
            "too large by": off,
            "standard errors off, printed and corrected": [tells, ours],
        },
    )


def memorised(rows: Sequence[Row]) -> Verdict:
    contrast = [r["contrast"] / r["epsilon"] for r in rows if r["level"] >= 4]
    ok = all(r["bounds"] for r in rows) and all(0.3 < c < 3 for c in contrast)
    return decide(
        ok,
        max(contrast),
        note="per-sample bounds hold on every sample; empirical over expected Fisher is "
        "of order ε once labels are memorised (largest ratio to ε given)",
    )


def contrast_verdict(rows: Sequence[Row]) -> Verdict:
    """Printed: the empirical Fisher loses its ladder under memorisation. It does not: only its size shrinks."""
    fixed = read(rows, deepens=0.0)
    gap, deeper = largest_gap(fixed)[0], largest_gap(r for r in read(rows) if r["options"]["deepens"] > 0)[0]
    return corrected(
        False,
        gap <= SLOPE,
        gap,
        "at a fixed level of memorisation both estimators keep the ladder; where memorisation deepens as ε ~ t^a both "
        "shift, the expected one by a and the empirical one by 2a",
        otherwise="at a fixed level of memorisation the ladder is lost",
        facts={"exponents": predicted(fixed), "gap where it deepens": deeper},
    )


def saturation(rows: Sequence[Row]) -> Verdict:
    """Printed: R_O = 4·min(k, 2)."""
    gaps, cells = [0.0], dict[str, float]()
    for r in some(rows, readout="G", topic="attention"):
        block, part = r["layer"].removeprefix("block").split(".")
        if part == "o":
            blocks = r["options"]["blocks"]
            gaps.append(abs(r["measured"] - 4 * min(blocks - 1 - int(block), 2)))
            cells |= {f"block {block} of {blocks}, printed 8": r["measured"]} if gaps[-1] > 1 else {}
    right, worst = largest_gap(read(rows))[0], max(gaps)
    return corrected(
        False,
        right <= SLOPE and worst >= 1,
        worst,
        "saturation is not at a constant depth: min(4k, 4p+8) holds",
        otherwise="the corrected law or the printed one is not off as it should be",
        facts={"corrected law off by": right, "exponents": predicted(read(rows)), **cells},
    )


def vo(rows: Sequence[Row]) -> Verdict:
    by: dict[tuple[str, str], dict[str, float]] = {}
    for r in some(rows, readout="G"):
        block, part = r["layer"].split(".")
        by.setdefault((str(r["options"]), block), {})[part] = r["measured"]
    worst = max(abs(v["v"] - v["o"] - 2) for v in by.values())
    return at_most(
        worst, SLOPE, "largest |R_V − R_O − 2|: chains, masks, heads, skips, norms", facts={"blocks": len(by)}
    )


def single(rows: Sequence[Row]) -> Verdict:
    alone = some(rows, topic="attention")
    back = one(rows, topic="pair", readout="G", layer="middle")["measured"] / 2  # the input of the last block
    forward = one(alone, readout="forward", layer="X1")["measured"]
    values = one(alone, readout="G", layer="block0.v")["measured"]
    return decide(
        max(abs(v - 2) for v in (forward, back, values)) <= SLOPE,
        forward,
        note="forward amplitude order",
        facts={"backward, at the block's input": back, "R_V": values},
    )


def last_streams(rows: Sequence[Row]) -> list[Row]:
    """The rows of the stream behind the last block."""
    return [r for r in some(rows, readout="forward") if r["layer"] == f"X{r['options']['blocks']}"]


def swiglu(rows: Sequence[Row]) -> Verdict:
    last = last_streams(rows)
    return at_most(
        largest_gap(last)[0],
        0.15,
        "largest gap on t in [0.01, 0.1], where the O(t) correction is up to 0.1",
        facts={f"{r['options'].get('gate', '')} n = {r['options']['blocks']}".strip(): r["measured"] for r in last},
    )


def swiglu_printed(rows: Sequence[Row]) -> Verdict:
    deep = max(last_streams(rows), key=lambda r: r["options"]["blocks"])
    n = deep["options"]["blocks"]
    order = 3 * (2**n - 1)
    return corrected(
        False,
        abs(deep["measured"] - order) <= 0.15,
        deep["measured"],
        f"{n} blocks have order 3(2ⁿ − 1) = {order}, not 3n = {3 * n}: a gated block is quadratic in its input",
        otherwise=f"{n} blocks do not have order 3(2ⁿ − 1) = {order} either",
    )


def rotation(rows: Sequence[Row]) -> Verdict:
    found = {r["options"]["activation"]: r["measured"] for r in some(rows, readout="G", layer="layer1")}
    lost = {f"slope of {name}": slope for name, slope in found.items() if name != "linear"}
    worst = max(map(abs, lost.values()))
    return decide(worst < 0.25, worst, note="largest slope of layer 1, 6 without rotation", facts=lost)


def linear_rotation(rows: Sequence[Row]) -> Verdict:
    found = read(rows, activation="linear")
    facts = {"exponents": predicted(found)}
    return at_most(largest_gap(found)[0], SLOPE, "largest gap at an angle of 0.1", facts=facts)


def crossover(rows: Sequence[Row]) -> Verdict:
    worst = largest_gap(rows)[0]
    facts = {f"{r['activation']} {r['layer']}, predicted": [r["measured"], r["predicted"]] for r in rows}
    return decide(worst < 0.06, worst, note="largest gap of a slope", facts=facts)


def quotient(rows: Sequence[Row]) -> Verdict:
    worst = max(max(abs(r["slope"] - 2 * (r["depth"] - 1)), abs(r["coefficient"] / r["depth"] - 1)) for r in rows)
    return decide(worst < 1e-6, worst, note="slope and coefficient of L t^{2(L−1)}, L = 2 … 5")


def head(rows: Sequence[Row]) -> Verdict:
    smallest, overlap, second = (column(rows, name, layer="2") for name in ("smallest", "overlap", "second"))
    return decide(
        max(map(abs, smallest)) < 1e-12 and min(overlap) > 1 - 1e-9 and min(second) > 1e-6,
        min(overlap),
        note="overlap of the kernel with 1/√C",
        facts={"next eigenvalue over the largest": min(second)},
    )


def shift_kernel(rows: Sequence[Row]) -> Verdict:
    linear, curved = (one(rows, activation=name, layer="0")["smallest"] for name in ("linear", "tanh"))
    return corrected(
        False,
        abs(linear) <= 1e-12 and curved >= 1e-9,
        linear,
        "in a linear chain λ_min(G) is exactly 0 in every layer (the pulled-back logit shift), not t^{2(L−ℓ)}; with "
        "tanh the kernel is broken below the head; read the dead entry, or take the shift out",
        otherwise="the kernel of the shift is not as derived",
        facts={"with tanh": curved},
    )


def two_layers(rows: Sequence[Row]) -> Verdict:
    worst = largest_gap(rows, "coefficient", relative=True)[0]
    return decide(worst < 0.05, worst, facts={r["activation"]: r["coefficient"] for r in rows})


def off_verdict(rows: Sequence[Row]) -> Verdict:
    by = {n: max(column(group, "correlation")) for n, group in sorted(groups(rows, "samples").items())}
    worst = max(c * n**0.5 for n, c in by.items())
    note = "largest dead–live correlation of G times √N"
    return decide(worst < 5, worst, note=note, facts={f"at N = {n}": c for n, c in by.items()})


def biases_alone(rows: Sequence[Row]) -> Verdict:
    return at_most(
        max(map(abs, column(rows, "measured", readout="G"))),
        SLOPE,
        "weights alive, biases t; with dead weights the hidden entries are exactly zero and have no slope at all",
    )


def bracket(rows: Sequence[Row]) -> Verdict:
    """Printed bracket: the exponent lies between the number of weights outside norm crossings and L − ℓ."""
    found = read(rows)
    gap = largest_gap(found)[0]
    broken = [r["measured"] for r in read(rows, norm_after=[3], depth=4) if r["layer"] == "layer1"]
    return corrected(
        False,
        gap <= SLOPE,
        gap,
        "the exponent is 2·(distance to the next norm above), exactly",
        otherwise="the corrected law does not hold either",
        facts={"exponents": predicted(found), "layer 1 with a norm after the last hidden layer": broken},
    )


def rms_printed(rows: Sequence[Row]) -> Verdict:
    """Printed: 2(L−ℓ) whatever the norm; right is the cheaper of that and the way across the norm."""
    found = [r for r in read(rows) if r["measured"] is not None]
    gap = largest_gap(found)[0]
    plain = lambda r: 2 * (r["options"]["depth"] - int(r["layer"].removeprefix("layer")))
    off = max(abs(r["measured"] - plain(r)) for r in found)
    first = [r["measured"] for r in read(rows, norm_after=[1], depth=4)]
    return corrected(
        off <= SLOPE,
        gap <= SLOPE,
        gap,
        "dividing by the length couples the dead channel to the live ones by its own amplitude, t^p behind layer p: "
        "the exponent is 2·min(L−ℓ, 2p−ℓ), and 2(L−ℓ) only where that is cheaper or a later norm takes it away",
        otherwise="the corrected law does not hold either",
        facts={"largest distance from the printed rates": off, "four layers, norm after the first": first[:4]},
    )


def additive(rows: Sequence[Row]) -> Verdict:
    """Printed: pairs of blocks add up to (8, 4, 0)."""
    gap = largest_gap(read(rows))[0]
    inputs = {r["options"]["kinds"]: r["measured"] for r in read(rows) if r["layer"] == "input"}
    return corrected(
        False,
        gap <= SLOPE,
        ", ".join(f"{k} {v:.2f}" for k, v in inputs.items()) if gap <= SLOPE else gap,
        "exponents at the input of a pair; additivity (8) fails where the first block is attention, whose score path "
        "carries t² of its own",
        otherwise="the exponents at the input of a pair are not as corrected either",
        facts=inputs,
    )


def profile(rows: Sequence[Row]) -> Plot:
    found = some(rows, what="stream")
    depth = list(range(len(found)))
    return Plot(
        "depth: 0 is the input of the first block",
        "singular values of the stream",
        (
            Series("σ_r, the weakest active direction", depth, [r["sigma"] for r in found], line=True),
            Series("σ_1, the strongest", depth, [r["largest"] for r in found], line=True, dashed=True),
        ),
        log_y=True,
    )


def trained(what: str) -> Callable[[Sequence[Row]], Verdict]:
    def judge(rows: Sequence[Row]) -> Verdict:
        found = some(rows, what=what)
        if what == "stream":
            least = min(column(found, "ratio"))
            return decide(least > 0.01, least, note="smallest σ_r(X_ℓ)/σ_r(X_0) over depth of a trained transformer")
        if what == "schur":
            shrink = max(r["after"] / r["before"] for r in found)
            facts = {f"{r['site']} before, after": [r["before"], r["after"]] for r in found}
            return decide(shrink < 0.7, shrink, note="own share of units after training over before", facts=facts)
        worst = max(abs(v - 2) for v in column(found, "difference"))
        return at_most(worst, SLOPE, "over the heads of a trained transformer", facts={"heads": len(found)})

    return judge
