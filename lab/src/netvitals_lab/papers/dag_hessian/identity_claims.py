"""Claims on the identities of the graph Hessian, and the printed formulas that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from netvitals_lab import Claim, Expected, Row, Verdict, decide
from netvitals_lab.engine.judges import at_most, column, corrected
from netvitals_lab.papers.dag_hessian.identities import NAME


def small(key: str, most: float) -> Callable[[Sequence[Row]], Verdict]:
    return lambda rows: at_most(max(column(rows, key)), most, f"largest over {len(rows)} random graphs")


def wrong(right: str, printed: str, note: str, most: float = 1e-10) -> Callable[[Sequence[Row]], Verdict]:
    """An erratum when the corrected formula is exact and the printed one is not."""

    def judge(rows: Sequence[Row]) -> Verdict:
        good, bad = max(column(rows, right)), max(column(rows, printed))
        words = f"relative error of the corrected form. {note}"
        facts = {"as printed": bad}
        return corrected(False, good <= most < bad, good, words, otherwise="not as the erratum says", facts=facts)

    return judge


def always(key: str) -> Callable[[Sequence[Row]], Verdict]:
    def judge(rows: Sequence[Row]) -> Verdict:
        seen = [bool(r[key]) for r in rows if r[key] is not None]
        return decide(bool(seen) and all(seen), f"{sum(seen)} of {len(seen)} graphs")

    return judge


def skips(rows: Sequence[Row]) -> Verdict:
    slack = max(column(rows, "theorem_34_printed"))
    return corrected(
        False,
        slack < 1 and all(r["theorem_34"] and r["theorem_34_lower"] for r in rows),
        slack,
        "printed bound over the measured resonance, below 1: false. (1 + ρ^k)^{L/k} above and (1 − ρ^k)^{L/k} below "
        "hold (E17)",
        otherwise="not as the erratum says",
    )


def residual(rows: Sequence[Row]) -> Verdict:
    zero = max(max(r["relu_tensor"], r["relu_diagonal_residual"]) for r in rows)
    left = min(r["relu_off_residual"] for r in rows)
    return decide(
        zero < 1e-12 < 1e-6 < left,
        left,
        note=f"smallest mixed residual between different layers' "
        f"parameters; T and the diagonal residual at most {zero:.0e}",
    )


def negative(rows: Sequence[Row]) -> Verdict:
    mass, gn = min(column(rows, "relu_negative_mass")), min(column(rows, "gn_lowest"))
    return corrected(
        False,
        mass > 1e-6 and gn > -1e-10,
        mass,
        "smallest negative mass of a relu net's parameter Hessian, although T = 0: the mixed residual is negative "
        "curvature too (E25)",
        otherwise="smallest negative mass of a relu net's parameter Hessian",
        facts={"lowest relative eigenvalue of GN": gn},
    )


def semidefinite(rows: Sequence[Row]) -> Verdict:
    """In activation space, where H = H_GN + H_T: no negative curvature in H_GN, and no H_T in a relu net."""
    gn, tensor = min(column(rows, "gn_lowest")), max(column(rows, "relu_tensor"))
    facts = {"largest T of a relu net": tensor}
    return decide(gn > -1e-10 and tensor < 1e-12, gn, note="lowest relative eigenvalue of H_GN", facts=facts)


def rescaling(rows: Sequence[Row]) -> Verdict:
    relu, tanh = (max(column(rows, f"rescaling_{act}")) for act in ("relu", "tanh"))
    note = "largest change of C for tanh; the activation must be positively homogeneous (E20)"
    return corrected(False, relu < 1e-9 < tanh, tanh, note, facts={"for relu": relu})


def direction(rows: Sequence[Row]) -> Verdict:
    one, many = (sum(column(rows, key)) / len(rows) for key in ("spread_1", "spread_16"))
    note = "relative spread of one probe at rank 1 over rank 16. High rank needs fewer probes, not more (E28)"
    return corrected(False, one > 2 * many, one / many, note, facts={"at rank 1": one, "at rank 16": many})


def clipping(rows: Sequence[Row]) -> Verdict:
    few, many = (sum(column(rows, key)) / len(rows) for key in ("above_5", "above_400"))
    note = "share of estimates above 1 when C = 1, at 400 probes; shared probes remove the noise instead (E29)"
    return corrected(many <= 0.3 and many < few / 10, many > 0.3, many, note, facts={"at 5 probes": few})


def claims() -> Iterator[Claim]:
    put = lambda id, text, expected, judge: Claim(
        id=f"dag-hessian/{id}",
        study=NAME,
        statement=text,
        expected=Expected(direction=expected),
        judge=judge,
    )
    yield put(
        "T7",
        "H splits into Gauss–Newton and tensor part; the closed form gives both.",
        "equal to autograd",
        small("closed_error", 1e-10),
    )
    yield put(
        "T2",
        "Eq. 2 with Remark 76 gives every block.",
        "equal to autograd",
        wrong("onesided_error", "paper_error", "It drops mixed tensors on merges of unequal depth (E3)."),
    )
    yield put(
        "T19",
        "Eq. 5 and Algorithm 2 give the parameter Hessian.",
        "equal to autograd",
        wrong("parameter_error", "parameter_printed_error", "It sees mixed terms of grandparents only (E5)."),
    )
    yield put(
        "T20",
        "The product with propagated tangents is the Hessian-vector product.",
        "equal to the dense product",
        wrong("product_error", "product_printed_error", "Injected tangents are right, propagated ones are not (E27)."),
    )
    yield put("T25", "In a chain R(v,w) ≤ ‖H_ww‖ times the Jacobian's norm.", "always", always("theorem_25"))
    yield put(
        "T26",
        "In contracting nets GN resonance is at most ‖∇²L‖(sρ)^distance.",
        "always",
        always("corollary_26"),
    )
    yield put("T26s", "The same with the sum of distances to the output.", "always", always("corollary_26_strong"))
    yield put(
        "T17",
        "The norm of a parameter block is bounded by that of the activation block.",
        "always",
        always("corollary_17"),
    )
    yield put("T67", "Resonance is at most the sum of its path resonances.", "always", always("corollary_67"))
    yield put(
        "T33",
        "A block is the sum over pairs of paths to all common descendants.",
        "equal",
        wrong("theorem_33", "theorem_33_printed", "Only paths to the loss count (E16)."),
    )
    yield put("T34", "With identity skips every k layers R ≤ ‖∇²L‖ρ^k.", "always", skips)
    yield put(
        "T10",
        "Relu nets: T vanishes, the parameter Hessian keeps a residual off the diagonal.",
        "zero, and not zero",
        residual,
    )
    yield put(
        "T83", "In activation space negative curvature comes from T only.", "no negative mass where T = 0", semidefinite
    )
    yield put(
        "P85",
        "Directions of negative curvature of the loss in its parameters come from T only.",
        "none where T = 0",
        negative,
    )
    yield put("T44", "Coupling is invariant under rescaling of adjacent layers.", "no change", rescaling)
    yield put("T28", "The number of probes must grow with the rank.", "spread rises with rank", direction)
    yield put("T51", "The share of Ĉ > 1 falls like 1/m, so it may be clipped.", "falls", clipping)


CLAIMS = tuple(claims())
