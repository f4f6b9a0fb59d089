"""Which way a measured pass goes: traced, with an eye on the operations of the plan, or by hooks alone.

A traced pass sees everything; it is the reference, and makes the plan. Later passes go only to known sites that
somebody looks at, and read the same there; the operations of inline activations are picked up where the plan has such.
A model may change: now and then a pass is traced anew, and so is the one after a pass that did not meet what it
expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from netvitals.capture.site import Site

FULL = 50  # passes from one trace to the next; twice as many each time that nothing has changed, up to LONGEST
LONGEST = 800

Way = Literal["trace", "operations", "hooks"]


class PassPlan:
    """The way of the next pass through a model."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self._sites = sites
        self._passes = 0
        self._next = 0  # the pass that is traced at the latest
        self._gap = 0
        self._strayed = False
        self._expected = 0
        self.way: Way = "trace"
        self.stops: frozenset[str] = frozenset()  # modules to visit, where the pass is not traced

    def choose(self, wanted: frozenset[str], found_by_operations: Mapping[str, str]) -> Way:
        """The way of the next pass."""
        if self._strayed or self._passes >= self._next:
            self.way = "trace"
            return self.way
        met = [s for s in self._sites.values() if s.name not in found_by_operations]
        stops = [s for s in met if s.kind in wanted]
        self.stops = frozenset(s.module for s in stops)
        self._expected = len(stops) + sum(s.kind == "output" and s.kind not in wanted for s in met)
        self.way = "operations" if wanted.intersection(found_by_operations.values()) else "hooks"
        return self.way

    def begin(self) -> None:
        """A pass begins."""
        self._passes += 1

    def stray(self) -> None:
        """A pass met a site that is not known, or missed one: the next is traced."""
        self._strayed = True

    def end(self, met: int) -> None:
        """A pass is over and has met so many sites."""
        if self.way != "trace":
            self._strayed = self._strayed or met != self._expected
            return
        self._gap = FULL if self._strayed or not self._gap else min(2 * self._gap, LONGEST)
        self._next = self._passes - 1 + self._gap
        self._strayed = False
