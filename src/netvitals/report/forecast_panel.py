"""Forecasts on the page: what is said of days to come, what is drawn on the loss, and how each method did so far."""

from __future__ import annotations

from typing import Any

from netvitals.findings import Measurements
from netvitals.forecasts import Forecast, ForecastLog, scored

ROWS = 60  # open forecasts shown
EVENTS = {"loss/lost": "lost", "plateau/leaves": "leaves this plateau"}


def forecast_panel(measurements: Measurements) -> dict[str, Any] | None:
    """What the page says of forecasts, as plain values."""
    made = [Forecast.from_dict(record) for record in measurements.meta.get("forecasts") or ()]
    if not made:
        return None
    series = {key: (curve.steps, curve.values) for key, curve in measurements.series.items()}
    last = max((int(c.steps[-1]) for c in measurements.series.values() if len(c.steps)), default=-1)
    book = ForecastLog(forecasts=tuple(made), scores=tuple(scored(made, series, last)), last_step=last)
    methods = [str(m) for m in book.methods()]
    methods += [f"last refusal: {book.refused[-1]}"] if book.refused else []
    return {"rows": _rows(book), "methods": methods, "ahead": _ahead(book)}


def _rows(book: ForecastLog) -> list[list[str]]:
    """Open forecasts: events first, then the last day of each quantity and site, by look-ahead where there was one."""
    furthest: dict[tuple[str, str], Forecast] = {}
    for f in sorted(book.open, key=lambda f: (f.method == "look-ahead", f.for_step)):
        furthest[f.quantity, f.site] = f
    ordered = sorted(furthest.values(), key=lambda f: (not f.is_event, f.quantity))
    return [
        [
            f.quantity,
            f.site,
            "event" if f.is_event else f"{f.for_step:,}",
            f"step {f.value:,.0f}" if f.is_event else f"{f.value:.4g}",
            f"{f.interval80[0]:,.4g} to {f.interval80[1]:,.4g}",
            f.method + (" (demoted)" if "demoted" in f.conditions else ""),
        ]
        for f in ordered[:ROWS]
    ]


def _ahead(book: ForecastLog) -> dict[str, Any] | None:
    """The event that is drawn on the loss curve as a band with its date."""
    events = [f for f in book.open if f.is_event]
    if not events:
        return None
    f = max(events, key=lambda f: (f.quantity.startswith("loss/"), f.made_at))
    what = EVENTS.get(f.quantity, "fallen by half")
    return {"from": f.interval80[0], "to": f.interval80[1], "at": f.value, "text": what}
