"""The ledger of forecasts on the page: a panel with what is open and how the methods did, and a band on the loss."""

from __future__ import annotations

from html import escape
from typing import Any

from netvitals.findings import Table
from netvitals.forecasts import Forecast, Ledger
from netvitals.forecasts.ledger import scored

ROWS = 60  # open forecasts shown
EVENTS = {"loss/lost": "the run will be lost", "plateau/leaves": "the loss leaves this plateau"}


def ledger_of(readings: Table) -> Ledger | None:
    """The ledger of what was forecast; None where nothing was.

    Args:
        readings: with the forecasts in their metadata.

    Returns:
        The ledger, scored by the readings.
    """
    made = [Forecast.from_dict(record) for record in readings.meta.get("forecasts") or ()]
    if not made:
        return None
    series = {key: (curve.steps, curve.values) for key, curve in readings.series.items()}
    last = max((int(steps[-1]) for steps, _ in series.values() if len(steps)), default=-1)
    return Ledger(forecasts=tuple(made), scores=tuple(scored(made, series, last)), last_step=last)


def bands(book: Ledger | None, readings: Table) -> list[dict[str, Any]]:
    """Events that are still to come, as bands with their dates on the loss curve.

    Args:
        book: the ledger.
        readings: whose loss is drawn.

    Returns:
        What the page's line chart takes: steps, low, high, text.
    """
    loss = readings.loss
    if book is None or loss is None or not len(loss.finite):
        return []
    bottom, top = float(loss.finite.min()), float(loss.finite.max())
    last = max(book.last_step, 1)
    out = []
    for f in book.open:
        if f.is_event and f.interval80[0] < 3 * last:
            ends = [f.interval80[0], min(f.interval80[1], 3.0 * last)]
            what = EVENTS.get(f.quantity, "the loss has fallen by half")
            text = (
                f"{what} near step {f.value:,.0f} ({f.interval80[0]:,.0f} to {f.interval80[1]:,.0f}, odds four to one)"
            )
            out.append({"steps": ends, "low": [bottom] * 2, "high": [top] * 2, "text": text})
    return out


def panels(book: Ledger | None) -> list[dict[str, str]]:
    """The panel of the page.

    Args:
        book: the ledger.

    Returns:
        Title and HTML, or nothing.
    """
    if book is None:
        return []
    furthest: dict[tuple[str, str], Forecast] = {}
    for f in sorted(book.open, key=lambda f: f.for_step):
        furthest[f.quantity, f.site] = f
    ordered = sorted(furthest.values(), key=lambda f: (not f.is_event, f.quantity))
    rows = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in _cells(f)) + "</tr>" for f in ordered[:ROWS])
    head = "".join(f"<th>{h}</th>" for h in ("quantity", "where", "for step", "value", "80 % interval", "method"))
    table = (
        f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>' if rows else ""
    )
    did = "".join(f"<li>{escape(str(m))}</li>" for m in book.methods())
    refused = f"<li>last refusal: {escape(str(book.refused[-1]))}</li>" if book.refused else ""
    meaning = (
        "What is said of days to come, with odds; each was stored when it was made and is scored when its day comes, "
        "against forecasts without a law."
    )
    html = f'<p class="meaning">{meaning}</p>{table}<h3>So far on this run</h3><ul>{did}{refused}</ul>'
    return [{"title": "Forecasts", "html": html}]


def _cells(f: Forecast) -> tuple[str, ...]:
    low, high = f.interval80
    return (
        f.quantity,
        f.site,
        "event" if f.is_event else f"{f.for_step:,}",
        f"step {f.value:,.0f}" if f.is_event else f"{f.value:.4g}",
        f"{low:,.0f} to {high:,.0f}" if f.is_event else f"{low:.4g} to {high:.4g}",
        f.method + (" (demoted)" if "demoted" in f.conditions else ""),
    )
