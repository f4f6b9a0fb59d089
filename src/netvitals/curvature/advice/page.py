"""The page of a report on curvature: sentences, ranked pairs, labelled heat maps, cost; one file without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from netvitals.curvature.advice.design import bottlenecks
from netvitals.curvature.advice.heatmap import Weight, heatmap_svg
from netvitals.curvature.measure.result import InterlayerCurvature

if TYPE_CHECKING:
    from netvitals.curvature.advice.answer import CurvatureReport

LISTED = 15  # pairs in the table
STYLE = """
:root { color-scheme: light dark; --paper: #fbfbf9; --ink: #1d2327; --faint: #5d6870; --line: #d9dde0; --panel: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171a; --ink: #e6e9eb; --faint: #98a3ab; --line: #2f363b; --panel: #1b1f23; }
}
body { margin: 2rem auto; max-width: 64rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 0 0 .3rem; }
section { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 1rem 1.2rem;
  margin: 1rem 0; overflow-x: auto; }
.meaning, .sum, footer { color: var(--faint); margin: 0 0 .6rem; } .found p { margin: .4rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; }
td, th { padding: .2rem 1.4rem .2rem 0; border-bottom: 1px solid var(--line); }
svg { max-width: none; background: #fff; border-radius: 4px; }
"""


def page_of(found: CurvatureReport) -> str:
    """A self-contained page in light and dark."""
    between = found.between
    more = f" The first {LISTED} of {len(found.pairs)}." if len(found.pairs) > LISTED else ""
    shared = (
        "Coupling C is the norm of the block between two layers against those of the two blocks on the diagonal: a "
        f"step in one changes the gradient of the other. ± is one standard error of the probes.{more}"
    )
    spent = (
        f"{found.cost:.0f} gradient-equivalents in {found.seconds:.3g} s: {between.products} products for "
        f"{len(between.nodes)} layers, {between.probes} probes each, and {found.sharpness.steps} for the largest "
        "eigenvalue."
    )
    cards = [
        _card("What was found", "", "".join(f"<p>{escape(s)}</p>" for s in found.sentences()), kind="found"),
        _card("Layers that share curvature", shared, _pairs(found)),
        _card("Coupling of every pair", "Hover over a cell for its names.", _map(found, "coupling")),
        _card(
            "Where Gauss–Newton fails",
            "‖H − GN‖/‖H‖ of every block: 0 where Gauss–Newton is the Hessian; above 1 the two parts of H cancel.",
            _map(found, "missed"),
        ),
        _card("Each layer with itself", "", _own(found)),
        *_activations(found),
        _card("What it cost", "", f"<p>{escape(spent)}</p>"),
    ]
    if found.skipped:
        cards.append(_card("Not measured", "", _table(("place", "why"), found.skipped.items())))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Curvature of {escape(found.model)} · netvitals</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Curvature of {escape(found.model)}</h1>
<p class="sum">Loss {between.loss:.4g} on {between.examples} examples; {escape(found.covered)}
({escape(between.chosen)})</p>
{"".join(cards)}
<footer>Written by netvitals. This file needs no network.</footer>
</body>
</html>
"""


def _pairs(found: CurvatureReport) -> str:
    rows = [
        (p.v, p.w, f"{p.coupling:.3f} ± {p.coupling_stderr:.3f}", f"{100 * p.missed:.0f} %")
        for p in found.pairs[:LISTED]
    ]
    return _table(("layer", "layer", "coupling", "missed by Gauss–Newton"), rows)


def _own(found: CurvatureReport) -> str:
    between, missed = found.between, np.diag(found.between.missed)
    norms = zip(between.nodes, between.sizes, np.diag(between.resonance), np.diag(between.resonance_stderr), missed)
    rows = [(n, f"{size:,}", f"{r:.3g} ± {e:.1g}", f"{100 * m:.0f} %") for n, size, r, e, m in norms]
    return _table(("layer", "parameters", "‖H‖", "missed by Gauss–Newton"), rows)


MAPS: tuple[tuple[Weight, str, str], ...] = (
    ("resonance", "Resonance R between activations", "Frobenius norm of the block of every pair."),
    (
        "coupling",
        "Coupling C between activations",
        "The block against the two on the diagonal: act on such layers together.",
    ),
    ("stable_rank", "Stable rank D between activations", "Directions that a block uses; a low row is a narrow place."),
    (
        "effective_dimension",
        "Effective dimension d_eff between activations",
        "The sum of the singular values over the largest: weak directions count more than in D. Where nodes "
        "are wider than the probes, of the part that these span.",
    ),
    ("gn_gap", "GN-gap between activations", "‖H − GN‖/‖GN‖: 0 behind piecewise linear layers, more where they bend."),
)


def _activations(found: CurvatureReport) -> list[str]:
    """Activation space: heat maps and the bottlenecks."""
    between = found.activations
    if between is None:
        return []
    cards = [_card(title, meaning, _drawn(between, weight)) for weight, title, meaning in MAPS]
    necks = bottlenecks(between)
    if necks:
        rows = [
            (b.node, f"{b.width:,}", f"{b.stable_rank:.1f}", f"{b.effective_dimension:.1f}", f"{b.coupling:.2f}")
            for b in necks
        ]
        cards.append(
            _card(
                "Bottlenecks",
                "Blocks that wider ones pass: means over the pairs on either side.",
                _table(("node", "width", "D", "d_eff", "C"), rows),
            )
        )
    return cards


def _map(found: CurvatureReport, weight: Weight) -> str:
    return _drawn(found.between, weight)


def _drawn(between: InterlayerCurvature, weight: Weight) -> str:
    """The heat map at its own size, so that a small matrix does not fill the page."""
    svg = heatmap_svg(between, weight, 40 if len(between.nodes) <= 14 else 28)
    width = svg.split('viewBox="0 0 ')[1].split(" ")[0]
    return svg.replace("<svg ", f'<svg width="{width}" ', 1)


def _card(title: str, meaning: str, body: str, kind: str = "") -> str:
    below = f'<p class="meaning">{escape(meaning)}</p>' if meaning else ""
    return f'<section class="{kind}"><h2>{escape(title)}</h2>{below}{body}</section>\n'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    line = lambda tag, cells: "<tr>" + "".join(f"<{tag}>{escape(c)}</{tag}>" for c in cells) + "</tr>"
    return f"<table>{line('th', head)}{''.join(line('td', row) for row in rows)}</table>"
