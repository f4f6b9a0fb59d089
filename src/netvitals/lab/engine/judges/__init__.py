"""What claims are made of: choosing rows, and turning numbers into verdicts."""

from netvitals.lab.engine.judges.combinators import agree, at_most, corrected, near, sign_of, slope_of
from netvitals.lab.engine.judges.rows import frame, matches, means, one, some

__all__ = [
    "agree",
    "at_most",
    "corrected",
    "frame",
    "matches",
    "means",
    "near",
    "one",
    "sign_of",
    "slope_of",
    "some",
]
