"""Gate density: which units carry gradient, and whether that will rise or fall.

If unsure, use :func:`measure` on a model and a batch. ``density`` and ``moments`` are for tensors, ``predict`` and
``margins`` say what a mean and a spread of inputs mean for the gates, ``forecast`` what a shrinking spread does next,
``trends`` how well margins tell the trend of densities. While a model trains: the vital signs ``gates`` and
``preactivations``.
"""

from netvitals.gates import trends
from netvitals.gates.forecasting import Forecast, forecast
from netvitals.gates.measurement import measure
from netvitals.gates.prediction import PREDICTORS, Margins, margins, predict
from netvitals.gates.report import GateReport, SiteGates
from netvitals.gates.tensors import GateDensity, Moments, density, moments

__all__ = [
    "PREDICTORS",
    "Forecast",
    "GateDensity",
    "GateReport",
    "Margins",
    "Moments",
    "SiteGates",
    "density",
    "forecast",
    "margins",
    "measure",
    "moments",
    "predict",
    "trends",
]
