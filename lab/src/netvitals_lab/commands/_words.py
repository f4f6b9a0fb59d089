"""Words of verdicts that several commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netvitals_lab import Verdict

COLOURS = {
    "holds": "green",
    "reproduced": "green",
    "fails": "red",
    "erratum": "yellow",
    "not-reproduced": "magenta",
    "underspecified": "cyan",
    "not-judged": "bright_black",
    "not-run": "bright_black",
}


def coloured(verdict: Verdict) -> str:
    """The verdict's word in its colour."""
    return f"[{COLOURS[verdict.status]}]{verdict.status}[/]"


def note_of(verdict: Verdict) -> str:
    """The verdict's note and what was excluded, escaped for rich."""
    from rich.markup import escape

    excluded = (
        f"{len(verdict.excluded)} of {verdict.trials + len(verdict.excluded)} trials excluded: "
        + "; ".join(f"{t} ({why})" for t, why in verdict.excluded[:3])
        if verdict.excluded
        else ""
    )
    return escape("; ".join(filter(None, (verdict.note, excluded))))
