"""Pictures of dead directions: orders on log axes, the Fisher spectrum by class, λ over training, σ over depth."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from netvitals._version import __version__
from netvitals.report.plot import Plot, Series
from netvitals.report.plot import style as plot_style
from netvitals.singular import Classified, CoefficientHistory, KLOrder, Readout, StreamSigma

TEMPLATES = Path(__file__).with_name("templates")
CLASSES = {"transversal": 1, "tangential": 2, "constant": 0, "unclear": 7, "zero": 3}  # class → colour
MOST = 8  # directions in one picture of orders


def order_plot(scans: KLOrder | Mapping[str, KLOrder], verdicts: Mapping[str, str] | None = None) -> Plot:
    """The directional Fisher over the way out, and dashed the slope 2(k − 1) that the order predicts.

    Points without a whole order have no line, and those with another verdict than "singular" neither. Where the order
    is above 1 the way is counted from the singular set.
    """
    named = {"": scans} if isinstance(scans, KLOrder) else dict(scans)
    series = []
    for tone, (name, scan) in enumerate(list(named.items())[:MOST]):
        verdict = (verdicts or {}).get(name, "singular")
        order = scan.order if verdict == "singular" else None
        t = scan.ts + (scan.fisher_fit.shift if (order or 1) > 1 else 0.0)
        seen = scan.fisher > 0
        wording = f"order {order}" if order else "not singular" if verdict == "singular" else verdict
        label = ", ".join(filter(None, (name, wording)))
        series.append(Series(label, t[seen].tolist(), scan.fisher[seen].tolist(), tone=tone))
        if order is not None and seen.any():
            slope = 2 * (order - 1)
            middle = np.exp(np.mean(np.log(scan.fisher[seen]) - slope * np.log(t[seen])))
            series.append(
                Series(label, t[seen].tolist(), (middle * t[seen] ** slope).tolist(), line=True, dashed=True, tone=tone)
            )
    return Plot("way along the direction", "Fisher form along the direction", series, log_x=True, log_y=True)


def spectrum_plot(found: Classified) -> Plot:
    """Every eigenvalue of the Fisher matrix along the path, coloured by its class."""
    series = []
    for label, tone in CLASSES.items():
        group = found.of(label)
        if not group:
            continue
        if label == "zero":
            series.append(Series(f"zero: {len(group)}, not drawn", [], [], tone=tone))
            continue
        rates = sorted({round(d.exponent) for d in group})
        name = f"{label}: {len(group)}" + (f", t^{', t^'.join(map(str, rates))}" if label != "unclear" else "")
        series += [Series(name, found.ts.tolist(), d.values.tolist(), line=True, tone=tone) for d in group]
    return Plot("t", "eigenvalues of the Fisher matrix", series, log_x=True, log_y=True)


def coefficient_plot(history: CoefficientHistory) -> Plot:
    """λ̂ with its standard error over the steps, the loss on the second axis."""
    steps = list(history.steps)
    return Plot(
        "step",
        "learning coefficient λ",
        [
            Series(
                "λ, with its standard error",
                steps,
                [c.mean for c in history.coefficients],
                [c.stderr for c in history.coefficients],
                line=True,
            ),
            Series("loss", steps, list(history.loss), line=True, dashed=True, right=True),
        ],
        right_label="loss",
        log_right=min(history.loss) > 0,
    )


def stream_plot(stream: StreamSigma) -> Plot:
    """σ_r of the residual stream at each node over depth, with the largest singular value above it."""
    depth = list(range(len(stream.nodes)))
    return Plot(
        "depth: 0 is the input of the first block",
        "singular values of the stream",
        [
            Series(f"σ_{stream.rank}, the weakest active direction", depth, stream.sigma, line=True),
            Series("σ_1, the strongest", depth, stream.largest, line=True, dashed=True),
        ],
        log_y=True,
    )


def readout_page(
    found: Readout,
    *,
    title: str = "Readout of one checkpoint",
    stream: StreamSigma | None = None,
    spectrum: Classified | None = None,
) -> str:
    """The readout as one HTML page: verdict in words, candidates, conditions, pictures."""
    scans = {c.name: c.scan for v in ("singular", "unclear", "regular") for c in found.of(v)}
    sections = [("What was found", "", f"<pre>{escape(str(found))}</pre>")]
    if scans:
        sections.append(
            (
                "Orders",
                "The Fisher form along a direction, scanned outward. A singular direction falls "
                "towards the left with the dashed slope 2(k − 1); a regular one is flat."
                + (f" The first {MOST} of {len(scans)} are drawn." if len(scans) > MOST else ""),
                order_plot(scans, {c.name: c.verdict for c in found.candidates}).html(),
            )
        )
    if spectrum is not None:
        sections.append(
            (
                "Spectrum",
                f"Eigenvalues of the parameters that the first singular direction moves, along it: {spectrum}.",
                spectrum_plot(spectrum).html(),
            )
        )
    if stream is not None:
        sections.append(("Stream", f"{stream}.", stream_plot(stream).html()))
    rows = "".join(
        f"<tr><td>{escape(c.name)}</td><td>{c.kind}</td><td>{c.verdict}</td><td>{escape(c.why)}</td></tr>"
        for c in found.candidates
    )
    sections.append(
        (
            "Candidates",
            "Every direction that was scanned.",
            "<div class='table'><table class='words'>"
            "<thead><tr><th>direction</th><th>kind</th><th>verdict</th><th>why</th></tr></thead><tbody>"
            f"{rows}</tbody></table></div>",
        )
    )
    conditions = "".join(f"<tr><td>{escape(n)}</td><td>{escape(s)}</td></tr>" for n, s in found.conditions.items())
    sections.append(
        (
            "Conditions",
            "What the theory asks for, and whether it was met.",
            f"<div class='table'><table class='words'><tbody>{conditions}</tbody></table></div>",
        )
    )
    if found.skipped:
        sections.append(
            (
                "Not looked at",
                "",
                "<ul class='skipped'>"
                + "".join(f"<li><code>{escape(n)}</code>: {escape(w)}</li>" for n, w in found.skipped.items())
                + "</ul>",
            )
        )
    return page(title, sections)


def history_page(history: CoefficientHistory, *, title: str = "Learning coefficient over training") -> str:
    return page(
        title,
        [
            (
                "λ over training",
                "The effective number of parameters at each checkpoint, beside the loss.",
                coefficient_plot(history).html(),
            ),
            ("Numbers", "", f"<pre>{escape(str(history))}</pre>"),
        ],
    )


def page(title: str, sections: Sequence[tuple[str, str, str]]) -> str:
    """One HTML file without script or network: headline and cards of (title, meaning, body)."""
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8") + plot_style()
    own = (
        ".card pre { white-space: pre-wrap; font-size: 13px; margin: 8px 0 0; } .keys { margin-top: 6px; "
        "font-size: 13px; color: var(--soft); } table.words td, table.words th { white-space: normal; text-align: "
        "left; font-family: var(--sans); font-size: 13.5px; vertical-align: top; "
        "overflow-wrap: break-word; padding-right: 14px; }"
    )
    cards = "".join(
        f'<section class="card"><header><h2>{escape(name)}</h2></header>'
        + (f'<p class="meaning">{escape(meaning)}</p>' if meaning else "")
        + body
        + "</section>"
        for name, meaning, body in sections
    )
    return (
        '<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)} · netvitals</title><style>{style}{own}</style></head><body><main>"
        f'<section class="hero"><h1>{escape(title)}</h1></section>{cards}'
        f"<footer>Written by netvitals {__version__}. This file needs no network.</footer></main></body></html>"
    )


def saved(text: str, path: str | os.PathLike[str], name: str) -> Path:
    """Write a page, whole or not at all; a folder gets ``name``."""
    target: Any = Path(path)
    if target.is_dir():
        target = target / name
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(target.name + ".part")
    draft.write_text(text, encoding="utf-8")
    draft.replace(target)
    return Path(target)
