"""Forecasts on the page: whether they were worth anything so far, what is said, and what is drawn on the loss."""

from __future__ import annotations

from typing import Any

from netvitals.findings import Measurements
from netvitals.forecasts import Forecast, ForecastLog, log_of

EVENTS = {"loss/lost": "diverges", "plateau/leaves": "leaves this plateau"}


def forecast_panel(measurements: Measurements) -> dict[str, Any] | None:
    """What the page says of forecasts, as plain values."""
    made = [Forecast.from_dict(record) for record in measurements.meta.get("forecasts") or ()]
    if not made:
        return None
    book = log_of(made, {key: (curve.steps, curve.values) for key, curve in measurements.series.items()})
    methods = [book.worth, *map(str, book.methods())]
    methods += [f"last refusal: {book.refused[-1]}"] if book.refused else []
    return {"rows": _rows(book), "methods": methods, "ahead": _ahead(book)}


def _rows(book: ForecastLog) -> list[list[str]]:
    """Open forecasts: the latest of each quantity."""
    return [
        [
            f.quantity,
            f.site,
            "event",
            f"step {f.value:,.0f}",
            f"{f.interval80[0]:,.4g} to {f.interval80[1]:,.4g}",
            f.method,
        ]
        for f in sorted(book.open, key=lambda f: f.quantity)
    ]


def _ahead(book: ForecastLog) -> dict[str, Any] | None:
    """The event that is drawn on the loss curve as a band with its step."""
    if not book.open:
        return None
    f = max(book.open, key=lambda f: (f.quantity.startswith("loss/"), f.made_at))
    what = EVENTS.get(f.quantity, "fallen by half")
    return {"from": f.interval80[0], "to": f.interval80[1], "at": f.value, "text": what}
