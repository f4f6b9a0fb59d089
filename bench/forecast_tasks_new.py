"""Tasks and rows of families that are made when the rule for rehearsals is settled."""

from __future__ import annotations

from typing import Any

NEW_FAMILIES: tuple[str, ...] = ()
NEW_TASKS: dict[str, Any] = {}
ROWS = ""
