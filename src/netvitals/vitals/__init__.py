"""Vital signs: every watcher, and nothing but watchers, one file a question.

``names()`` lists them, ``get(name)`` makes one, ``default()`` makes those that are on when nothing is chosen, and
``choose(["default", "plateau"])`` adds to them. Each class says what it means, what it writes and how often it looks:
``reference()`` makes ``docs/vital-signs.md`` of it. What they measure is there for everybody in the rooms behind them:
``gates.measure``, ``drift.euler``, ``saddle.imbalance``, ``singular.readout``, ``curvature.between_layers``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from netvitals.capture import EARLY_MEASUREMENTS, Metric, Vital
from netvitals.capture import WatchContext as WatchContext
from netvitals.vitals.attention import AttentionVital as AttentionVital
from netvitals.vitals.curvature import Curvature as Curvature
from netvitals.vitals.dead_directions import KFACFloor as KFACFloor
from netvitals.vitals.dead_directions import Orders as Orders
from netvitals.vitals.dead_directions import StreamFloor as StreamFloor
from netvitals.vitals.drift import Drift as Drift
from netvitals.vitals.experts import ExpertsVital as ExpertsVital
from netvitals.vitals.gates import Gates as Gates
from netvitals.vitals.gauge_charges import GaugeCharges as GaugeCharges
from netvitals.vitals.gradients import Gradients as Gradients
from netvitals.vitals.imbalance import Imbalance as Imbalance
from netvitals.vitals.imbalance import StepAccounting as StepAccounting
from netvitals.vitals.inputs import Inputs as Inputs
from netvitals.vitals.optimizer import OptimizerSettings as OptimizerSettings
from netvitals.vitals.outputs import Outputs as Outputs
from netvitals.vitals.plateau import PlateauForecast as PlateauForecast
from netvitals.vitals.preactivations import Preactivations as Preactivations
from netvitals.vitals.rank import Rank as Rank
from netvitals.vitals.ranks import RanksVital as RanksVital
from netvitals.vitals.sparsity import Sparsity as Sparsity
from netvitals.vitals.spikes import Spikes as Spikes
from netvitals.vitals.stream import StreamVital as StreamVital
from netvitals.vitals.training import Training as Training

REGISTRY: dict[str, type[Vital]] = {
    v.name: v
    for v in (
        Gates,
        Preactivations,
        Drift,
        Sparsity,
        Spikes,
        Imbalance,
        Rank,
        StreamVital,
        Gradients,
        OptimizerSettings,
        AttentionVital,
        ExpertsVital,
        Inputs,
        Outputs,
        Training,
        PlateauForecast,
        StepAccounting,
        StreamFloor,
        KFACFloor,
        Orders,
        GaugeCharges,
        Curvature,
        RanksVital,
    )
}


def names(*, default: bool | None = None) -> list[str]:
    """Names of all vital signs, or only of those that are on by default, or only of the others.

    Args:
        default: True for those that are on by default, False for those that must be asked for, None for all.

    Returns:
        Names in the order in which the vital signs are shown a site.

    >>> names(default=True)  # doctest: +NORMALIZE_WHITESPACE
    ['gates', 'preactivations', 'drift', 'sparsity', 'spikes', 'imbalance', 'rank', 'stream', 'gradients', 'optimizer',
     'attention', 'experts', 'inputs', 'outputs', 'training']
    >>> names(default=False)  # doctest: +NORMALIZE_WHITESPACE
    ['plateau', 'accounting', 'stream_floor', 'kfac_floor', 'orders', 'gauge_charges', 'curvature', 'ranks']
    """
    return [name for name, kind in REGISTRY.items() if default is None or kind.default is default]


def get(name: str) -> Vital:
    """A fresh instance of one vital sign.

    Args:
        name: one of :func:`names`; another is a ``ValueError`` with the nearest.

    Returns:
        A new instance with its default settings.

    >>> get("spike")
    Traceback (most recent call last):
    ...
    ValueError: there is no vital sign 'spike'; did you mean spikes or sparsity?
    """
    if name in REGISTRY:
        return REGISTRY[name]()
    near = difflib.get_close_matches(str(name), REGISTRY, n=2, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(REGISTRY)}"
    raise ValueError(f"there is no vital sign {name!r}; {hint}")


def default(*, training: bool = True) -> list[Vital]:
    """Fresh instances of the vital signs that are on by default, in the order they are shown a site.

    Args:
        training: False leaves out those that look at training and not at a model.

    Returns:
        One new instance a name of ``names(default=True)``.

    >>> [type(v).__name__ for v in default()][:3]
    ['Gates', 'Preactivations', 'Drift']
    """
    return [REGISTRY[n]() for n in names(default=True) if training or not REGISTRY[n].training_only]


def choose(vitals: Iterable[Vital | str] | None = None, *, training: bool = True) -> list[Any]:
    """Vital signs from instances and names; ``"default"`` stands for all that are on by default, and so does None.

    An instance takes the place of the default one of its name, so that ``["default", Gates(thetas=[0.5])]`` works.

    Args:
        vitals: instances, names and ``"default"`` in any mix; None is the default ones.
        training: whether steps follow; the default ones are fewer in a checkup.

    Returns:
        Instances in the order given; those that were given are not copied.

    >>> [v.name for v in choose(["gates", "plateau"])], len(choose(["default", "plateau"]))
    (['gates', 'plateau'], 16)
    """
    if vitals is None:
        return list(default(training=training))
    if isinstance(vitals, str) or not isinstance(vitals, Iterable):
        raise TypeError(f"vitals= must be a list of names or vital signs, got {vitals!r}")
    given = list(vitals)
    own = {v if isinstance(v, str) else getattr(v, "name", None) for v in given}
    out: list[Any] = []
    for v in given:
        if isinstance(v, str) and v == "default":
            out += [d for d in default(training=training) if d.name not in own]
        else:
            out.append(get(v) if isinstance(v, str) else v)
    return out


def how_often(vital: type[Vital]) -> str:
    """Say in words how often a vital sign is measured.

    Args:
        vital: a class of vital signs.

    Returns:
        The words that follow "Measured".

    >>> how_often(Gates), how_often(Spikes), how_often(Rank)
    ('at every measured step', 'at every 5th measured step', 'at most once in 2,000 training steps')
    """
    if vital.min_steps > 1:
        return f"at most once in {vital.min_steps:,} training steps"
    if vital.later_every > vital.every:
        return f"{_each(vital.every)}; after the first {EARLY_MEASUREMENTS}, {_each(vital.later_every)}"
    return _each(vital.every)


def _each(every: int) -> str:
    ending = {2: "nd", 3: "rd"}.get(every, "th")
    return "at every measured step" if every == 1 else f"at every {every}{ending} measured step"


def entry(vital: type[Vital]) -> dict[str, Any]:
    """Describe a vital sign as plain data.

    Args:
        vital: a class of vital signs.

    Returns:
        Name, title, meaning, metrics with meaning and unit, how often it is measured, whether it is on by default, and
        what it needs.

    >>> entry(REGISTRY["stream"])["title"]
    'Residual stream'
    """
    return {
        "name": vital.name,
        "title": vital.title,
        "meaning": vital.meaning,
        "metrics": {name: metric._asdict() for name, metric in vital.metrics.items()},
        "how_often": how_often(vital),
        "every": vital.every,
        "later_every": vital.later_every,
        "every_by_method": dict(vital.every_by_method),
        "min_steps": vital.min_steps,
        "default": vital.default,
        "needs": vital.needs,
    }


def reference() -> str:
    """Every vital sign with every number it writes, as Markdown: the file ``docs/vital-signs.md``.

    Returns:
        Markdown text with one section a vital sign.

    >>> reference().splitlines()[0]
    '# The vital signs'
    """
    parts = [
        "# The vital signs",
        "Written by `netvitals vitals --reference` from the classes in `netvitals.vitals`. Pure numbers have no unit. "
        "Values\npooled over the whole model have the metric's name if they are averaged over elements, and end in "
        "`:site` or\n`:channel` if they are averaged over sites or channels.",
        "To add a vital sign to the default ones: "
        '`nv.watch(model, optimizer=opt, probe=(x, y, loss_fn), vitals=["default", "plateau"])`.',
        table(),
    ]
    for name, kind in REGISTRY.items():
        rows = [_row(f"`{metric}`", meaning, unit) for metric, (meaning, unit) in kind.metrics.items()]
        state = "On by default" if kind.default else "Off by default"
        needs = f"; needs {kind.needs}" if kind.needs else ""
        parts += [f"## {kind.title} (`{name}`)", kind.meaning, f"{state}{needs}. Measured {how_often(kind)}."]
        parts.append("\n".join([_row("metric", "meaning", "unit"), "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def table() -> str:
    """All vital signs as a Markdown table: name, what it tells and needs, what it writes, how often.

    Returns:
        Markdown text with one row a vital sign.

    >>> len(table().splitlines()) == 2 + len(REGISTRY)
    True
    """
    lines = [_row("name", "what it tells", "metrics", "how often"), "|---|---|---|---|"]
    for name, kind in REGISTRY.items():
        extra = "" if kind.default else f" Off by default{f'; needs {kind.needs}' if kind.needs else ''}."
        shown = [m for m in kind.metrics if not m.endswith("_stderr")]
        lines.append(_row(f"`{name}`", kind.meaning + extra, ", ".join(f"`{m}`" for m in shown), how_often(kind)))
    return "\n".join(lines)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


__all__ = [
    "REGISTRY",
    "Metric",
    "Vital",
    "choose",
    "get",
    "names",
    "reference",
]
