"""Activations by name: ``get("gelu")``, ``get("softplus:20")``, ``get("topk:gelu2:15:0.75")``.

A spec is a name, then its numbers after colons. Names ignore case, ``_`` and ``-``, so that class names work too.
Composite specs wrap another spec: ``centered:softplus``, ``zero_mean:relu``, ``topk:SPEC:SPARSITY``.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from netvitals.activations.functions import Centered, Function, Polynomial, Squared, StiffSigmoid, ZeroMean
from netvitals.activations.sparse import GRANULARITIES, MODES, QuantileReLU, TopK
from netvitals.activations.table import ACTIVATIONS


@dataclass(frozen=True)
class Entry:
    """How a name becomes a module: a maker, its formula, and what its parameters are called."""

    make: Callable[..., nn.Module]
    formula: str
    parameters: tuple[str, ...] = ()
    most: int | None = None  # parameters taken at most; None: as many as are named

    def usage(self, name: str) -> str:
        return name + "".join(f"[:{p}]" for p in self.parameters)


def _sigmoid(stiffness: float = 1.0, center: float = 0.0) -> nn.Module:
    return nn.Sigmoid() if (stiffness, center) == (1.0, 0.0) else StiffSigmoid(stiffness, center)


def _softplus(beta: float = 1.0) -> nn.Module:
    if not beta > 0:
        raise ValueError(f"the sharpness beta of a softplus must be positive, got {beta:g}")
    return nn.Softplus(beta)


_MAKERS: dict[str, Callable[..., nn.Module]] = {  # where it is not the class with its numbers in order
    "prelu": lambda slope=0.25: nn.PReLU(init=slope),
    "softplus": _softplus,
    "sigmoid": _sigmoid,
    "poly": lambda *a: Polynomial(*(a or (0.0, 1.0))),
}
ENTRIES: dict[str, Entry] = {
    **{
        row.name: Entry(
            _MAKERS.get(row.name, row.modules[0]), row.formula, row.shown, most=64 if row.name == "poly" else None
        )
        for row in ACTIVATIONS
        if row.described
    },
    # forms of these that have no class of their own, and what is not elementwise
    "gelu_tanh": Entry(lambda: nn.GELU(approximate="tanh"), "x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))"),
    "relu2": Entry(lambda clip=None: Squared(nn.ReLU(), clip), "min(max(0, x)^2, c)", ("clip",)),
    "gelu2": Entry(lambda clip=None: Squared(nn.GELU(), clip), "min((x Phi(x))^2, c)", ("clip",)),
    "silu2": Entry(lambda clip=None: Squared(nn.SiLU(), clip), "min((x s(x))^2, c)", ("clip",)),
    "quantile_relu": Entry(QuantileReLU, "x if x >= its feature's q-quantile over the batch, else 0", ("q", "mode")),
}

ALIASES = {
    "swish": "silu",
    "atan": "arctan",
    "linear": "identity",
    "none": "identity",
    "relusquared": "relu2",
    "squaredrelu": "relu2",
    "gelusquared": "gelu2",
    "silusquared": "silu2",
    "bsilu": "b_silu",
    "sugarbsilu": "sugar_b_silu",
    "sugar": "sugar_b_silu",
    "polynomial": "poly",
    "gelunew": "gelu_tanh",
    "gelupytorchtanh": "gelu_tanh",
    "negativerelu": "neg_relu",
    "logistic": "sigmoid",
}
COMPOSITES = {
    "topk": f"topk:SPEC:SPARSITY[:{'|'.join(GRANULARITIES)}][:before]",
    "centered": "centered:SPEC",
    "zero_mean": "zero_mean:SPEC",
}
_PRESET = re.compile(r"^topksparse(?P<inner>\w+?)-(?P<share>\d{1,2})$|^quantilerelu-(?P<q>\d{1,2})$")


def _plain(name: str) -> str:
    return name.lower().replace("²", "2").replace("_", "").replace("-", "").strip()


_LOOKUP = {_plain(name): name for name in (*ENTRIES, *COMPOSITES)} | ALIASES


def names() -> list[str]:
    """List every activation name that :func:`get` accepts.

    Returns:
        The names in alphabetical order.

    >>> {"gelu", "relu2", "sugar_b_silu"} <= set(names())
    True
    """
    return sorted(ENTRIES)


def formula(spec: str) -> str:
    """Return the formula of an activation as plain text; s is the logistic function, Phi the normal distribution.

    Args:
        spec: any spelling that :func:`get` takes, with its parameters.

    Returns:
        One line of text, the given parameters named at its end.

    >>> formula("softplus:20")
    'ln(1 + e^(b x)) / b, b=20'
    """
    name, rest = _head(_unpreset(spec))
    if name in ENTRIES:
        entry = ENTRIES[name]
        if name == "poly" and rest:
            return " + ".join(f"{a} x^{k}" for k, a in enumerate(rest) if float(a))
        return entry.formula + "".join(f", {p[0]}={v}" for p, v in zip(entry.parameters, rest))
    if name == "topk":
        return f"largest share by value of {formula(':'.join(_topk_parts(rest)[0]))}"
    return f"{formula(':'.join(rest))} minus its {'value at 0' if name == 'centered' else 'mean under N(0, 1)'}"


def _unpreset(spec: str) -> str:
    match = _PRESET.match(spec.strip().lower().replace("_", ""))
    if not match:
        return spec
    if match["q"]:
        return f"quantile_relu:{int(match['q']) / 100:g}"
    return f"topk:{match['inner']}:{int(match['share']) / 100:g}"


def _head(spec: str) -> tuple[str, list[str]]:
    first, *rest = spec.strip().split(":")
    key = _plain(first)
    if key not in _LOOKUP:
        near = dict.fromkeys(_LOOKUP[n] for n in difflib.get_close_matches(key, _LOOKUP, 6, 0.5))  # aliases count once
        hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(names())}"
        raise ValueError(f"there is no activation {first!r}; {hint}")
    return _LOOKUP[key], rest


def _number(text: str, spec: str) -> Any:
    if text in MODES:
        return text
    if text.lower() == "none":
        return None
    try:
        number = float(text)
    except ValueError:
        raise ValueError(
            f"{text!r} in the activation {spec!r} is not a number; expected a number such as 0.1"
        ) from None
    if not math.isfinite(number):
        raise ValueError(f"{text!r} in the activation {spec!r} must be a finite number")
    return number


def _topk_parts(rest: list[str]) -> tuple[list[str], float | None, str, bool]:
    parts, post, granularity = list(rest), True, "token"
    if parts and parts[-1] == "before":
        post = False
        parts.pop()
    if parts and parts[-1] in GRANULARITIES:
        granularity = parts.pop()
    if len(parts) < 2:
        raise ValueError(f"a top-k activation must be written as {COMPOSITES['topk']}, got 'topk:{':'.join(rest)}'")
    return parts[:-1], _number(parts[-1], "topk:" + ":".join(rest)), granularity, post


def canonical(spec: str) -> str:
    """One spelling per activation: aliases, case and presets resolved.

    Args:
        spec: any spelling that :func:`get` takes; an unknown name is a ``ValueError`` with the nearest ones.

    Returns:
        The spec in its one spelling; two specs of the same activation give the same string.

    >>> canonical("Swish"), canonical("TopKSparseGELU-75"), canonical("ReLU²:15.0")
    ('silu', 'topk:gelu:0.75', 'relu2:15')
    """
    name, rest = _head(_unpreset(spec))
    if name == "topk":
        inner, sparsity, granularity, post = _topk_parts(rest)
        tail = [] if granularity == "token" else [granularity]
        return ":".join(
            [
                "topk",
                canonical(":".join(inner)),
                "none" if sparsity is None else f"{sparsity:g}",
                *tail,
                *([] if post else ["before"]),
            ]
        )
    if name in COMPOSITES:
        return f"{name}:{canonical(':'.join(rest))}"
    values = [_number(r, spec) for r in rest]
    return ":".join(
        [name, *(v if isinstance(v, str) else "none" if v is None else repr(v).removesuffix(".0") for v in values)]
    )


def get(spec: str | nn.Module | type[nn.Module] | Callable[[Tensor], Tensor]) -> nn.Module:
    """Make an activation module from a name such as ``"gelu"``, a module, a module class or a function.

    Args:
        spec: ``NAME[:PARAMETER…]`` such as ``"relu2:15"``, a composite such as ``"topk:gelu:0.75"``, a module, a module
            class without required arguments, or a function of one tensor.

    Returns:
        The module; one that was given is the same object, not a copy.

    >>> get("relu2:15")
    Squared(
      clip=15
      (inner): ReLU()
    )
    >>> get("leaky_relu:0.1")
    LeakyReLU(negative_slope=0.1)
    """
    if isinstance(spec, nn.Module):
        return spec
    if isinstance(spec, type) and issubclass(spec, nn.Module):
        return spec()
    if not isinstance(spec, str):
        if not callable(spec):
            raise TypeError(
                f"expected an activation as a name, a module or a callable, got {type(spec).__name__}: {spec!r}"
            )
        from netvitals.activations.recognise import FUNCTIONAL

        return get(FUNCTIONAL[spec]) if spec in FUNCTIONAL else Function(spec)  # type: ignore[arg-type]
    name, rest = _head(_unpreset(spec))
    if name == "topk":
        inner, sparsity, granularity, post = _topk_parts(rest)
        return TopK(get(":".join(inner)), sparsity, granularity, post=post)  # type: ignore[arg-type]
    if name in COMPOSITES:
        if not rest:
            raise ValueError(f"{name!r} modifies another activation and needs its name, for example '{name}:softplus'")
        wrap: type[Centered] | type[ZeroMean] = Centered if name == "centered" else ZeroMean
        return wrap(get(":".join(rest)))
    entry = ENTRIES[name]
    if len(rest) > (entry.most or len(entry.parameters)):
        raise ValueError(f"the activation {spec!r} has too many parameters; expected {entry.usage(name)}")
    return entry.make(*(_number(r, spec) for r in rest))
