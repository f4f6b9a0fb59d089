"""Whose statement every claim is: set by hand, one table a paper, beside its studies.

    claim, whose, place, decides, headline

*whose* is paper, correction or ours; *place* the section, table, figure or equation; *decides* why a set-up of ours may
decide a statement of the paper, empty where it may not; *headline* the set-up in a few words, of the claims that a page
opens with, in their order.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import cast

from netvitals_lab.engine.claim import Claim, Whose

FOLDER = Path(__file__).parents[1] / "papers"
COLUMNS = ["claim", "whose", "place", "decides", "headline"]


@dataclass(frozen=True)
class Statement:
    """One row of the table."""

    claim: str
    whose: Whose
    place: str
    decides: str
    headline: str


@cache
def statements(folder: str) -> dict[str, Statement]:
    """The table of one folder of ``papers``, by claim, in its order; empty where there is none.

    >>> statements("activations")["activations/definition"].whose
    'paper'
    """
    path = FOLDER / folder.replace("-", "_") / "statements.csv"
    found: dict[str, Statement] = {}
    if not path.is_file():
        return found
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != COLUMNS:
            raise ValueError(f"{path}: the columns are {', '.join(COLUMNS)}, got {', '.join(reader.fieldnames or ())}")
        for row in reader:
            if row["claim"] in found:
                raise ValueError(f"{path}: two rows for {row['claim']}")
            found[row["claim"]] = Statement(
                row["claim"], cast(Whose, row["whose"]), row["place"], row["decides"], row["headline"]
            )
    return found


def position(claim: Claim) -> tuple[bool, int]:
    """Where a claim stands in the tables; those of a paper's own folder first, a claim without a row at the end."""
    folder = claim.id.split("/")[0]
    order = list(statements(folder))
    return folder != claim.paper, order.index(claim.id) if claim.id in order else len(order)


def attributed(folder: str, claims: Iterable[Claim]) -> Iterator[Claim]:
    """The claims of a folder, each with whose it is; a claim without a row is refused where there is a table."""
    table = statements(folder)
    if not table:
        yield from claims
        return
    for claim in claims:
        row = table.get(claim.id)
        if row is None:
            raise ValueError(f"claim {claim.id}: say whose it is, in papers/{folder.replace('-', '_')}/statements.csv")
        yield replace(claim, whose=row.whose, place=row.place, decides=row.decides, headline=row.headline)
