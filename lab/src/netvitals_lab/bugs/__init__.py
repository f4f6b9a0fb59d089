"""A benchmark of training bugs that people reported, each with its fix, and of unusual scripts that are healthy.

``cases/bugs`` and ``cases/healthy`` hold stand-alone scripts with training loops of their own. A line that ends in
``# bug`` exists in the buggy variant only, a line ``# fix: CODE`` in the fixed one. Half of the sources, chosen by a
hash, are for development; the numbers of the other half are published. ``cases/third`` holds a third collection, from
fields that the halves cover thinly. It is held out: it was written with the rules closed, and has a table of its own.
"""

from netvitals_lab.bugs.case import Case, cases
from netvitals_lab.bugs.runner import Outcome, run_cases
from netvitals_lab.bugs.scores import table

__all__ = ["Case", "Outcome", "cases", "run_cases", "table"]
