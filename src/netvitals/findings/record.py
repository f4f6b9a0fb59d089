"""What the clinic measured of each rule: how often it is right, and how often its advice mended a run.

The numbers are those of the clinic's test set, written by ``bench/bugs/planted.py`` into ``clinic.json`` beside this
file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from netvitals.runs import Finding

FILE = Path(__file__).with_name("clinic.json")


@cache
def measured() -> Mapping[str, Any]:
    """Everything the clinic measured, or nothing where it was never run."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}


def of_rule(rule: str) -> Mapping[str, Any]:
    """How a rule did in the clinic."""
    return measured().get("rules", {}).get(rule, {})


def of_advice(finding: Finding) -> str:
    """How often the advice of a finding mended a run, in a sentence; empty where nobody tried."""
    if finding.remedy is None:
        return ""
    tried = measured().get("advice", {}).get(finding.rule, {}).get(finding.remedy.kind)
    if not tried or tried["tried"] < 3:
        return ""
    return f"This advice mended {tried['mended']} of {tried['tried']} such runs in our clinic."
