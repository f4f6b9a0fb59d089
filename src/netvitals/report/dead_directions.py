"""Pictures of dead directions: orders on log axes, the Fisher spectrum by class, λ over training, σ over depth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals._plot import Plot, Series
from netvitals.report.page_shell import render_html, write_html
from netvitals.singular import Classified, CoefficientHistory, KLOrder, PartHistories, Readout, StreamSigma

CLASSES = {"transversal": 1, "tangential": 2, "constant": 0, "unclear": 7, "zero": 3}  # class → colour
MOST = 8  # directions in one picture of orders

saved = write_html  # the name under which the commands know it


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
    return Plot(
        "distance t along the direction", "Fisher information along the direction", series, log_x=True, log_y=True
    )


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


def coefficient_plot(found: CoefficientHistory | PartHistories) -> Plot:
    """λ̂ with its standard error over the steps, one curve a part, the loss on the second axis.

    What is not to be believed is drawn apart, in grey and without a line.
    """
    histories = [found] if isinstance(found, CoefficientHistory) else list(found)
    series = []
    for tone, history in enumerate(histories):
        name = history.part or "λ, with its standard error"
        for believed in (True, False):
            some = [(s, c) for s, c in zip(history.steps, history.coefficients) if c.ok is believed]
            if not some:
                continue
            series.append(
                Series(
                    name if believed else f"{history.part + ', ' if history.part else ''}not reliable",
                    [s for s, _ in some],
                    [c.mean for _, c in some],
                    [c.stderr for _, c in some],
                    line=believed,
                    tone=tone if believed else 7,
                )
            )
    loss = histories[0].loss
    series.append(Series("loss", list(histories[0].steps), list(loss), line=True, dashed=True, right=True, tone=1))
    return Plot("step", "learning coefficient λ", series, right_label="loss", log_right=min(loss) > 0)


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


@dataclass(frozen=True)
class Section:
    """One card of a page without script."""

    title: str
    meaning: str
    body: Any  # markup


@dataclass(frozen=True)
class SectionsModel:
    """What ``sections.html.j2`` knows."""

    title: str
    sections: Sequence[Section]


def readout_page(
    found: Readout,
    *,
    title: str = "Readout of one checkpoint",
    stream: StreamSigma | None = None,
    spectrum: Classified | None = None,
) -> str:
    """The readout as one HTML page: verdict in words, candidates, conditions, pictures."""
    sections = [Section("Result", "", _text(found)), *_order_sections(found)]
    if spectrum is not None:
        meaning = f"Eigenvalues of the parameters that the first singular direction moves, along it: {spectrum}."
        sections.append(Section("Spectrum", meaning, _picture(spectrum_plot(spectrum))))
    if stream is not None:
        sections.append(Section("Stream", f"{stream}.", _picture(stream_plot(stream))))
    rows = [(c.name, c.kind, c.verdict, c.why) for c in found.candidates]
    scanned = _table(("direction", "kind", "verdict", "why"), rows)
    sections.append(Section("Candidates", "All parameter directions that were measured.", scanned))
    met = _table((), found.conditions.items())
    sections.append(Section("Conditions", "The conditions of the theory, and whether this model meets them.", met))
    if found.skipped:
        sections.append(Section("Not measured", "", _list(found.skipped)))
    return page_of(title, sections)


def history_page(
    found: CoefficientHistory | PartHistories, *, title: str = "Learning coefficient over training"
) -> str:
    """λ̂ over training as one HTML page: the picture, the numbers, and the health of the chains behind them."""
    meaning = (
        "The effective number of parameters at each checkpoint, beside the loss. Grey points are not reliable; the "
        "table gives the reason."
    )
    rows = [
        (
            *([row["part"]] if "part" in row else []),
            row["step"],
            _number(row["lambda"], ".4g"),
            _number(row["stderr"], ".2g"),
            _number(row["r_hat"], ".3f"),
            _number(row["effective_draws"], ".0f"),
            _number(row["well"], ".0%"),
            _number(row["below"], ".0%"),
            "yes" if row["ok"] else f"no: {row['note']}",
        )
        for row in found.rows()
    ]
    head = ("step", "λ", "± error", "R̂", "effective draws", "inside the well", "below the baseline", "reliable")
    health = _table((("part", *head) if isinstance(found, PartHistories) else head), rows)
    return page_of(
        title,
        [
            Section("λ over training", meaning, _picture(coefficient_plot(found))),
            Section(
                "Health of the chains",
                "Convergence diagnostics: the worst value over loss, distance and random projections.",
                health,
            ),
            Section("Numbers", "", _text(found)),
        ],
    )


def _number(value: float | None, how: str) -> str:
    return "–" if value is None else format(value, how)


def page_of(title: str, sections: Sequence[Section]) -> str:
    """One HTML file without script or network: headline and cards."""
    return render_html("sections.html.j2", SectionsModel(title, sections), styles=("sections.css",))


def _order_sections(found: Readout) -> list[Section]:
    scans = {c.name: c.scan for v in ("singular", "unclear", "regular") for c in found.of(v)}
    if not scans:
        return []
    meaning = (
        "The Fisher information along a direction, against the distance t. For a singular direction of order k it "
        "falls to zero with the dashed slope 2(k − 1). For a regular direction it is constant."
    )
    meaning += f" The first {MOST} of {len(scans)} directions are plotted." if len(scans) > MOST else ""
    return [Section("Orders", meaning, _picture(order_plot(scans, {c.name: c.verdict for c in found.candidates})))]


def _text(value: Any) -> Any:
    from markupsafe import Markup

    return Markup("<pre>{}</pre>").format(str(value))


def _picture(plot: Plot) -> Any:
    from markupsafe import Markup

    return Markup(plot.html())


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Any:
    from markupsafe import Markup

    cells = lambda tag, row: Markup("").join(Markup(f"<{tag}>{{}}</{tag}>").format(c) for c in row)
    top = Markup("<thead><tr>{}</tr></thead>").format(cells("th", head)) if head else ""
    body = Markup("").join(Markup("<tr>{}</tr>").format(cells("td", row)) for row in rows)
    return Markup("<div class='table'><table class='words'>{}<tbody>{}</tbody></table></div>").format(top, body)


def _list(places: Mapping[str, str]) -> Any:
    from markupsafe import Markup

    items = Markup("").join(Markup("<li><code>{}</code>: {}</li>").format(n, why) for n, why in places.items())
    return Markup("<ul class='unseen'>{}</ul>").format(items)
