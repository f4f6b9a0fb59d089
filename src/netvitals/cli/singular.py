"""``netvitals singular``: models with known answers, the singular fluctuation, and the readout of a checkpoint."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Dead directions: orders, learning coefficients, readouts.")
    app.add_typer(group, name="singular")

    @group.command()
    def zoo(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
        """Models whose answers are known: the exact values beside what the estimators return."""
        from rich.progress import track

        from netvitals.singular.networks import zoo as room

        found = [room.examine(s) for s in track(room.specimens(), "examining", transient=True, disable=as_json)]
        rows: list[dict[str, Any]] = [
            {
                "model": e.specimen.name,
                "order": e.specimen.order,
                "estimate": _number(e.estimate),
                "ratio": _number(e.ratio),
                "lambda": e.specimen.lam,
                "m": e.specimen.m,
                "lambda_found": _number(e.lam),
                "m_found": e.m,
                "nu": e.specimen.nu,
                "agrees": e.agrees,
                "note": e.specimen.note,
            }
            for e in found
        ]
        if as_json:
            typer.echo(json.dumps(rows))
        else:
            _table(
                ["model", "order k", "found", "F t²/K (2k²)", "λ, m", "found", "ν", ""],
                [
                    [
                        r["model"],
                        _text(r["order"], "gauge"),
                        _text(r["estimate"], "gauge", ".4f"),
                        "" if r["ratio"] is None else f"{r['ratio']:.4g} ({2 * (r['order'] or 0) ** 2})",
                        f"{r['lambda']:.4g}, {r['m']}",
                        "" if r["lambda_found"] is None else f"{r['lambda_found']:.4g}, {r['m_found']}",
                        _text(r["nu"], "", ".6f"),
                        "agrees" if r["agrees"] else "DISAGREES",
                    ]
                    for r in rows
                ],
                "models with known answers",
            )
        if not all(e.agrees for e in found):
            raise typer.Exit(1)

    @group.command()
    def nu(
        k: Annotated[int, typer.Argument(help="KL order of the direction, 1 or more.")],
        h: Annotated[float, typer.Option("--h", help="Exponent of the prior |u|^h.")] = 0.0,
        beta: Annotated[float, typer.Option(help="Inverse temperature.")] = 1.0,
        n: Annotated[int | None, typer.Option("--n", help="Sample size: also print what follows for it.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ) -> None:
        """The singular fluctuation of one dead direction of order K, with λ and what they say of n samples."""
        from netvitals import singular

        value, (lam, m) = singular.nu(k, h, beta), singular.rlct_single(k, h=h)
        triple = singular.WatanabeTriple(lam, m, value)
        out: dict[str, Any] = {
            "k": k,
            "h": h,
            "beta": beta,
            "lambda": lam,
            "m": m,
            "nu": value,
            "nu_data_free": singular.nu_data_free(k, h),
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

    @group.command()
    def readout(
        target: Annotated[
            str,
            typer.Argument(
                metavar="PKG.MODULE:FACTORY", help="A function without arguments that returns model, loss_fn, batch."
            ),
        ],
        loss: Annotated[
            str | None, typer.Option(help="ce or mse; by default from the loss function or the targets.")
        ] = None,
        units: Annotated[int, typer.Option(help="Hidden units per pair of layers, the weakest first.")] = 4,
        html: Annotated[Path | None, typer.Option(help="Also write a page with pictures to this file.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ) -> None:
        """Orders, λ, m and ν of one checkpoint, or why there are none."""
        from rich.console import Console

        from netvitals import singular
        from netvitals.cli.checkup import made

        model, loss_fn, batch = made(target)
        with Console(stderr=True, emoji=False).status("scanning directions"):
            kind = loss or _kind(loss_fn, batch)
            found = singular.readout(model, kind, batch, units=units)
            page = _page(found, model, kind, batch) if html is not None else ""
        if html is not None:
            from netvitals.report.dead_directions import saved

            typer.echo(saved(page, html, "readout.html"), err=True)
        if not as_json:
            typer.echo(str(found))
            return
        triple = found.triple
        typer.echo(
            json.dumps(
                {
                    "lambda": triple.lam if triple else None,
                    "m": triple.m if triple else None,
                    "nu": triple.nu if triple else None,
                    "interval": found.interval,
                    "conditions": found.conditions,
                    "skipped": found.skipped,
                    "notes": list(found.notes),
                    "candidates": [
                        {
                            "name": c.name,
                            "kind": c.kind,
                            "verdict": c.verdict,
                            "order": c.scan.order,
                            "slope": _number(c.scan.slope),
                            "stderr": _number(c.scan.stderr),
                        }
                        for c in found.candidates
                    ],
                }
            )
        )

    @group.command()
    def coefficient(
        target: Annotated[
            str,
            typer.Argument(
                metavar="PKG.MODULE:FACTORY", help="A function without arguments that returns model, loss_fn, batch."
            ),
        ],
        checkpoints: Annotated[
            list[Path] | None,
            typer.Argument(
                help="State dicts saved by torch.save, in the order of training; without them the model as it is."
            ),
        ] = None,
        chains: Annotated[int, typer.Option(help="Chains, at least one.")] = 4,
        draws: Annotated[int, typer.Option(help="Draws kept of each chain.")] = 400,
        localization: Annotated[float, typer.Option(help="Pull back to the checkpoint.")] = 1.0,
        html: Annotated[Path | None, typer.Option(help="Also write a page with the picture.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ) -> None:
        """The local learning coefficient of a model, or of each of its checkpoints."""
        from rich.progress import Progress

        from netvitals import singular
        from netvitals.cli.checkup import made

        model, loss_fn, batch = made(target)
        states = _states(checkpoints or []) or {0: model.state_dict()}
        with Progress(transient=True, disable=as_json) as bar:
            task = bar.add_task("sampling", total=len(states))
            found = singular.coefficient_history(
                model,
                loss_fn,
                tuple(batch),
                states,
                chains=chains,
                draws=draws,
                localization=localization,
                progress=lambda done, _: bar.update(task, completed=done),
            )
        if html is not None:
            from netvitals.report.dead_directions import history_page, saved

            typer.echo(saved(history_page(found), html, "coefficient.html"), err=True)
        if not as_json:
            typer.echo(str(found))
            return
        typer.echo(
            json.dumps(
                [
                    {
                        "step": s,
                        "lambda": _number(c.mean),
                        "stderr": _number(c.stderr),
                        "loss": c.baseline,
                        "diverged": len(c.health.diverged),
                    }
                    for s, c in zip(found.steps, found.coefficients)
                ]
            )
        )


def _states(paths: list[Path]) -> dict[int, Any]:
    """State dicts by step: the last number in each file's name, else its place in the list."""
    import re

    import torch

    out: dict[int, Any] = {}
    for place, path in enumerate(paths):
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no checkpoint {path}") from None
        except Exception as error:
            raise ValueError(f"{path} is no state dict saved by torch.save: {str(error).splitlines()[0]}") from error
        if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
            raise ValueError(f"{path} holds no state dict: save model.state_dict()")
        numbers = re.findall(r"\d+", path.stem)
        step = int(numbers[-1]) if numbers else place
        if step in out:
            raise ValueError(
                f"two checkpoints stand for step {step}, one of them {path}: the last number in a file's "
                "name is its step"
            )
        out[step] = state
    return out


def _page(found: Any, model: Any, kind: Any, batch: Any) -> str:
    """The readout's page, with the stream and the spectrum where there are such."""
    from netvitals import singular
    from netvitals.report.dead_directions import readout_page

    stream = spectrum = None
    with contextlib.suppress(ValueError, RuntimeError, TypeError):  # a model without a residual stream
        stream = singular.sigma_stream(model, batch)
    small = [c for c in found.of("singular") if sum(d.numel() for d in c.direction.values()) <= 2000]
    if small:
        spectrum = singular.spectrum_along(model, kind, batch, small[0])
    return readout_page(found, title=f"Readout of {type(model).__name__}", stream=stream, spectrum=spectrum)


def _kind(loss_fn: Any, batch: Any) -> Any:
    """The loss itself where the readout knows it, else by the targets: whole numbers are classes."""
    from torch import Tensor, nn
    from torch.nn import functional as F

    if isinstance(loss_fn, str | nn.CrossEntropyLoss | nn.MSELoss) or loss_fn in (F.cross_entropy, F.mse_loss):
        return loss_fn
    if not isinstance(batch, tuple | list) or len(batch) != 2 or not isinstance(batch[1], Tensor):
        raise ValueError("the kind of loss cannot be told from this batch: say --loss ce or --loss mse")
    return "mse" if batch[1].is_floating_point() else "ce"


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _text(value: float | None, missing: str, form: str = "") -> str:
    return missing if value is None else format(value, form)


def _table(head: list[str], rows: list[list[str]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*head, title=title)
    for row in rows:
        table.add_row(*row)
    Console(emoji=False).print(table)
