"""What each vital sign and each of its numbers means, for the person who reads the page.

Vital signs say so themselves (:mod:`netvitals.vitals`); written here are only those of a checkup with
``singular=True``, which no watcher writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from netvitals.capture import Metric, Vital
from netvitals.vitals import REGISTRY


@dataclass(frozen=True)
class Sign:
    """How a vital sign is introduced: title, meaning, the metric shown first, and what each metric is."""

    title: str
    meaning: str
    headline: tuple[str, ...] = ()  # the first of these that was recorded is shown first
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    vital: type[Vital] = Vital

    def explain(self, metric: str) -> str:
        """The meaning of a metric; empty for one that nobody described (a user's own).

        >>> sign("gates").explain("density@0.1:site"), sign("gates").explain("new")
        ('fraction of gates |f′(x)| above the threshold', '')
        >>> sign("plateau").explain("escape")
        'step at which the plateau is expected to end'
        """
        known = self._metric(metric)
        return known.meaning if known is not None else ""

    def unit(self, metric: str) -> str:
        """The unit of a metric; empty where it has none.

        >>> sign("gates").unit("density@0.1:site")
        'share'
        """
        known = self._metric(metric)
        return known.unit if known is not None else ""

    def _metric(self, name: str) -> Metric | None:
        return self.metrics.get(name if name in self.metrics else self.vital.described(name) or "")


CHECKUP: dict[str, Sign] = {
    "schur": Sign(
        "Redundancy of units",
        "The part of each unit's activity that the other units do not explain.",
        ("share",),
        {
            "share": Metric("median fraction of a unit's activity that other units do not explain", "share"),
            "reference": Metric("the same fraction in a newly initialised network", "share"),
            "silent": Metric("number of units without activity", "units"),
        },
    ),
    "norm_kernel": Sign(
        "Norm kernels",
        "Whether the output of a normalisation layer has the zero-variance direction that centring causes.",
        ("overlap",),
        {
            "overlap": Metric("overlap of the predicted zero-variance direction with the measured ones", "share"),
            "variance": Metric("relative variance along the predicted direction"),
            "passes": Metric("1 if the zero-variance direction exists", "0 or 1"),
        },
    ),
    "value_output": Sign(
        "Attention, V–O",
        "Difference between the gradient exponents of values and output along the weakest direction of a head. "
        "It is 2 if no other operation lies between them.",
        ("difference",),
        {
            "difference": Metric("difference of the exponents; 2 if no other operation lies between"),
            "weakest": Metric("smallest singular value divided by the largest"),
        },
    ),
}
SIGNS: dict[str, Sign] = {
    **{
        name: Sign(title=v.title, meaning=v.meaning, headline=v.headline, metrics=v.metrics, vital=v)
        for name, v in REGISTRY.items()
    },
    **CHECKUP,
}


def sign(vital: str) -> Sign:
    """The entry of a vital sign; one that is not known (a user's own) gets its name as title."""
    return SIGNS.get(vital) or Sign(vital.replace("_", " ").capitalize(), "A vital sign of your own.")


def rank(vital: str) -> tuple[int, str]:
    """Where on the page a vital sign stands: in the order of the registry, a user's own last."""
    order = list(SIGNS)
    return (order.index(vital) if vital in order else len(order), vital)
