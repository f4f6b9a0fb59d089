"""What claims are made of: choosing rows, and turning numbers into verdicts."""

from netvitals_lab.engine.judges.combinators import agree, all_near, at_most, corrected, near, sign_of, slope_of
from netvitals_lab.engine.judges.comparing import Difference, compared, difference, paired
from netvitals_lab.engine.judges.factors import at_level, by_factor, together
from netvitals_lab.engine.judges.rows import column, frame, groups, largest_gap, matches, means, one, some
from netvitals_lab.engine.judges.setups import Setup, over_setups

__all__ = [
    "Difference",
    "Setup",
    "agree",
    "all_near",
    "at_level",
    "at_most",
    "by_factor",
    "column",
    "compared",
    "corrected",
    "difference",
    "frame",
    "groups",
    "largest_gap",
    "matches",
    "means",
    "near",
    "one",
    "over_setups",
    "paired",
    "sign_of",
    "slope_of",
    "some",
    "together",
]
