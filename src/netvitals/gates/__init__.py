"""Gate density: which units carry gradient, and will that rise or fall?

**If unsure, use** :func:`measure` on a batch. A gate is |f'(x)|, the density is the share of gates above a threshold.

* :func:`measure`: the gates of every activation of a model, exactly or from the gradients of a loss;
* :func:`predict`, :func:`margins`: the density that the mean and deviation of an activation's input imply;
* :func:`forecast`: where the density goes when the variance of the input shrinks;

The watcher is the vital sign ``gates``.
"""

from netvitals.gates.forecasting import GateForecast, forecast
from netvitals.gates.measurement import checked_thetas as checked_thetas
from netvitals.gates.measurement import measure
from netvitals.gates.prediction import PREDICTORS, Margins, margins, predict
from netvitals.gates.report import GateReport, SiteGates

__all__ = [
    "PREDICTORS",
    "GateForecast",
    "GateReport",
    "Margins",
    "SiteGates",
    "forecast",
    "margins",
    "measure",
    "predict",
]
