"""Readings and laws turned into plain advice and forecasts."""

from netvitals.findings.curves import Curve, Table, is_pooled, table
from netvitals.findings.diagnosis import RULES, Checked, Findings, activations_of, diagnose
from netvitals.runs import Evidence, Finding

__all__ = [
    "RULES",
    "Checked",
    "Evidence",
    "Finding",
    "Findings",
    "Curve",
    "Table",
    "activations_of",
    "diagnose",
    "is_pooled",
    "table",
]
