"""Forecasts of events: stored when made, scored when their target step is reached, shown only where they have skill.

**If unsure, use** :func:`forecast_log` on a run: whether its forecasts were worth anything, what was forecast and what
came.

* :class:`Forecast`: the step of an event with two intervals and its conditions, or the reason why there is none;
* :func:`forecast_log`: all of a stored run, scored from its measurements;
* :func:`look_ahead`: will this run diverge? A copy trains ahead; :class:`Lookahead` has a watch do so, and costs steps.
"""

from netvitals.forecasts.divergence_lookahead import ORDERS as ORDERS
from netvitals.forecasts.divergence_lookahead import DivergenceLookahead as DivergenceLookahead
from netvitals.forecasts.divergence_lookahead import Lookahead
from netvitals.forecasts.forecast import Forecast
from netvitals.forecasts.forecaster import Forecaster as Forecaster
from netvitals.forecasts.log import ForecastLog, forecast_log
from netvitals.forecasts.log import log_of as log_of
from netvitals.forecasts.lookahead import STEPS as STEPS
from netvitals.forecasts.lookahead import LookaheadRun as LookaheadRun
from netvitals.forecasts.lookahead import look_ahead
from netvitals.forecasts.scoring import MethodScore as MethodScore
from netvitals.forecasts.scoring import Score as Score
from netvitals.forecasts.scoring import by_method as by_method
from netvitals.forecasts.scoring import score as score
from netvitals.forecasts.skill import kind_of as kind_of
from netvitals.forecasts.skill import unskilled as unskilled

__all__ = [
    "Forecast",
    "ForecastLog",
    "Lookahead",
    "forecast_log",
    "look_ahead",
]
