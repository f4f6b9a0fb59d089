"""What claims are made of: choosing rows, and turning numbers into verdicts."""

from netvitals.lab.engine.judges.combinators import agree, all_near, at_most, corrected, near, sign_of, slope_of
from netvitals.lab.engine.judges.rows import column, frame, groups, largest_gap, matches, means, one, some

__all__ = [
    "agree",
    "all_near",
    "at_most",
    "column",
    "corrected",
    "frame",
    "groups",
    "largest_gap",
    "matches",
    "means",
    "near",
    "one",
    "sign_of",
    "slope_of",
    "some",
]
