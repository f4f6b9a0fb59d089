"""From numbers to verdicts: the judges of the claims in :mod:`claims`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netvitals.lab.studies import Row, Verdict, decide, erratum, fails
from netvitals.lab.studies.saddle_escape.theorems import numbers

Judge = Callable[[Sequence[Row]], Verdict]


def at_most(check: str, quantity: str, limit: float, note: str = "") -> Judge:
    def judge(rows: Sequence[Row]) -> Verdict:
        worst = max(abs(v) for v in numbers(rows, check, quantity))
        return decide(worst <= limit, worst, note=note or f"{quantity}, at most {limit:g}")

    return judge


def near(check: str, wanted: dict[str, tuple[float, float]]) -> Judge:
    """Every quantity within its tolerance of its value; the worst gap, in tolerances, decides."""

    def judge(rows: Sequence[Row]) -> Verdict:
        gaps = {q: max(abs(v - value) / tol for v in numbers(rows, check, q)) for q, (value, tol) in wanted.items()}
        text = "; ".join(
            f"{q} {numbers(rows, check, q)[0]:.5g} ({value:g} ± {tol:g})" for q, (value, tol) in wanted.items()
        )
        worst = max(gaps, key=lambda q: gaps[q])
        return decide(gaps[worst] <= 1, numbers(rows, check, worst)[0], note=text)

    return judge


def corrected(
    check: str,
    printed: Callable[[Sequence[Row]], tuple[bool, str]],
    corrected: Callable[[Sequence[Row]], tuple[bool, float, str]],
) -> Judge:
    """An erratum: what is printed does not hold, what is put in its place does."""

    def judge(rows: Sequence[Row]) -> Verdict:
        holds_as_printed, text = printed(rows)
        ok, value, right = corrected(rows)
        if holds_as_printed:
            return decide(True, value, note=f"as printed: {text}")
        if not ok:
            return fails(
                value, note=f"as printed it is wrong ({text}), and the correction does not hold either: {right}"
            )
        return erratum(value, note=f"as printed it is wrong: {text}; right is: {right}")

    return judge


def one(rows: Sequence[Row], check: str, quantity: str) -> float:
    return numbers(rows, check, quantity)[0]


def printed_matrix(rows: Sequence[Row]) -> tuple[bool, str]:
    least = min(numbers(rows, "identity", "least printed matrix defect"))
    return least <= 1e-12, f"its relative defect is at least {least:.2g} for nonlinear activations"


def right_matrix(rows: Sequence[Row]) -> tuple[bool, float, str]:
    worst = max(numbers(rows, "identity", "matrix defect") + numbers(rows, "identity", "neuron defect"))
    return worst <= 1e-12, worst, "E[(σ'⊙b)zᵀ + z(σ'⊙b)ᵀ − bσᵀ − σbᵀ], and its diagonal neuron by neuron (E2)"


def resonance(rows: Sequence[Row]) -> Verdict:
    names = ("tanh", "sin", "erf", "gelu", "silu")
    right = max(abs(one(rows, "resonance", f"{n} slope") - one(rows, "resonance", f"{n} corrected")) for n in names)
    wrong = min(abs(one(rows, "resonance", f"{n} slope") - one(rows, "resonance", f"{n} printed")) for n in names)
    text = ", ".join(f"{n} {one(rows, 'resonance', f'{n} slope'):.4f}" for n in names)
    if right > 0.01:
        return fails(right, note=f"slopes {text} do not equal −λ")
    return erratum(
        right,
        note=f"there is a logarithm at L = q + 1 with slope −λ: {text}; the printed λ is too small by "
        f"2q/(q+1) (off by {wrong:.2f} or more) and its sign is plus (E3)",
    )


def gamma_c(rows: Sequence[Row]) -> Verdict:
    first, second = one(rows, "corrections", "gelu layer 1"), one(rows, "corrections", "gelu layer 2")
    printed = one(rows, "corrections", "gelu printed")
    ok = abs(first - 2.2508) <= 0.02 and abs(second - 1.1254) <= 0.02
    note = (
        f"relative next order of GELU: {first:.3f} in the first layer, {second:.3f} in the others (2λ' and λ'); "
        f"printed for all layers: {printed:.3f} (E4)"
    )
    return erratum(first, note=note) if ok and abs(first - printed) > 0.5 else fails(first, note=note)


def correction_order(rows: Sequence[Row]) -> Verdict:
    gap = max(
        abs(one(rows, "corrections", f"{n} measured") - one(rows, "corrections", f"{n} formula"))
        for n in ("tanh", "gelu", "silu")
    )
    below = one(rows, "corrections", "order below resonance")
    if gap > 0.01 or abs(below - 1) > 0.05:
        return fails(gap, note=f"coefficients off by {gap:.3g}, order at L = 3 is {below:.3f}")
    return erratum(
        below,
        note=f"O(ε^(q−1)) holds for L > q + 1, with coefficients as derived (off by {gap:.1g}); for L = 3 < "
        f"q + 1 the order is L − 2 = 1 (measured {below:.3f}), not q − 1 = 2 (E7)",
    )


def class_d(rows: Sequence[Row]) -> Verdict:
    v = [one(rows, "class D", f"sigmoid velocity {i}") for i in (1, 2, 3)]
    centred = {n: one(rows, "class D", f"centered:{n} time over leading") for n in ("sigmoid", "softplus")}
    ok = all(abs(t - 1) < 0.1 for t in centred.values()) and v[2] > 0.1
    note = (
        f"the centred model escapes like its class (times over leading law: {centred['sigmoid']:.3f}, "
        f"{centred['softplus']:.3f}); without biases the plain one has no plateau at zero, velocities at X = 1e-3 are "
        f"{v[0]:.1e}, {v[1]:.1e}, {v[2]:.2f} (E16)"
    )
    return erratum(v[2], note=note) if ok else fails(v[2], note=note)


def blocks(rows: Sequence[Row]) -> Verdict:
    ratio = max(numbers(rows, "blocks", "off over on"))
    gap = max(numbers(rows, "blocks", "reduction gap"))
    note = (
        f"off-block velocities are {ratio:.3f} of the on-block ones; the exact manifold has "
        f"{one(rows, 'blocks', 'scalars'):.0f} scalars for K = 3, L = 4 and agrees with the full network "
        f"to {gap:.0e} (E12)"
    )
    return erratum(ratio, note=note) if ratio > 0.5 and gap <= 1e-12 else fails(ratio, note=note)


def perron(rows: Sequence[Row]) -> Verdict:
    bad = sum(numbers(rows, "perron", "violations"))
    cases, complex_leads = sum(numbers(rows, "perron", "cases")), sum(numbers(rows, "perron", "complex leads"))
    return decide(
        bad == 0 and complex_leads == 0,
        bad,
        note=f"violations in {cases:.0f} random cases; complex leading pairs: "
        f"{complex_leads:.0f} (there can be none, E19)",
    )


def truncations(rows: Sequence[Row]) -> Verdict:
    ok = one(rows, "truncations", "strictly increasing") == 1 and one(rows, "truncations", "first over last time") > 1
    first = one(rows, "truncations", "smallest growing truncation")
    return decide(
        ok,
        one(rows, "truncations", "last rate"),
        note=f"rates rise strictly to this value; a weaker hierarchy has "
        f"no growing mode before truncation {first:.0f} (E20)",
    )


def drive(rows: Sequence[Row]) -> Verdict:
    gap = max(one(rows, "expansion", f"{n} drive gap") for n in ("tanh", "gelu"))
    return (
        erratum(
            gap,
            note="the drive is the same in every layer and equals √N β h α^(L−1) in the clock t; the printed "
            "1/√N belongs to the clock s = N t (E1)",
        )
        if gap <= 5e-3
        else fails(gap)
    )


def gap_drift(rows: Sequence[Row]) -> Verdict:
    wanted = {
        "tanh": (("12", 6), ("14", 6), ("23", 8), ("34", 10)),
        "gelu": (("12", 5), ("14", 5), ("23", 6), ("34", 7)),
    }
    gaps = {
        f"{n} {p}": abs(one(rows, "expansion", f"{n} gap order {p}") - order)
        for n, ps in wanted.items()
        for p, order in ps
    }
    coefficient = max(abs(one(rows, "expansion", f"{n} gap coefficient") - 1) for n in wanted)
    return decide(
        max(gaps.values()) <= 0.3 and coefficient <= 0.04,
        max(gaps.values()),
        note=f"largest gap of a measured order to L + (q−1)i; leading coefficient off by {coefficient:.3f}",
    )


def signal_drive(rows: Sequence[Row]) -> Verdict:
    gap, order = max(numbers(rows, "signal", "drive gap")), numbers(rows, "signal", "drive gap order")
    return decide(
        gap < 2e-4 and all(abs(o - 2) < 0.3 for o in order),
        gap,
        note=f"teacher term over β h T, minus 1, at ε = 0.01; it falls with order {order[0]:.2f} in M",
    )


def bootstrap(rows: Sequence[Row]) -> Verdict:
    least, self_ratio = (
        min(numbers(rows, "signal", "least drive ratio")),
        max(numbers(rows, "signal", "largest self ratio")),
    )
    return decide(least >= 0.5, least, note=f"smallest γ̇/(β h T) while M ≤ 0.4; |S| ≤ {self_ratio:.2f} γ T there")


def path(rows: Sequence[Row]) -> Verdict:
    ratio = max(abs(v - 1) for v in numbers(rows, "signal", "gamma over path"))
    wide = max(numbers(rows, "signal", "output over gamma"))
    note = (
        f"γ = α^(L−1) W_L⋯W_1v_1 within {ratio:.1e}; the printed extra factor h = {one(rows, 'signal', 'h'):.3f} is "
        f"wrong (E10), and ‖f‖ is {wide:.1f} |γ|, not of its size, because of the part across v_1 (E17)"
    )
    return erratum(ratio, note=note) if ratio < 1e-2 else fails(ratio, note=note)


def density(rows: Sequence[Row]) -> Verdict:
    d, e = numbers(rows, "nondegeneracy", "density"), numbers(rows, "nondegeneracy", "density error")
    ok = all(abs(x - 0.399) < 4 * s for x, s in zip(d, e))
    return decide(
        ok,
        d[0],
        e[0],
        f"density of the path at 0 in units of its width (unit Gaussian: 0.399); "
        f"{100 * one(rows, 'nondegeneracy', 'positive'):.0f} % of starts are positive, so the sign is an event (E18)",
    )


def critical(rows: Sequence[Row]) -> Verdict:
    wanted = {
        "r3 first prefactor": 1.0,
        "r4 first prefactor": 1.0,
        "r3 last prefactor": 1.0,
        "r4 last prefactor": 1.0,
        "r2 first log rate": 1.0,
        "r2 last log rate": 1.0,
    }
    gap = max(abs(one(rows, "critical depth", q) - v) for q, v in wanted.items())
    last = one(rows, "critical depth", "r3 position ratio")
    if gap > 0.01:
        return fails(gap, note="time over the law, minus 1")
    return erratum(
        gap,
        note=f"1/[(r−2)KΠs] is right with the small layers first; placed last the time is {last:.3f} times "
        "longer for r = 3, and the law with E[σ(g)u_p(g)] in K holds at every position (E14)",
    )


def depth_free(rows: Sequence[Row]) -> Verdict:
    slopes = {d: one(rows, "critical depth", f"depth {d} r3 exponent") for d in (4, 5, 7)}
    necks = {r: one(rows, "critical depth", f"r{r} first exponent") for r in (3, 4)}
    gap = max([abs(v + 1) for v in slopes.values()] + [abs(v + (r - 2)) for r, v in necks.items()])
    return decide(
        gap <= 0.02,
        gap,
        note="r = 3 at depth 4, 5, 7: "
        + ", ".join(f"{v:.4f}" for v in slopes.values())
        + "; depth 6 at r = 3, 4: "
        + ", ".join(f"{v:.4f}" for v in necks.values()),
    )


def corner(rows: Sequence[Row]) -> Verdict:
    change, rate = one(rows, "critical depth", "r1 change"), abs(one(rows, "critical depth", "r2 first log rate") - 1)
    return decide(
        change < 1e-2 and rate < 1e-2,
        change,
        note=f"r = 1: change of the time from ε = 1e-3 to 1e-4; r = 2: dt/d ln(1/ε)·K Πs is {1 - rate:.4f}",
    )
