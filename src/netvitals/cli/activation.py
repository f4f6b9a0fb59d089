"""``netvitals activation NAME``: what theory says of an activation before any training, on one page."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netvitals.cli import _groups

if TYPE_CHECKING:
    from rich.console import Console
    from torch import nn

POINTS = (-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0)
LABEL = 8  # room for the largest and smallest value beside a curve
COLLAPSED = 0.33  # σ falls about threefold over a published run, and μ settles near −0.05


def register(app: typer.Typer) -> None:
    app.command("activation", rich_help_panel=_groups.MODELS)(describe_activation)


def describe_activation(
    name: str = typer.Argument(
        help="Name of an activation, such as gelu, softplus:20 or topk:gelu:0.75, or PKG.MODULE:NAME of your own."
    ),
    theta: Annotated[
        list[float] | None, typer.Option(help="Threshold for gate density; may be repeated. [default: 0.01, 0.1]")
    ] = None,
    mu: float = typer.Option(-0.05, help="Mean pre-activation for which gate density is predicted."),
    depth: int = typer.Option(
        4,
        help="Number of weight matrices of the network, used to compute its rate of escape from the saddle at zero.",
    ),
    width: int = typer.Option(
        64, help="Hidden width of the network, used to compute its rate of escape from the saddle at zero."
    ),
    beta: float = typer.Option(
        1.0, help="Strength beta of the target function, used to compute the rate of escape from the saddle at zero."
    ),
    as_json: bool = typer.Option(
        False, "--json", help='Print one JSON object, with infinities as the strings "inf" and "-inf".'
    ),
) -> None:
    """Describe an activation: formula, class, gate thresholds, constants and predictions."""
    from rich.console import Console

    from netvitals.capture import plain

    facts = page(name, theta or (0.01, 0.1), mu, depth, width, beta)
    if as_json:
        typer.echo(json.dumps(plain(facts, odd=_word), ensure_ascii=False))
    else:
        _print(Console(emoji=False), facts, _module(name))


def page(name: str, thetas: Sequence[float], mu: float, depth: int, width: int, beta: float) -> dict[str, Any]:
    """Everything the page shows, as plain data."""
    import torch

    from netvitals import activations as A

    module = _module(name)
    spec = A.spec_of(module) or name
    kind = A.classify(module)
    facts: dict[str, Any] = {
        "name": spec,
        "formula": _formula(spec),
        "class": {
            "label": kind.label,
            "q": kind.q,
            "why": kind.why,
            "almost_everywhere": kind.almost_everywhere,
            "centered": kind.centered,
            "phi_order": kind.phi_order,
            "phi_leading": kind.phi_leading,
        },
    }
    if isinstance(module, (A.TopK, A.QuantileReLU)):
        module.eval()
        zeros = float((module(torch.randn(256, 1024, generator=torch.Generator().manual_seed(0))) == 0).double().mean())
        return facts | {"elementwise": False, "zeros_under_normal_input": zeros}
    f, slope = A.derivative_pair(module)
    z = torch.tensor(POINTS, dtype=torch.float64)
    numbers = A.constants(module)
    facts |= {
        "elementwise": True,
        "values": [{"z": a, "f": b, "slope": c} for a, b, c in zip(POINTS, f(z).tolist(), slope(z).tolist())],
        "under_normal_input": {
            "mean": A.expect(f),
            "mean_square": A.expect(lambda g: f(g) ** 2),
            "mean_gate": A.expect(lambda g: slope(g).abs()),
            "smoothness_index": A.expect(lambda g: slope(g) ** 2) - A.expect(slope) ** 2,
        },
        "constants": {
            key: getattr(numbers, key)
            for key in ("slope", "q", "a_q", "h", "h_q", "half_power", "lam", "lam_printed", "gamma_printed", "offset")
        },
        "gates": [_gates(A.crossings(module, theta), mu) for theta in thetas],
        "mu": mu,
    }
    drive: dict[str, Any] = {"depth": depth, "width": width, "beta": beta}
    try:
        drive |= {
            "K_t": numbers.drive(depth, width, beta),
            "K_s": numbers.drive(depth, width, beta, clock="s"),
            "escapes": numbers.escapes(depth),
        }
    except ValueError as error:
        if not math.isnan(numbers.slope):
            raise
        drive["why_not"] = str(error)
    return facts | {"drive": drive}


def _gates(found: Any, mu: float) -> dict[str, Any]:
    before, after = (float(found.density(mu, sigma)) for sigma in (1.0, COLLAPSED))
    margin = mu - found.z_low
    return {
        "theta": found.theta,
        "z_low": found.z_low,
        "z_low_literal": found.z_low_literal,
        "intervals": [list(pair) for pair in found.intervals],
        "oscillates": found.oscillates,
        "density_standard_normal": float(found.density(0.0, 1.0)),
        "density_before": before,
        "density_after": after,
        "margin": margin,
        "limit": float(found.active(_scalar(mu))),
        "direction": "stays" if abs(after - before) < 5e-5 else "rises" if after > before else "falls",
    }


def _scalar(value: float) -> Any:
    import torch

    return torch.tensor(value, dtype=torch.float64)


def _module(name: str) -> nn.Module:
    from netvitals import activations as A

    head, _, rest = name.partition(":")
    if "." not in head:
        return A.get(name)
    import importlib
    import sys

    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(head), rest, None)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{name!r} was read as PKG.MODULE:NAME, but there is no module {error.name!r} in this environment"
        ) from None
    finally:
        sys.path.remove("")
    if found is None:
        raise ValueError(f"the module {head} has no attribute {rest!r}")
    return A.get(found)


def _formula(spec: str) -> str:
    from netvitals import activations as A

    try:
        return A.formula(spec)
    except ValueError:
        return "a function of your own"


def _word(value: float) -> str | None:
    """JSON has no infinities and no NaN: strings for the first, null for the second."""
    return None if math.isnan(value) else str(value)


def _print(console: Console, facts: dict[str, Any], module: nn.Module) -> None:
    from rich.table import Table
    from rich.text import Text

    kind = facts["class"]
    console.print(Text.assemble((facts["name"], "bold"), f"   f(x) = {facts['formula']}"))
    extent = " almost everywhere" if kind["almost_everywhere"] else ""
    console.print(Text(f"class {kind['label']}{extent}: {kind['why']}"))
    if not facts["elementwise"]:
        console.print(
            f"zeros under N(0, 1) input: {facts['zeros_under_normal_input']:.1%}; crossings and constants "
            "are defined for elementwise functions only"
        )
        return
    _print_curves(console, module)
    values = Table(box=None, pad_edge=False)
    for title in ("z", *(f"{v['z']:g}" for v in facts["values"])):
        values.add_column(title, justify="right")
    for row in ("f", "slope"):
        shown = (v[row] if abs(v[row]) > 5e-7 else 0.0 for v in facts["values"])
        values.add_row("f" if row == "f" else "f'", *(f"{v:.4g}" for v in shown))
    console.print(values)
    normal = {key: round(value, 4) + 0.0 for key, value in facts["under_normal_input"].items()}  # no −0
    console.print(
        f"\nunder N(0, 1): mean {normal['mean']:.4f}, mean square {normal['mean_square']:.4f}, mean gate "
        f"|f'| {normal['mean_gate']:.4f}, variance of f' {normal['smoothness_index']:.4f}"
    )
    _print_gates(console, facts)
    _print_constants(console, facts)


def _print_gates(console: Console, facts: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("theta", "z_low", "literal", "density", "at collapse", "limit", "active set"):
        table.add_column(title, justify="left" if title == "active set" else "right", no_wrap=title != "active set")
    for g in facts["gates"]:
        shown = g["intervals"] if len(g["intervals"]) < 4 else [i for i in g["intervals"] if abs(sum(i)) < 7][:3]
        where = " ".join(f"({a:.4g}, {b:.4g})" for a, b in shown) or "nowhere"
        where += " ..." if len(g["intervals"]) > len(shown) else ""
        table.add_row(
            f"{g['theta']:g}",
            f"{g['z_low']:.4f}",
            f"{g['z_low_literal']:.4f}",
            f"{g['density_standard_normal']:.4f}",
            f"{g['density_before']:.3f} -> {g['density_after']:.3f} {g['direction']}",
            f"{g['limit']:.0f}",
            where,
        )
    console.print()
    console.print(table)
    note = (
        f"density: share of gates |f'| > theta under N(0, 1). at collapse: the same with mean {facts['mu']:g}, "
        f"spread falling from 1 to {COLLAPSED:g}. limit: spread 0."
    )
    console.print(note, style="dim", highlight=False)


def _print_constants(console: Console, facts: dict[str, Any]) -> None:
    c, d = facts["constants"], facts["drive"]
    show = lambda v: "undefined" if math.isnan(v) else f"{v:.6g}"
    console.print(
        f"\nslope f'(0) {show(c['slope'])}, q {show(c['q'])}, a_q {show(c['a_q'])}, h {show(c['h'])}, "
        f"h_q {show(c['h_q'])}, half power {show(c['half_power'])}, lambda {show(c['lam'])} "
        f"(printed in the paper: {show(c['lam_printed'])})"
    )
    if c["offset"]:
        console.print(f"f(0) = {c['offset']:.6g} is taken away first: only f - f(0) has a saddle at zero weights")
    if "K_t" in d:
        sign = "positive: the zero saddle is left" if d["escapes"] else "not positive: the escape law does not apply"
        console.print(
            f"drive at depth {d['depth']}, width {d['width']}, beta {d['beta']:g}: K_t {d['K_t']:.6g} in "
            f"reduced time, K_s {d['K_s']:.6g} in learning rate x steps; {sign}"
        )
    else:
        console.print(d["why_not"], markup=False)


def _print_curves(console: Console, module: nn.Module) -> None:
    import torch
    from rich.table import Table

    from netvitals import activations as A

    f, slope = A.derivative_pair(module)
    width = max(16, min(44, (console.width - 2) // 2 - LABEL))
    z = torch.linspace(-4, 4, 2 * width, dtype=torch.float64)
    grid = Table.grid(padding=(0, 2))
    for _ in range(2):
        grid.add_column(no_wrap=True)
    grid.add_row("[bold]f[/] on (-4, 4)", "[bold]f'[/] on (-4, 4)")
    grid.add_row(*("\n".join(braille(values.tolist(), width, 8)) for values in (f(z), slope(z))))
    console.print(grid)


def braille(values: Sequence[float], width: int, height: int) -> list[str]:
    """A curve in braille dots, two columns and four rows of dots per character, with the zero line dotted.

    >>> braille([0, 1, 2, 3, 4, 5, 6, 7], width=4, height=2)
    ['⠀⠀⡠⠊ 7', '⡠⠊⠀⠀ 0']
    """
    low, high = min(*values, 0.0), max(*values, 0.0)
    rows = 4 * height - 1
    level = lambda v: rows - round((v - low) / ((high - low) or 1.0) * rows)
    cells = [[0] * width for _ in range(height)]
    bits = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
    zero, before = level(0.0), level(values[0])
    for i, value in enumerate(values[: 2 * width]):
        here = level(value)
        step = 1 if here >= before else -1
        # join steep pieces, but leave the dot of the last column where it was
        dots = [*range(before + step, here, step), here] if abs(here - before) > 1 else [here]
        for y in dots + ([zero] if i % 4 == 0 and low < 0 else []):
            cells[y // 4][i // 2] |= bits[i % 2][y % 4]
        before = here
    lines = ["".join(chr(0x2800 + cell) for cell in row) for row in cells]
    lines[0] += f" {high:.3g}"
    lines[-1] += f" {low:.3g}"
    return lines
