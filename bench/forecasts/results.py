"""Where the results of these benchmarks are kept."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "forecasts.json"


def store(part: str, value: Any) -> None:
    """Put one part into the results, the others stay."""
    known = load() if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**known, part: plain(value)}, indent=1) + "\n")


def load() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def plain(value: Any) -> Any:
    """Four digits, and null for what is not finite."""
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    return value
