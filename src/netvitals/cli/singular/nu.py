"""``netvitals singular nu``: the singular fluctuation of one dead direction."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer


def run(
    k: Annotated[int, typer.Argument(help="KL order k of the direction, a whole number of at least 1.")],
    h: Annotated[float, typer.Option("--h", help="Exponent h of the prior |u|^h.")] = 0.0,
    beta: Annotated[float, typer.Option(help="Inverse temperature of the posterior.")] = 1.0,
    n: Annotated[
        int | None,
        typer.Option("--n", help="Number of samples n; if given, also print the predicted errors for this n."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compute singular fluctuation ν and learning coefficient λ of one dead direction of KL order k."""
    from netvitals import singular
    from netvitals.singular import WatanabeTriple, nu_data_free, rlct_single

    value, (lam, m) = singular.nu(k, h, beta), rlct_single(k, h=h)
    triple = WatanabeTriple(lam, m, value)
    out: dict[str, Any] = {
        "k": k,
        "h": h,
        "beta": beta,
        "lambda": lam,
        "m": m,
        "nu": value,
        "nu_data_free": nu_data_free(k, h),
    }
    if n is not None:
        out |= {
            "n": n,
            "generalisation": triple.generalisation(n),
            "training": triple.training(n),
            "gap": triple.gap(n),
        }
    if as_json:
        typer.echo(json.dumps(out))
        return
    typer.echo(
        f"ν({k}) = {value:.6f}   λ = {lam:.6g}, m = {m}   without data fluctuation {out['nu_data_free']:.6f}"
        + (f"   (h = {h:g}, β = {beta:g})" if (h, beta) != (0.0, 1.0) else "")
    )
    if n is not None:
        typer.echo(
            f"n = {n}: expected loss above the entropy {out['generalisation']:+.3g} on new data, "
            f"{out['training']:+.3g} on the training data, gap {out['gap']:.3g}"
        )
