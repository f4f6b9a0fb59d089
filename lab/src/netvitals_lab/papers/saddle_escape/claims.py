"""The claims of the paper, in the order of the checklist: C1 to C41, with the errata checked beside what is printed.

C10, C15, C16, C20, C30, C31, C38 and C39 stand with their experiments. Eq. 5, Lemmas 15, 19 and 20, Theorem 16 and
Prop. 22 have no number of their own and stand at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from netvitals_lab import Claims, Measured, Row, at_least, at_most
from netvitals_lab.engine.judges import column
from netvitals_lab.papers.saddle_escape.theorems import NAME


def values(rows: Sequence[Row], quantity: str) -> list[float]:
    """The values of one quantity, one per seed."""
    return [float(v) for v in column(rows, "value", quantity=quantity)]


def first(rows: Sequence[Row], quantity: str) -> float:
    return values(rows, quantity)[0]


def firsts(rows: Sequence[Row], form: str, names: Iterable[str]) -> dict[str, float]:
    """Name → the quantity that ``form`` makes of it."""
    return {name: first(rows, form.format(name)) for name in names}


def bounded(rows: Sequence[Row], quantity: str, limit: float) -> Measured:
    """No value of the quantity is larger than the limit in size."""
    worst = max(map(abs, values(rows, quantity)))
    return Measured(worst, f"{quantity}, at most {limit:g}", ok=worst <= limit)


def at(rows: Sequence[Row], wanted: dict[str, tuple[float, float]]) -> Measured:
    """Every quantity is at its value within its tolerance."""
    gaps = {q: max(abs(v - value) / tolerance for v in values(rows, q)) for q, (value, tolerance) in wanted.items()}
    worst = max(gaps, key=gaps.__getitem__)
    facts = {f"{q} ({value:g} ± {tolerance:g})": first(rows, q) for q, (value, tolerance) in wanted.items()}
    return Measured(first(rows, worst), facts=facts, ok=gaps[worst] <= 1)


claim = Claims("saddle-escape", study=NAME)


@claim("C1", "defect ≤ 1e-12", uses={"check": "identity"})
def identity(rows: Sequence[Row]) -> Measured:
    """The imbalance identity is exact for any C¹ activation and any loss (T1)"""
    return bounded(rows, "defect", 1e-12)


@claim("C2", "drift ≤ 1e-12 of its terms", uses={"check": "identity"})
def homogeneous(rows: Sequence[Row]) -> Measured:
    """It holds almost everywhere for ReLU and leaky ReLU, whose imbalances are conserved (T1c)"""
    return bounded(rows, "homogeneous drift", 1e-12)


@claim("C3", "gap ≤ 1e-12", uses={"check": "identity"})
def discrete(rows: Sequence[Row]) -> Measured:
    """It holds with a rate per layer, and for a discrete step exactly (T1a)"""
    return bounded(rows, "discrete step gap", 1e-12)


@claim("C4", "drift ≤ 1e-10", uses={"check": "linear conservation"})
def linear(rows: Sequence[Row]) -> Measured:
    """Linear networks conserve W₂ᵀW₂ − W₁W₁ᵀ"""
    return bounded(rows, "linear drift", 1e-10)


@claim("C5", "printed form fails, corrected ≤ 1e-12", uses={"check": "identity"})
def matrix_identity(rows: Sequence[Row]) -> Measured:
    """The identity lifts to matrices, E[bφᵀ + φbᵀ] (T1b)"""
    least = min(values(rows, "least printed matrix defect"))
    worst = max(values(rows, "matrix defect") + values(rows, "neuron defect"))
    return Measured(
        worst,
        "right is E[(σ'⊙b)zᵀ + z(σ'⊙b)ᵀ − bσᵀ − σbᵀ], and its diagonal neuron by neuron (E2)",
        facts={"least relative defect as printed, nonlinear activations": least},
        ok=least <= 1e-12,
        right=worst <= 1e-12,
    )


@claim("C6", "no wrong class", uses={"check": "classes"})
def one_class(rows: Sequence[Row]) -> Measured:
    """Every smooth activation of the family is in exactly one of four classes (T2)"""
    return bounded(rows, "wrong classes", 0.0)


@claim("C7", "order of φ near 0 within 0.02", uses={"check": "classes"})
def order_of_phi(rows: Sequence[Row]) -> Measured:
    """φ starts as (q−1)a_q z^q"""
    return bounded(rows, "phi order gap", 0.02)


@claim("C9", "pattern defect ≤ 1e-14", uses={"check": "ansatz"})
def symmetric(rows: Sequence[Row]) -> Measured:
    """The symmetric manifold is invariant under the flow (T3)"""
    return bounded(rows, "pattern defect", 1e-14)


@claim("C11", "ratio 1/N to rounding", uses={"check": "ansatz"})
def uniform_flow(rows: Sequence[Row]) -> Measured:
    """Uniform matrix flow does not induce the Euclidean scalar flow: the first layer is N times slower"""
    return bounded(rows, "uniform ratio gap", 1e-10)


@claim("C12", "√N β h α^(L−1) in the clock t", uses={"check": "expansion"})
def drive(rows: Sequence[Row]) -> Measured:
    """The leading drive is the same in every layer, K = β h α^(L−1)/√N"""
    gap = max(firsts(rows, "{} drive gap", ("tanh", "gelu")).values())
    note = "the drive is √N β h α^(L−1) in every layer in the clock t; the printed 1/√N belongs to s = N t (E1)"
    return Measured(gap, note, ok=False, right=gap <= 5e-3, otherwise="the drive is not √N β h α^(L−1) either")


@claim("C13", "within 0.1 for tanh", uses={"check": "expansion"})
def remainder(rows: Sequence[Row]) -> Measured:
    """The remainder is of order min(L+q−2, 2L−1)"""
    return bounded(rows, "tanh remainder order gap", 0.1)


@claim("C14", "orders within 0.3, coefficient within 4 %", uses={"check": "expansion"})
def gap_drift(rows: Sequence[Row]) -> Measured:
    """The gaps X_ℓ² − X_1² drift at order L+q−1, pairs above the first more slowly (T6)"""
    wanted = {"tanh": {"12": 6, "14": 6, "23": 8, "34": 10}, "gelu": {"12": 5, "14": 5, "23": 6, "34": 7}}
    gap = max(abs(first(rows, f"{n} gap order {p}") - order) for n, ps in wanted.items() for p, order in ps.items())
    coefficient = max(abs(v - 1) for v in firsts(rows, "{} gap coefficient", wanted).values())
    return Measured(
        gap,
        "largest gap of a measured order to L + (q−1)i",
        facts={"leading coefficient off by": coefficient},
        ok=gap <= 0.3 and coefficient <= 0.04,
    )


@claim("C17", at_most(0.02, "−(r−2) within 0.02"), uses={"check": "critical depth"})
def depth_free(rows: Sequence[Row]) -> Measured:
    """The exponent depends on r, not on the depth"""
    slopes, necks = firsts(rows, "depth {} r3 exponent", "457"), firsts(rows, "r{} first exponent", "34")
    gap = max([abs(v + 1) for v in slopes.values()] + [abs(v + (int(r) - 2)) for r, v in necks.items()])
    facts = {"r = 3 at depth 4, 5, 7": list(slopes.values()), "depth 6 at r = 3, 4": list(necks.values())}
    return Measured(gap, "largest gap of an exponent to −(r−2)", facts=facts)


@claim("C18", "constant; rate 1/(KΠs)", uses={"check": "critical depth"})
def corner(rows: Sequence[Row]) -> Measured:
    """r = 1 removes the dependence on ε, r = 2 makes it logarithmic"""
    change, rate = first(rows, "r1 change"), first(rows, "r2 first log rate")
    return Measured(
        change,
        "r = 1: change of the time from ε = 1e-3 to 1e-4",
        facts={"r = 2: dt/d ln(1/ε)·K Πs": rate},
        ok=change < 1e-2 and abs(rate - 1) < 1e-2,
    )


@claim("C19", "ratio 1 within 1 %", uses={"check": "critical depth"})
def critical(rows: Sequence[Row]) -> Measured:
    """The prefactor is 1/[(r−2)KΠs_i] (T11)"""
    cases = [f"{r} {place}" for r in ("r3", "r4") for place in ("first prefactor", "last prefactor")]
    gap = max(abs(first(rows, q) - 1) for q in (*cases, "r2 first log rate", "r2 last log rate"))
    return Measured(
        gap,
        note="1/[(r−2)KΠs] is right with the small layers first; placed last the time is longer, and the law with "
        "E[σ(g)u_p(g)] in K holds at every position (E14)",
        facts={"times longer for r = 3": first(rows, "r3 position ratio")},
        ok=False,
        right=gap <= 0.01,
        otherwise="time over the law, minus 1",
    )


@claim("C21", "O(ε^(q−1)), and O(ε^(L−2)) for L < q+1", uses={"check": "corrections"})
def correction_order(rows: Sequence[Row]) -> Measured:
    """The first correction is O(ε²) for class B and O(ε) for class C away from the resonance"""
    names = ("tanh", "gelu", "silu")
    measured, formula = (firsts(rows, f"{{}} {what}", names) for what in ("measured", "formula"))
    gap = max(abs(measured[n] - formula[n]) for n in names)
    below = first(rows, "order below resonance")
    right = gap <= 0.01 and abs(below - 1) <= 0.05
    return Measured(
        below if right else gap,
        note="O(ε^(q−1)) holds for L > q + 1, with coefficients as derived; for L = 3 < q + 1 the order is L − 2 = 1, "
        "not q − 1 = 2 (E7)",
        facts={"coefficients off by": gap, "order at L = 3": below},
        ok=False,
        right=right,
        otherwise="coefficients or the order at L = 3 are not as derived",
    )


@claim("C22", "slope −λ", uses={"check": "resonance"})
def resonance(rows: Sequence[Row]) -> Measured:
    """A logarithm appears at L = q + 1 (T9)"""
    names = ("tanh", "sin", "erf", "gelu", "silu")
    slope, right, printed = (firsts(rows, f"{{}} {what}", names) for what in ("slope", "corrected", "printed"))
    off = max(abs(slope[n] - right[n]) for n in names)
    return Measured(
        off,
        note="there is a logarithm at L = q + 1 with slope −λ; the printed λ is too small by 2q/(q+1) and its sign is "
        "plus (E3)",
        facts={
            **{f"slope of {n}": slope[n] for n in names},
            "the printed ones are off by at least": min(abs(slope[n] - printed[n]) for n in names),
        },
        ok=False,
        right=off <= 0.01,
        otherwise="the slopes do not equal −λ",
    )


@claim("C23", "2λ' and λ' instead", uses={"check": "corrections"})
def gamma_c(rows: Sequence[Row]) -> Measured:
    """Class C corrects every layer by γ_C = 3σ''(0)²/(2αh)"""
    lowest, others, printed = (first(rows, f"gelu {what}") for what in ("layer 1", "layer 2", "printed"))
    return Measured(
        lowest,
        "relative next order of GELU in the first layer, 2λ'; λ' in the others (E4)",
        facts={"in the others": others, "printed for all layers": printed},
        ok=False,
        right=abs(lowest - 2.2508) <= 0.02 and abs(others - 1.1254) <= 0.02 and abs(lowest - printed) > 0.5,
    )


@claim("C24", "true for the centred model only", uses={"check": "class D"})
def class_d(rows: Sequence[Row]) -> Measured:
    """Class D reduces to the centred activation (T14)"""
    velocities = list(firsts(rows, "sigmoid velocity {}", "123").values())
    centred = list(firsts(rows, "centered:{} time over leading", ("sigmoid", "softplus")).values())
    return Measured(
        velocities[2],
        "the centred model escapes like its class; without biases the plain one has no plateau at zero (E16)",
        facts={"times over leading law": centred, "velocities at X = 1e-3": velocities},
        ok=False,
        right=all(abs(t - 1) < 0.1 for t in centred) and velocities[2] > 0.1,
    )


@claim("C25", "teacher term over β h T → 1 as M²", uses={"check": "signal"})
def signal_drive(rows: Sequence[Row]) -> Measured:
    """γ̇ = β h T(1 + O(M²)) − S (T15)"""
    gap, order = max(values(rows, "drive gap")), values(rows, "drive gap order")
    return Measured(
        gap,
        "teacher term over β h T, minus 1, at ε = 0.01",
        facts={"it falls with order in M": order[0]},
        ok=gap < 2e-4 and all(abs(o - 2) < 0.3 for o in order),
    )


@claim("C26", at_least(0.5, "ratio at least 0.5"), uses={"check": "signal"})
def bootstrap(rows: Sequence[Row]) -> Measured:
    """|S| ≤ C γ T and γ̇ ≥ ½ β h T on the plateau (T16)"""
    least = min(values(rows, "least drive ratio"))
    facts = {"|S|/(γ T) there at most": max(values(rows, "largest self ratio"))}
    return Measured(least, "smallest γ̇/(β h T) while M ≤ 0.4", facts=facts)


@claim("C27", "residual ≤ 2e-3 at ε = 0.01", uses={"check": "signal"})
def rank_one(rows: Sequence[Row]) -> Measured:
    """The gradients of γ are rank one, α^(L−1)B_ℓA_{ℓ−1}ᵀ, up to M²"""
    return bounded(rows, "rank-one residual", 2e-3)


@claim("C28", at_least(1, "bounded below by 1"), uses={"check": "signal"})
def am_gm(rows: Sequence[Row]) -> Measured:
    """T ≥ c' γ^(2−2/r) (T21)"""
    least = min(values(rows, "least am-gm"))
    return Measured(least, "smallest T/γ^(2−2/r) along the plateau, r = 3")


@claim("C29", "drift/M² ≤ 1", uses={"check": "signal"})
def outside(rows: Sequence[Row]) -> Measured:
    """Layers outside the bottleneck move by at most C m0² (T18)"""
    return bounded(rows, "largest drift over M^2", 1.0)


@claim("C32", "density at 0 as of a Gaussian", uses={"check": "nondegeneracy"})
def density(rows: Sequence[Row]) -> Measured:
    """γ(0) is nondegenerate with high probability (T27)"""
    found, errors = values(rows, "density"), values(rows, "density error")
    return Measured(
        found[0],
        "density of the path at 0 in units of its width (unit Gaussian: 0.399); the sign is an event (E18)",
        stderr=errors[0],
        facts={"share of positive starts": first(rows, "positive")},
        ok=all(abs(x - 0.399) < 4 * s for x, s in zip(found, errors)),
    )


@claim("C33", "time over law within 1e-3", uses={"check": "stages"})
def stage_times(rows: Sequence[Row]) -> Measured:
    """t_k = I_L(θ)/Γ_k, ranked by Γ (T26)"""
    return at(rows, {f"depth {d} time over law": (1.0, 1e-3) for d in (2, 3, 4, 5)} | {"ranked": (1.0, 1e-9)})


@claim("C34", "time ratio below 1", uses={"check": "stages"})
def overtaking(rows: Sequence[Row]) -> Measured:
    """A weaker mode with fewer small layers escapes first"""
    return bounded(rows, "weak over strong", 1.0)


@claim("C35", "off-block velocities vanish", uses={"check": "blocks"})
def blocks(rows: Sequence[Row]) -> Measured:
    """The block-aligned ansatz is preserved by the flow"""
    ratio, gap = (max(values(rows, quantity)) for quantity in ("off over on", "reduction gap"))
    return Measured(
        ratio,
        "off-block velocities over the on-block ones; there is an exact manifold for K = 3, L = 4 (E12)",
        facts={"its scalars": first(rows, "scalars"), "it agrees with the full network to": gap},
        ok=False,
        right=ratio > 0.5 and gap <= 1e-12,
    )


@claim("C36", "no violation", uses={"check": "perron"})
def perron(rows: Sequence[Row]) -> Measured:
    """A loop gain above 1 is the same as a positive real eigenvalue (T23)"""
    bad, cases, pairs = (sum(values(rows, quantity)) for quantity in ("violations", "cases", "complex leads"))
    return Measured(
        bad,
        "violations in random cases; complex leading pairs cannot be (E19)",
        facts={"cases": cases, "complex leading pairs": pairs},
        ok=bad == 0 and pairs == 0,
    )


@claim("C36b", "A diagonal, B ≥ 0", uses={"check": "stage one"})
def stage_one(rows: Sequence[Row]) -> Measured:
    """At the balanced saddle the stage-one Jacobian has A, D diagonal and positive and B, C ≥ 0, so a loop gain above 1
    is what makes it unstable

    Erratum E22: the x block grows by itself, at the order ε^(L−2) that Prop. 24 gives to the coupling.
    """
    off, own, rate = (first(rows, q) for q in ("off its diagonal", "own rate", "rate"))
    order = first(rows, "order of the rate")
    return Measured(
        own / rate,
        note="the on-block coordinates feed each other at order ε^(L−2) and grow without any rotation; the decay rates "
        "on the diagonal are smaller by another ε^(L−2), and B has negative entries of that order, so the loop gain of "
        "Prop. 24 does not decide (E22)",
        facts={q: first(rows, q) for q in dict.fromkeys(r["quantity"] for r in rows)},
        ok=off == 0 and first(rows, "least of B") >= 0,
        right=0 < own <= rate and abs(order - 2) < 0.1,
    )


@claim("C37", "strictly increasing", uses={"check": "truncations"})
def truncations(rows: Sequence[Row]) -> Measured:
    """Truncated closures have strictly increasing rates, all below the true one (T24, T25)"""
    return Measured(
        first(rows, "last rate"),
        "rates rise strictly to this value; a weaker hierarchy has a growing mode from some truncation on (E20)",
        facts={"first such truncation": first(rows, "smallest growing truncation")},
        ok=first(rows, "strictly increasing") == 1 and first(rows, "first over last time") > 1,
    )


@claim("C40", "u − u³/2 is B3 with h = −1/2", uses={"check": "classes"})
def sign_of_h(rows: Sequence[Row]) -> Measured:
    """h > 0 does not follow from class B"""
    return at(rows, {"h of u - u^3/2": (-0.5, 1e-9), "cubic is B3": (1.0, 1e-9)})


@claim("C41", "gap ≤ 1e-10", uses={"check": "classes"})
def third_coefficient(rows: Sequence[Row]) -> Measured:
    """h⁽³⁾ = 6s₃ + 3h"""
    return bounded(rows, "hermite gap", 1e-10)


@claim("T4e", "g instead (E5)", uses={"check": "ansatz"})
def first_layer_drive(rows: Sequence[Row]) -> Measured:
    """∂f/∂X_1 has σ(g) as its last factor"""
    printed, gap = first(rows, "printed over true first-layer drive"), max(values(rows, "gradient gap"))
    return Measured(
        gap,
        "right is g, which agrees with automatic differentiation",
        facts={"drive as printed over the true one": printed},
        ok=abs(printed - 1) < 1e-3,
        right=gap <= 1e-10,
    )


@claim("T5", at_most(0.1, "order within 0.1"), uses={"check": "expansion"})
def output_order(rows: Sequence[Row]) -> Measured:
    """The output departs from linear at degree L + q − 1"""
    return Measured(max(firsts(rows, "{} output order gap", ("tanh", "gelu")).values()))


@claim("T7", "ratio 1 within 3 %", uses={"check": "expansion"})
def ray_invariant(rows: Sequence[Row]) -> Measured:
    """On the balanced ray X_1² − X_L² − (2(q−1)/(q+1))λ's^(q+1) is invariant to leading order"""
    return at(rows, {"tanh invariant ratio": (1.0, 0.03), "gelu invariant ratio": (1.0, 0.03)})


@claim("T12", "−0.293 at its edges", uses={"check": "critical depth"})
def shell(rows: Sequence[Row]) -> Measured:
    """The shell estimate holds at every point of a shell"""
    edge = first(rows, "shell edge")
    note = "relative error at the edge of a shell; it holds inside, and for integrals (E15)"
    return Measured(edge, note, ok=False, right=abs(edge + 0.293) < 1e-3)


@claim("T17", "without h; ‖f‖ is larger", uses={"check": "signal"})
def path(rows: Sequence[Row]) -> Measured:
    """γ ≈ h α^(L−1) v_1ᵀW_L⋯W_1v_1 and ‖f‖ ≍ γ"""
    ratio = max(abs(v - 1) for v in values(rows, "gamma over path"))
    return Measured(
        ratio,
        note="γ over α^(L−1) W_L⋯W_1v_1, minus 1: the printed extra factor h is wrong (E10), and ‖f‖ is not of the "
        "size of γ, because of the part across v_1 (E17)",
        facts={"h": first(rows, "h"), "‖f‖/|γ|": max(values(rows, "output over gamma"))},
        ok=False,
        right=ratio < 1e-2,
    )


@claim("T20", "change ≤ 2 %; rate steady within 5 %", uses={"check": "corners"})
def corners(rows: Sequence[Row]) -> Measured:
    """At He initialisation r = 1 is Θ(1) and r = 2 is Θ(ln 1/ε)"""
    change, rate = (max(values(rows, quantity)) for quantity in ("r1 change", "r2 rate change"))
    return Measured(change, facts={"r = 2: dt/d ln(1/ε) changes by": rate}, ok=change <= 0.02 and rate <= 0.05)
