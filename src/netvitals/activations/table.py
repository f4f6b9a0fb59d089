"""The table of activations: every elementwise function of torch, and whether it counts as an activation.

One row an activation: what it is called in ``torch.nn``, as a function, as a method of a tensor, in place, and as an
operator of aten. What torch has besides is in ``IGNORED``, with the reason. :mod:`netvitals.activations` recognises by
this table, :mod:`netvitals.capture` sees by it, :mod:`netvitals.layers` exchanges by it, and
:mod:`netvitals.curvature` reads from it what bends. A test walks torch and finds nothing elementwise that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from netvitals.activations.functions import (
    Arctan,
    BSiLU,
    Erf,
    Identity,
    NegReLU,
    Polynomial,
    QuickGELU,
    Sin,
    StiffSigmoid,
)
from netvitals.activations.surrogate import NoisyReLU, SugarBSiLU

PLACES: tuple[Any, ...] = (F, torch, torch.Tensor, torch.special)  # where a function of torch may be found by its name


@dataclass(frozen=True, kw_only=True)
class Activation:
    """An elementwise activation with its names in torch and its properties.

    Args:
        name: what :func:`netvitals.activations.get` calls it.
        formula: the formula in plain characters; s is the logistic function, Phi the normal distribution.
        modules: the classes that compute it.
        functions: what it is called in ``torch.nn.functional``, ``torch``, ``torch.special`` and ``torch.Tensor``;
            with a ``_`` behind it works in place. The first of them names a site.
        aten: what reaches a dispatcher, with no name for one that torch puts together from others.
        numbers: what a module calls its numbers and a function its arguments after the first, with their usual values.
        shown: what a spec calls these numbers.
        described: whether a spec can describe it, so that ``get`` builds it.
        after_layer: counts as an activation only where its input comes from a layer; elsewhere it codes a position
            or belongs to a statistic.
        piecewise_linear: has no second derivative almost everywhere.
        random: draws random numbers in training.
        relu_like: a ReLU can stand in for it; squashing ones are gates and outputs.

    >>> Activation(name="step", formula="1[x > 0]", piecewise_linear=True).piecewise_linear
    True
    """

    name: str
    formula: str = ""
    modules: tuple[type[nn.Module], ...] = ()
    functions: tuple[str, ...] = ()
    aten: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    described: bool = True
    after_layer: bool = False
    piecewise_linear: bool = False
    random: bool = False
    relu_like: bool = False

    @property
    def op(self) -> str:
        """What a site of a functional call is named after."""
        return self.functions[0] if self.functions else self.name

    def callables(self) -> Iterator[tuple[Callable[..., Any], bool]]:
        """List the torch functions and methods that compute this activation, and whether each works in place."""
        for name in self.functions:
            for found in called(name):
                yield found, False
            for found in called(name + "_"):
                yield found, True


def called(name: str) -> Iterator[Callable[..., Any]]:
    """The functions and methods of torch with this name."""
    for place in PLACES:
        found = getattr(place, name, None)
        if callable(found):
            yield found


def _torch(
    name: str,
    module: type[nn.Module],
    formula: str,
    *,
    functions: tuple[str, ...] = (),
    aten: tuple[str, ...] | None = None,
    **rest: Any,
) -> Activation:
    """A row of torch's own, whose names are mostly one."""
    return Activation(
        name=name,
        formula=formula,
        modules=(module,),
        functions=(name, *functions),
        aten=(name,) if aten is None else aten,
        **rest,
    )


ACTIVATIONS: tuple[Activation, ...] = (
    _torch("relu", nn.ReLU, "max(0, x)", piecewise_linear=True),
    _torch(
        "leaky_relu",
        nn.LeakyReLU,
        "x if x > 0 else a x",
        numbers={"negative_slope": 0.01},
        shown=("slope",),
        piecewise_linear=True,
        relu_like=True,
    ),
    _torch(
        "prelu",
        nn.PReLU,
        "x if x > 0 else a x, a learned",
        aten=("_prelu_kernel",),
        shown=("slope",),
        piecewise_linear=True,
        relu_like=True,
    ),
    _torch(
        "rrelu",
        nn.RReLU,
        "x if x > 0 else a x, a random in training",
        aten=("rrelu_with_noise",),
        numbers={"lower": 1 / 8, "upper": 1 / 3},
        shown=("lower", "upper"),
        piecewise_linear=True,
        random=True,
        relu_like=True,
    ),
    _torch("relu6", nn.ReLU6, "min(max(0, x), 6)", aten=("hardtanh",), piecewise_linear=True, relu_like=True),
    _torch("gelu", nn.GELU, "x Phi(x)", relu_like=True),
    _torch("silu", nn.SiLU, "x s(x)", relu_like=True),
    _torch("mish", nn.Mish, "x tanh(ln(1 + e^x))", relu_like=True),
    _torch("softplus", nn.Softplus, "ln(1 + e^(b x)) / b", numbers={"beta": 1.0}, shown=("beta",), relu_like=True),
    _torch("elu", nn.ELU, "x if x > 0 else a (e^x - 1)", numbers={"alpha": 1.0}, shown=("alpha",), relu_like=True),
    _torch(
        "celu",
        nn.CELU,
        "x if x > 0 else a (e^(x/a) - 1)",
        numbers={"alpha": 1.0},
        shown=("alpha",),
        relu_like=True,
    ),
    _torch("selu", nn.SELU, "1.0507 (x if x > 0 else 1.6733 (e^x - 1))", aten=("elu",), relu_like=True),
    _torch("tanh", nn.Tanh, "tanh(x)"),
    _torch("softsign", nn.Softsign, "x / (1 + |x|)", aten=()),
    Activation(
        name="sigmoid",
        formula="1 / (1 + e^(-a (x - c)))",
        modules=(nn.Sigmoid, StiffSigmoid),
        functions=("sigmoid", "expit"),
        aten=("sigmoid",),
        shown=("alpha", "center"),
    ),
    _torch("logsigmoid", nn.LogSigmoid, "ln s(x)", aten=("log_sigmoid_forward",)),
    _torch("hardswish", nn.Hardswish, "x min(max(0, x + 3), 6) / 6", relu_like=True),
    _torch("hardsigmoid", nn.Hardsigmoid, "min(max(0, x + 3), 6) / 6", piecewise_linear=True),
    _torch(
        "hardtanh",
        nn.Hardtanh,
        "min(max(l, x), h)",
        numbers={"min_val": -1.0, "max_val": 1.0},
        shown=("low", "high"),
        piecewise_linear=True,
    ),
    _torch("tanhshrink", nn.Tanhshrink, "x - tanh(x)", aten=()),
    _torch(
        "softshrink",
        nn.Softshrink,
        "x -+ l outside (-l, l), else 0",
        numbers={"lambd": 0.5},
        shown=("lambda",),
        piecewise_linear=True,
    ),
    _torch(
        "hardshrink",
        nn.Hardshrink,
        "x outside (-l, l), else 0",
        numbers={"lambd": 0.5},
        shown=("lambda",),
        piecewise_linear=True,
    ),
    # its two numbers have no usual values, so that no spec can leave them out
    _torch("threshold", nn.Threshold, "x if x > t else v", described=False, piecewise_linear=True),
    Activation(name="sin", formula="sin(x)", modules=(Sin,), functions=("sin",), aten=("sin",), after_layer=True),
    Activation(name="erf", formula="erf(x)", modules=(Erf,), functions=("erf",), aten=("erf",), after_layer=True),
    Activation(
        name="arctan",
        formula="arctan(x)",
        modules=(Arctan,),
        functions=("atan", "arctan"),
        aten=("atan",),
        after_layer=True,
    ),
    # of our own
    Activation(name="neg_relu", formula="min(0, x)", modules=(NegReLU,), piecewise_linear=True),
    Activation(name="quick_gelu", formula="x s(1.702 x)", modules=(QuickGELU,), relu_like=True),
    Activation(
        name="b_silu",
        formula="(x + a) s(x) - a/2",
        modules=(BSiLU,),
        numbers={"alpha": 1.67},
        shown=("alpha",),
        relu_like=True,
    ),
    Activation(
        name="sugar_b_silu",
        formula="max(0, x), backward with B-SiLU'",
        modules=(SugarBSiLU,),
        numbers={"alpha": 1.67},
        shown=("alpha",),
        relu_like=True,
    ),
    Activation(
        name="noisy_relu",
        formula="max(0, x); in training noise below 0",
        modules=(NoisyReLU,),
        numbers={"alpha": 1.0, "scale": 1.0},
        shown=("alpha", "scale"),
        random=True,
        relu_like=True,
    ),
    Activation(name="poly", formula="sum of a_k x^k", modules=(Polynomial,), shown=("a0", "a1", "...")),
    Activation(name="identity", formula="x", modules=(Identity,), piecewise_linear=True),
)

#: What looks like an activation and takes one entry's value from its neighbours: there is no elementwise derivative.
MIXING: Mapping[str, tuple[type[nn.Module], ...]] = {
    "glu": (nn.GLU,),
    "softmax": (nn.Softmax, nn.Softmax2d),
    "softmin": (nn.Softmin,),
    "log_softmax": (nn.LogSoftmax,),
    "gumbel_softmax": (),
}
