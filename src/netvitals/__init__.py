"""Watch a PyTorch model while it trains, find what is wrong and why, and measure what a loss curve hides.

``watch`` for training, ``checkup`` for one checkpoint, ``open_run`` for what a watch has stored; one package per paper
(``gates``, ``saddle``, ``singular``, ``drift``, ``curvature``). Everything is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from netvitals._version import __version__ as __version__

if TYPE_CHECKING:
    from netvitals import activations as activations
    from netvitals import anatomy as anatomy
    from netvitals import curvature as curvature
    from netvitals import drift as drift
    from netvitals import gates as gates
    from netvitals import integrations as integrations
    from netvitals import layers as layers
    from netvitals import optim as optim
    from netvitals import report as report
    from netvitals import saddle as saddle
    from netvitals import singular as singular
    from netvitals import vitals as vitals
    from netvitals.capture import Metric as Metric
    from netvitals.capture import Vital as Vital
    from netvitals.checkups import Checkup as Checkup
    from netvitals.checkups import checkup as checkup
    from netvitals.findings import Finding as Finding
    from netvitals.findings import Findings as Findings
    from netvitals.findings import open_run as open_run
    from netvitals.forecasts import Forecast as Forecast
    from netvitals.forecasts import Lookahead as Lookahead
    from netvitals.preflights import Preflight as Preflight
    from netvitals.preflights import preflight as preflight
    from netvitals.runs import Run as Run
    from netvitals.watching import Watch as Watch
    from netvitals.watching import watch as watch

_PACKAGES = (
    "activations",
    "anatomy",
    "curvature",
    "drift",
    "gates",
    "integrations",
    "layers",
    "optim",
    "report",
    "saddle",
    "singular",
    "vitals",
)
# module → what it holds of the public API
_HOMES: dict[str, tuple[str, ...]] = {
    "capture": ("Metric", "Vital"),
    "checkups": ("Checkup", "checkup"),
    "findings": ("Finding", "Findings", "open_run"),
    "forecasts": ("Forecast", "Lookahead"),
    "preflights": ("Preflight", "preflight"),
    "runs": ("Run",),
    "watching": ("Watch", "watch"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
__all__ = ["__version__", *sorted(_HOME), *_PACKAGES]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _PACKAGES:
            return importlib.import_module(f"netvitals.{name}")
        if name in _HOME:
            value = globals()[name] = getattr(importlib.import_module(f"netvitals.{_HOME[name]}"), name)
            return value
        import difflib

        near = difflib.get_close_matches(name, __all__, 1)
        raise AttributeError(f"netvitals has no {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
