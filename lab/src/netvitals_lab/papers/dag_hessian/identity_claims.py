"""Claims on the identities of the graph Hessian, and the printed formulas that are wrong."""

from __future__ import annotations

from collections.abc import Sequence

from netvitals_lab import Claims, Measured, Row
from netvitals_lab.engine.judges import column
from netvitals_lab.papers.dag_hessian.identities import NAME


def small(rows: Sequence[Row], key: str, most: float) -> Measured:
    worst = max(column(rows, key))
    return Measured(worst, f"largest over {len(rows)} random graphs", ok=worst <= most)


def wrong(rows: Sequence[Row], right: str, printed: str, note: str, most: float = 1e-10) -> Measured:
    """An erratum when the corrected formula is exact and the printed one is not."""
    good, bad = max(column(rows, right)), max(column(rows, printed))
    words = f"relative error of the corrected form. {note}"
    facts = {"as printed": bad}
    return Measured(good, words, facts=facts, ok=False, right=good <= most < bad, otherwise="not as the erratum says")


def always(rows: Sequence[Row], key: str) -> Measured:
    seen = [bool(r[key]) for r in rows if r[key] is not None]
    return Measured(f"{sum(seen)} of {len(seen)} graphs", ok=bool(seen) and all(seen))


claim = Claims("dag-hessian", study=NAME)


@claim("T7", "equal to autograd")
def splits(rows: Sequence[Row]) -> Measured:
    """H splits into Gauss–Newton and tensor part; the closed form gives both."""
    return small(rows, "closed_error", 1e-10)


@claim("T2", "equal to autograd")
def every_block(rows: Sequence[Row]) -> Measured:
    """Eq. 2 with Remark 76 gives every block."""
    return wrong(rows, "onesided_error", "paper_error", "It drops mixed tensors on merges of unequal depth (E3).")


@claim("T19", "equal to autograd")
def parameters(rows: Sequence[Row]) -> Measured:
    """Eq. 5 and Algorithm 2 give the parameter Hessian."""
    return wrong(rows, "parameter_error", "parameter_printed_error", "It sees mixed terms of grandparents only (E5).")


@claim("T20", "equal to the dense product")
def product(rows: Sequence[Row]) -> Measured:
    """The product with propagated tangents is the Hessian-vector product."""
    return wrong(
        rows, "product_error", "product_printed_error", "Injected tangents are right, propagated ones are not (E27)."
    )


@claim("T25", "always")
def chain_bound(rows: Sequence[Row]) -> Measured:
    """In a chain R(v,w) ≤ ‖H_ww‖ times the Jacobian's norm."""
    return always(rows, "theorem_25")


@claim("T26", "always")
def contracting(rows: Sequence[Row]) -> Measured:
    """In contracting nets GN resonance is at most ‖∇²L‖(sρ)^distance."""
    return always(rows, "corollary_26")


@claim("T26s", "always")
def contracting_sum(rows: Sequence[Row]) -> Measured:
    """The same with the sum of distances to the output."""
    return always(rows, "corollary_26_strong")


@claim("T17", "always")
def parameter_bound(rows: Sequence[Row]) -> Measured:
    """The norm of a parameter block is bounded by that of the activation block."""
    return always(rows, "corollary_17")


@claim("T67", "always")
def path_sum(rows: Sequence[Row]) -> Measured:
    """Resonance is at most the sum of its path resonances."""
    return always(rows, "corollary_67")


@claim("T33", "equal")
def common_descendants(rows: Sequence[Row]) -> Measured:
    """A block is the sum over pairs of paths to all common descendants."""
    return wrong(rows, "theorem_33", "theorem_33_printed", "Only paths to the loss count (E16).")


@claim("T34", "always")
def skips(rows: Sequence[Row]) -> Measured:
    """With identity skips every k layers R ≤ ‖∇²L‖ρ^k."""
    slack = max(column(rows, "theorem_34_printed"))
    return Measured(
        slack,
        note="printed bound over the measured resonance, below 1: false. (1 + ρ^k)^{L/k} above and (1 − ρ^k)^{L/k} "
        "below hold (E17)",
        ok=False,
        right=slack < 1 and all(r["theorem_34"] and r["theorem_34_lower"] for r in rows),
        otherwise="not as the erratum says",
    )


@claim("T10", "zero, and not zero")
def residual(rows: Sequence[Row]) -> Measured:
    """Relu nets: T vanishes, the parameter Hessian keeps a residual off the diagonal."""
    zero = max(max(r["relu_tensor"], r["relu_diagonal_residual"]) for r in rows)
    left = min(r["relu_off_residual"] for r in rows)
    return Measured(
        left,
        note=f"smallest mixed residual between different layers' "
        f"parameters; T and the diagonal residual at most {zero:.0e}",
        ok=zero < 1e-12 < 1e-6 < left,
    )


@claim("T83", "no negative mass where T = 0")
def semidefinite(rows: Sequence[Row]) -> Measured:
    """In activation space negative curvature comes from T only.

    In activation space, where H = H_GN + H_T: no negative curvature in H_GN, and no H_T in a relu net.
    """
    gn, tensor = min(column(rows, "gn_lowest")), max(column(rows, "relu_tensor"))
    facts = {"largest T of a relu net": tensor}
    return Measured(gn, "lowest relative eigenvalue of H_GN", facts=facts, ok=gn > -1e-10 and tensor < 1e-12)


@claim("P85", "none where T = 0")
def negative(rows: Sequence[Row]) -> Measured:
    """Directions of negative curvature of the loss in its parameters come from T only."""
    mass, gn = min(column(rows, "relu_negative_mass")), min(column(rows, "gn_lowest"))
    return Measured(
        mass,
        note="smallest negative mass of a relu net's parameter Hessian, although T = 0: the mixed residual is negative "
        "curvature too (E25)",
        facts={"lowest relative eigenvalue of GN": gn},
        ok=False,
        right=mass > 1e-6 and gn > -1e-10,
        otherwise="smallest negative mass of a relu net's parameter Hessian",
    )


@claim("T44", "no change")
def rescaling(rows: Sequence[Row]) -> Measured:
    """Coupling is invariant under rescaling of adjacent layers."""
    relu, tanh = (max(column(rows, f"rescaling_{act}")) for act in ("relu", "tanh"))
    note = "largest change of C for tanh; the activation must be positively homogeneous (E20)"
    return Measured(tanh, note, facts={"for relu": relu}, ok=False, right=relu < 1e-9 < tanh)


@claim("T28", "spread rises with rank")
def direction(rows: Sequence[Row]) -> Measured:
    """The number of probes must grow with the rank."""
    one, many = (sum(column(rows, key)) / len(rows) for key in ("spread_1", "spread_16"))
    note = "relative spread of one probe at rank 1 over rank 16. High rank needs fewer probes, not more (E28)"
    return Measured(one / many, note, facts={"at rank 1": one, "at rank 16": many}, ok=False, right=one > 2 * many)


@claim("T51", "falls")
def clipping(rows: Sequence[Row]) -> Measured:
    """The share of Ĉ > 1 falls like 1/m, so it may be clipped."""
    few, many = (sum(column(rows, key)) / len(rows) for key in ("above_5", "above_400"))
    note = "share of estimates above 1 when C = 1, at 400 probes; shared probes remove the noise instead (E29)"
    return Measured(many, note, facts={"at 5 probes": few}, ok=many <= 0.3 and many < few / 10, right=many > 0.3)
