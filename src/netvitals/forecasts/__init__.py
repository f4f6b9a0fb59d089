"""Forecasts: dated, with odds, stored when made and scored in public when their day comes.

**If unsure, use** :func:`ledger` on a run: what was forecast, what came of it, which methods are worth listening to.

* :class:`Forecast`: one number with a date, two intervals, the conditions it rests on, or the reason why there is none;
* :class:`Forecaster`: makes them while a run trains (a watch has one), from looks and losses;
* :func:`score`, :func:`by_method`: what came, against forecasts without a law;
* :func:`ledger`: all of a stored run, scored from its readings;
* :func:`rehearse`: will this run be lost? A copy trains ahead; :class:`RehearsalPlan` has a watch do so.
"""

from netvitals.forecasts.forecast import Forecast
from netvitals.forecasts.forecaster import Forecaster
from netvitals.forecasts.ledger import Ledger, ledger
from netvitals.forecasts.rehearsal import Rehearsal, rehearse
from netvitals.forecasts.rehearsed_danger import RehearsalPlan
from netvitals.forecasts.scoring import MethodScore, Score, by_method, score

__all__ = [
    "Forecast",
    "Forecaster",
    "Ledger",
    "MethodScore",
    "Rehearsal",
    "RehearsalPlan",
    "Score",
    "by_method",
    "ledger",
    "rehearse",
    "score",
]
