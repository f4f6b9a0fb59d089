"""Forecasts: dated, with odds, stored when made and scored in public when their day comes.

**If unsure, use** :func:`forecast_log` on a run: what was forecast, what came of it, which methods are worth listening
to.

* :class:`Forecast`: one number with a date, two intervals, the conditions it rests on, or the reason why there is none;
* :class:`Forecaster`: makes them while a run trains (a watch has one), from looks and losses;
* :func:`score`, :func:`by_method`: what came, against forecasts without a law;
* :func:`forecast_log`: all of a stored run, scored from its measurements;
* :func:`look_ahead`: will this run be lost? A copy trains ahead; :class:`Lookahead` has a watch do so.
"""

from netvitals.forecasts.divergence_lookahead import ORDERS as ORDERS
from netvitals.forecasts.divergence_lookahead import DivergenceLookahead as DivergenceLookahead
from netvitals.forecasts.divergence_lookahead import Lookahead
from netvitals.forecasts.forecast import LOOKAHEAD as LOOKAHEAD
from netvitals.forecasts.forecast import Forecast
from netvitals.forecasts.forecaster import Forecaster as Forecaster
from netvitals.forecasts.log import ForecastLog, forecast_log
from netvitals.forecasts.log import scored as scored
from netvitals.forecasts.lookahead import STEPS as STEPS
from netvitals.forecasts.lookahead import LookaheadRun as LookaheadRun
from netvitals.forecasts.lookahead import look_ahead
from netvitals.forecasts.scoring import MethodScore as MethodScore
from netvitals.forecasts.scoring import Score as Score
from netvitals.forecasts.scoring import by_method as by_method
from netvitals.forecasts.scoring import score as score
from netvitals.forecasts.value_lookahead import BATCHES as BATCHES
from netvitals.forecasts.value_lookahead import ENOUGH as ENOUGH
from netvitals.forecasts.value_lookahead import READ as READ
from netvitals.forecasts.value_lookahead import ValueLookahead as ValueLookahead
from netvitals.forecasts.value_lookahead import looks_around as looks_around
from netvitals.forecasts.value_lookahead import reader as reader

__all__ = [
    "Forecast",
    "ForecastLog",
    "Lookahead",
    "forecast_log",
    "look_ahead",
]
