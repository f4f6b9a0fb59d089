"""Divergence looked ahead: when a copy is to train ahead of the run, and what is said of it afterwards.

A look-ahead is due on a look where something is suspicious: the loss is a tenth above its lowest by three standard
errors, or the rule of :mod:`netvitals.forecasts.divergence` would call, or the schedule leads, within the steps that
are looked ahead, to a learning rate a fifth above all that the run has known.

A look-ahead in which the copy is not lost is believed for some steps, for fewer where its loss climbed in the end.
Where it is lost in every order of the batches the run is called; a later look-ahead that is not takes the call back.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals.capture import LossFn
from netvitals.forecasts.divergence import QUANTITY, Danger, lost_near
from netvitals.forecasts.forecast import NOTHING, Forecast, refusal
from netvitals.forecasts.lookahead import STEPS, LookaheadRun

# what follows was chosen on the tuning families of the corpus, and on those that were fresh at first
CLIMB, BEYOND = 0.1, 3.0  # ln of a climb that is suspicious, and its standard errors
RISES = 1.2  # a planned rate over the highest so far
BELIEVED, DOUBTED = 80, 40  # steps that a look-ahead is believed, and one in which the loss climbed in the end
ORDERS = 2  # of the batches
LOOKAHEAD_SPREAD = 0.35  # standard deviation of ln(time left)
SHARE, GRACE = 1.0, 400  # steps of look-aheads: a share of the run's, and so many besides
CALM, NEVER = 20, 2**62  # steps of a run before anything is looked ahead


@dataclass(frozen=True, kw_only=True)
class Lookahead:
    """Settings of the look-ahead in :func:`netvitals.watch`, which trains a copy of the model to confirm a divergence.

    Args:
        batches: training batches for the copy. The current contents are read at each look-ahead, so this may be a deque
            of recent batches.
        loss_fn: a function of (output, target), its name, or None if the model's output contains its loss.
        clip: the norm that the loop clips gradients to, if it does.
        budget: the largest number of look-ahead steps, as a fraction of the steps of the run; 400 steps are always
            allowed.

    >>> Lookahead(batches=[], loss_fn="mse").budget
    1.0
    """

    batches: Collection[Any]
    loss_fn: LossFn
    clip: float | None = None
    budget: float = SHARE


class DivergenceLookahead:
    """Says on each look whether to look ahead, and makes forecasts of what came of it.

    >>> danger = Danger()
    >>> lookahead = DivergenceLookahead(danger)
    >>> for t in range(100):
    ...     _ = danger.add(t, 1.0 / (1 + t), 0.1)
    >>> lookahead.due(100, np.full(100, 0.1)), lookahead.due(100, np.full(100, 1.0))
    ('', 'the learning rate will be 10.0 times what it has been')
    """

    def __init__(self, danger: Danger, budget: float = SHARE) -> None:
        danger.silent = True
        self.danger, self.budget = danger, budget
        self.called: int | None = None  # the step at which it was called
        self.withdrawn: list[int] = []  # the steps at which a call was taken back
        self.spent = 0  # steps of all look-aheads
        self.lookaheads: list[tuple[int, bool]] = []  # steps, and whether it was lost
        self._next = CALM  # the step until which nothing is looked ahead
        self._span = NOTHING  # in which the run will be lost, as was said last

    def due(self, step: int, rates: np.ndarray) -> str:
        """Why a look-ahead is due; empty where it is not."""
        danger = self.danger
        if step < self._next or danger.lost is not None or self.spent + STEPS > self.budget * step + GRACE:
            return ""
        climb, error = danger.climb
        if _climbs(climb, error) or danger.called is not None:
            return (
                f"the loss is {math.exp(climb):.2f} times its lowest"
                if climb > 0
                else "the learning rate is about to jump"
            )
        known = danger.highest_rate
        ratio = float(np.max(rates[:STEPS], initial=0.0)) / known if known > 0 else 0.0
        if ratio > RISES:
            return f"the learning rate will be {ratio:.1f} times what it has been"
        return ""

    def take(self, step: int, why: str, found: LookaheadRun) -> Forecast | None:
        """What is to be said after a look-ahead; None where nothing is new."""
        if found.refused:  # the losses of the run are all that is left
            self.danger.silent, self.danger.called, self._next = False, None, NEVER
            return None
        self.spent += found.cost
        self.lookaheads.append((step, found.lost is not None))
        near = any(at is not None for at in found.lost_at) or _climbs(found.climb, found.climb_stderr)
        self._next = step + (DOUBTED if near else BELIEVED)
        if found.lost is not None:
            if self.called is not None and self._span[0] <= found.lost <= self._span[1]:
                return None  # the call stands, and so does its date
            conditions = {"looked ahead": f"diverged at step {found.lost}", "because": why, **_told(found)}
            said = lost_near(step, max(1.0, found.lost - step), LOOKAHEAD_SPREAD, "look-ahead", conditions)
            self.called, self._span = self.called if self.called is not None else step, said.interval80
            return said
        if self.called is None:
            return None
        self.called = None
        self.withdrawn.append(step)
        reason = f"a look-ahead at step {step} did not diverge within {max(map(len, found.losses))} steps"
        return refusal(QUANTITY, step, "look-ahead", reason)


def _climbs(climb: float, error: float) -> bool:
    return climb > max(CLIMB, BEYOND * error)


def _told(found: LookaheadRun) -> dict[str, str]:
    return {"look-ahead" if name == "looked ahead" else name: text for name, text in found.conditions.items()}
