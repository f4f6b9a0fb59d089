"""What claims are made of: choosing rows, comparing over paired seeds, asking over set-ups and factors."""

from netvitals_lab.engine.judges.comparing import Difference, compared, difference, paired
from netvitals_lab.engine.judges.factors import at_level, by_factor, together
from netvitals_lab.engine.judges.rows import column, frame, groups, largest_gap, matches, means, one, some
from netvitals_lab.engine.judges.setups import Setup, over_setups

__all__ = [
    "Difference",
    "Setup",
    "at_level",
    "by_factor",
    "column",
    "compared",
    "difference",
    "frame",
    "groups",
    "largest_gap",
    "matches",
    "means",
    "one",
    "over_setups",
    "paired",
    "some",
    "together",
]
