"""Which modules get hooks on a pass: all of them, or, once the sites are known, those that somebody looks at.

A full pass goes everywhere with the torch function mode on; it is the reference, and finds the sites. A short pass goes
only to known sites that are looked at, without the mode, and reads the same there. A model may change: every
``FULL``-th pass is full, and so is the one after a pass that did not meet what it expected.
"""

from __future__ import annotations

from collections.abc import Mapping

from netvitals.capture.site import Site

FULL = 20  # every so many passes of a model go everywhere


class Route:
    """The way of the next pass through a model.

    Args:
        sites: the sites met so far, by name; kept up to date by whoever meets them.

    ``short`` says whether the pass is a short one, ``anew`` whether the modules of the model have to be read again.
    """

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self._sites = sites
        self._passes = 0
        self._strayed = False
        self._stops: dict[frozenset[str], frozenset[str] | None] = {}
        self._expected = 0
        self.short = False
        self.anew = True

    def choose(self, wanted: frozenset[str]) -> frozenset[str] | None:
        """Names of the modules to visit on the next pass, for kinds of sites that somebody wants; None for all."""
        self.anew = self._passes % FULL == 0 or self._strayed
        if self.anew:
            self._strayed = False
            self._stops.clear()
            stops = None
        else:
            if wanted not in self._stops:
                self._stops[wanted] = self._stops_for(wanted)
            stops = self._stops[wanted]
        self.short = stops is not None
        if self.short:
            self._expected = sum(site.kind in wanted or site.kind == "output" for site in self._sites.values())
        return stops

    def _stops_for(self, wanted: frozenset[str]) -> frozenset[str] | None:
        met = [site for site in self._sites.values() if site.kind in wanted]
        if any("()" in site.name for site in met):  # a functional call is seen by the mode alone
            return None
        return frozenset(site.module for site in met)

    def begin(self) -> None:
        """A pass begins."""
        self._passes += 1

    def stray(self) -> None:
        """A short pass met a site that is not known."""
        self._strayed = True

    def end(self, met: int) -> None:
        """A pass is over and has met so many sites."""
        if self.short and met != self._expected:
            self._strayed = True
