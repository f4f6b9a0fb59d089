"""Where a forecast is worth showing: skills measured on held-out families, by the kind of run.

The kind is that of the loss and of the architecture, both read from the graph of a loss. ``skill.json`` is written by
``bench/forecasts/skill.py``. Skill is 1 − error / error of the best baseline.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction

from netvitals.forecasts.forecast import Forecast, refusal

LEAST = 0.2  # a method with less is not shown
WHY = "no method beats the baseline for this kind of run"
MOST = 20_000  # nodes of a graph that are read
METHODS = {"saddle": "plateau", "climb": "losses", "schedule": "losses", "look-ahead": "look-ahead"}
LAYERS = {"Addmm", "Mm", "Bmm", "Baddbmm", "Mv", "Convolution", "MkldnnConvolution"}
CROSS_ENTROPY = {"NllLoss", "NllLoss2D", "BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"}


@cache
def skills() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Method → kind of run → skill and the number of runs behind it."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("skill.json").read_text(encoding="utf-8"))
    return found


def measured(method: str, kind: str) -> float:
    """The skill of a method on a kind of run; −∞ where it was not measured.

    >>> measured("losses", "cross-entropy, gnn")
    -inf
    """
    value = skills().get(METHODS.get(method, method), {}).get(kind, {}).get("skill")
    return -math.inf if value is None else float(value)


def shown(forecast: Forecast, kind: str) -> Forecast:
    """The forecast where its method has a measured skill on this kind of run, else a refusal with the reason.

    >>> f = Forecast(quantity="loss/lost", made_at=3, for_step=9, value=5.0, method="climb")
    >>> print(shown(f, "cross-entropy, gnn"))
    loss/lost at model: no forecast at step 3: no method beats the baseline for this kind of run (cross-entropy, gnn)
    """
    why = "" if forecast.refused else unskilled(forecast.method, kind)
    return refusal(forecast.quantity, forecast.made_at, forecast.method, why) if why else forecast


def unskilled(method: str, kind: str) -> str:
    """Why a method is not shown on a kind of run; empty where it is.

    >>> unskilled("look-ahead", "")
    'no method beats the baseline for this kind of run (unknown: no loss with a graph was given to step())'
    """
    if measured(method, kind) >= LEAST:
        return ""
    return f"{WHY} ({kind or 'unknown: no loss with a graph was given to step()'})"


def kind_of(loss: Tensor, model: nn.Module) -> str:
    """The kind of a run: that of its loss and of its architecture; empty where the loss has no graph.

    Args:
        loss: before or after ``backward``.
        model: which made it.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> kind_of(nn.functional.mse_loss(net(torch.ones(4, 2)), torch.ones(4, 1)), net)
    'squared error, mlp'
    """
    if loss.grad_fn is None:
        return ""
    names: set[str] = set()
    residual = gated = hidden = False
    for node, name in _nodes(loss.grad_fn):
        inner = [fn for fn, _ in node.next_functions if fn is not None and _name(fn) != "AccumulateGrad"]
        names.add(name)
        hidden = hidden or isinstance(node, BackwardCFunction)
        if len(inner) == 2 and names & LAYERS:  # what is added or multiplied before any layer is the loss's own
            residual, gated = residual or name == "Add", gated or (name == "Mul" and _gates(*inner))
    modules = {type(m) for m in model.modules()}
    has = lambda *kinds: any(issubclass(m, kinds) for m in modules)
    mixes = "Bmm" in names and bool(names & {"Softmax", "SafeSoftmax"})
    if mixes or any("ScaledDotProduct" in n for n in names) or has(nn.MultiheadAttention):
        architecture = "transformer"
    elif has(nn.RNNBase, nn.RNNCellBase):
        architecture = "recurrent"
    elif "Convolution" in names or "MkldnnConvolution" in names:
        architecture = "cnn"
    elif hidden or not names & LAYERS:  # compiled, checkpointed, or without a layer
        architecture = "unknown"
    else:
        architecture = "gated" if gated else "residual" if residual else "mlp"
    return f"{_loss_kind(names)}, {architecture}"


def _loss_kind(names: set[str]) -> str:
    if names & CROSS_ENTROPY:
        return "cross-entropy"
    squares = "MseLoss" in names or {"Pow", "Sub"} <= names
    return "squared error" if squares else "other loss"


def _gates(one: Any, other: Any) -> bool:
    """Whether a product is one of two paths: not of a value with its own sigmoid or its own norm."""
    feeds = lambda a, b: any(fn is b for fn, _ in a.next_functions)
    return not (feeds(one, other) or feeds(other, one) or {_name(one), _name(other)} & {"Rsqrt", "Reciprocal"})


def _nodes(root: Any) -> Iterator[tuple[Any, str]]:
    """The nodes of a graph, each once, those near the loss first."""
    waiting, seen = [root], {root}
    for node in waiting:
        if len(seen) > MOST:
            return
        yield node, _name(node)
        for fn, _ in node.next_functions:
            if fn is not None and fn not in seen:
                seen.add(fn)
                waiting.append(fn)


def _name(node: Any) -> str:
    """``AddmmBackward0`` is Addmm."""
    return str(node.name()).rpartition("::")[2].partition("Backward")[0]
