"""Which modules and which torch functions are activations, and what their spec string is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals.activations.derivatives import shortest
from netvitals.activations.functions import (
    Arctan,
    BSiLU,
    Centered,
    Erf,
    Function,
    Identity,
    NegReLU,
    Polynomial,
    QuickGELU,
    Sin,
    Squared,
    StiffSigmoid,
    ZeroMean,
)
from netvitals.activations.lookalike import acts_elementwise
from netvitals.activations.sparse import QuantileReLU, TopK
from netvitals.activations.surrogate import NoisyReLU, SugarBSiLU

#: Modules whose output entry depends on the same input entry alone.
ELEMENTWISE: tuple[type[nn.Module], ...] = (
    nn.ReLU,
    nn.LeakyReLU,
    nn.PReLU,
    nn.RReLU,
    nn.ReLU6,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Softplus,
    nn.ELU,
    nn.CELU,
    nn.SELU,
    nn.Tanh,
    nn.Softsign,
    nn.Sigmoid,
    nn.LogSigmoid,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Hardtanh,
    nn.Tanhshrink,
    nn.Softshrink,
    nn.Hardshrink,
    nn.Threshold,
    Erf,
    Sin,
    Arctan,
    NegReLU,
    QuickGELU,
    BSiLU,
    StiffSigmoid,
    Polynomial,
    Identity,
    SugarBSiLU,
    NoisyReLU,
)

#: Every module class that is an activation site, elementwise or not.
MODULES: tuple[type[nn.Module], ...] = (*ELEMENTWISE, Squared, Centered, ZeroMean, Function, TopK, QuantileReLU)

_FUNCTIONAL_NAMES = {
    "relu": (F.relu, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, F.relu_),
    "leaky_relu": (F.leaky_relu, F.leaky_relu_),
    "prelu": (F.prelu, torch.prelu, Tensor.prelu),
    "rrelu": (F.rrelu, F.rrelu_, torch.rrelu, torch.rrelu_),
    "relu6": (F.relu6,),
    "gelu": (F.gelu,),
    "silu": (F.silu,),
    "mish": (F.mish,),
    "softplus": (F.softplus,),
    "elu": (F.elu, F.elu_),
    "celu": (F.celu, F.celu_, torch.celu, torch.celu_),
    "selu": (F.selu, F.selu_, torch.selu, torch.selu_),
    "tanh": (F.tanh, torch.tanh, torch.tanh_, Tensor.tanh, Tensor.tanh_),
    "softsign": (F.softsign,),
    "sigmoid": (F.sigmoid, torch.sigmoid, torch.sigmoid_, torch.special.expit, Tensor.sigmoid, Tensor.sigmoid_),
    "logsigmoid": (F.logsigmoid,),
    "hardswish": (F.hardswish,),
    "hardsigmoid": (F.hardsigmoid,),
    "hardtanh": (F.hardtanh, F.hardtanh_),
    "tanhshrink": (F.tanhshrink,),
    "softshrink": (F.softshrink,),
    "hardshrink": (F.hardshrink, torch.hardshrink, Tensor.hardshrink),
}

#: torch functions and tensor methods that are activations. ``sin``, ``erf`` and ``atan`` are left out: models use them
#: for positions and statistics far more often than as activations.
FUNCTIONAL: dict[Callable[..., Any], str] = {fn: name for name, fns in _FUNCTIONAL_NAMES.items() for fn in fns}

# where the parameters of a spec sit in the call: (position, keyword, default)
_ARGUMENTS: dict[str, tuple[tuple[int, str, Any], ...]] = {
    "leaky_relu": ((1, "negative_slope", 0.01),),
    "softplus": ((1, "beta", 1),),
    "elu": ((1, "alpha", 1.0),),
    "celu": ((1, "alpha", 1.0),),
    "hardtanh": ((1, "min_val", -1.0), (2, "max_val", 1.0)),
    "softshrink": ((1, "lambd", 0.5),),
    "hardshrink": ((1, "lambd", 0.5),),
}


def _joined(name: str, values: Sequence[float], defaults: Sequence[float]) -> str:
    if list(values) == list(defaults):
        return name
    return ":".join([name, *(f"{v:g}" if float(f"{v:g}") == v else repr(float(v)) for v in values)])


def functional_spec(
    function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> str | None:
    """The spec of a call of a torch function, or None if the function is not an activation.

    >>> functional_spec(F.gelu, (), {"approximate": "tanh"}), functional_spec(torch.add)
    ('gelu_tanh', None)
    """
    try:
        name = FUNCTIONAL.get(function)
    except TypeError:  # unhashable callables are no torch functions
        return None
    kwargs = kwargs or {}
    if name == "gelu":
        return "gelu_tanh" if kwargs.get("approximate", "none") == "tanh" else "gelu"
    if name is None or name not in _ARGUMENTS:
        return name
    places = _ARGUMENTS[name]
    values = [kwargs.get(key, args[i] if len(args) > i else default) for i, key, default in places]
    return _joined(name, [float(v) for v in values], [float(d) for *_, d in places])


_PLAIN: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.SiLU: "silu",
    nn.Mish: "mish",
    nn.SELU: "selu",
    nn.Tanh: "tanh",
    nn.Softsign: "softsign",
    nn.Sigmoid: "sigmoid",
    nn.LogSigmoid: "logsigmoid",
    nn.Hardswish: "hardswish",
    nn.Hardsigmoid: "hardsigmoid",
    nn.Tanhshrink: "tanhshrink",
    Erf: "erf",
    Sin: "sin",
    Arctan: "arctan",
    NegReLU: "neg_relu",
    QuickGELU: "quick_gelu",
    Identity: "identity",
    nn.Identity: "identity",
}
_WITH_NUMBERS: dict[type[nn.Module], tuple[str, Callable[[Any], list[float]], list[float]]] = {
    nn.LeakyReLU: ("leaky_relu", lambda m: [m.negative_slope], [0.01]),
    nn.RReLU: ("rrelu", lambda m: [m.lower, m.upper], [1 / 8, 1 / 3]),
    nn.Softplus: ("softplus", lambda m: [m.beta], [1.0]),
    nn.ELU: ("elu", lambda m: [m.alpha], [1.0]),
    nn.CELU: ("celu", lambda m: [m.alpha], [1.0]),
    nn.Hardtanh: ("hardtanh", lambda m: [m.min_val, m.max_val], [-1.0, 1.0]),
    nn.Softshrink: ("softshrink", lambda m: [m.lambd], [0.5]),
    nn.Hardshrink: ("hardshrink", lambda m: [m.lambd], [0.5]),
    BSiLU: ("b_silu", lambda m: [m.alpha], [1.67]),
    SugarBSiLU: ("sugar_b_silu", lambda m: [m.alpha], [1.67]),
    StiffSigmoid: ("sigmoid", lambda m: [m.stiffness, m.center] if m.center else [m.stiffness], [1.0]),
    Polynomial: ("poly", lambda m: list(m.coefficients), []),
    NoisyReLU: ("noisy_relu", lambda m: [m.alpha, m.scale], [1.0, 1.0]),
}


def spec_of(module: nn.Module) -> str | None:
    """The spec string of a module, or None if no spec describes it (a learned slope per channel, a user's own class).

    >>> spec_of(nn.Softplus(beta=20)), spec_of(nn.GELU(approximate="tanh")), spec_of(nn.Linear(1, 1))
    ('softplus:20', 'gelu_tanh', None)
    """
    kind = type(module)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in _WITH_NUMBERS:
        if kind is nn.Softplus and module.threshold != 20:
            return None
        name, numbers, defaults = _WITH_NUMBERS[kind]
        return _joined(name, numbers(module), defaults)
    if isinstance(module, nn.GELU) and kind is nn.GELU:
        return "gelu_tanh" if module.approximate == "tanh" else "gelu"
    if isinstance(module, nn.PReLU) and kind is nn.PReLU:
        # the shortest decimal that names the float32 slope: 0.1, not 0.10000000149
        return f"prelu:{shortest(module.weight)}" if module.weight.numel() == 1 else None
    if isinstance(module, QuantileReLU) and module.signed:
        return f"quantile_relu:{'none' if module.q is None else f'{module.q:g}'}" + (
            "" if module.mode == "mask" else f":{module.mode}"
        )
    if isinstance(module, (Squared, Centered, ZeroMean, TopK)):
        return _composite_spec(module)
    return None


def _composite_spec(module: Squared | Centered | ZeroMean | TopK) -> str | None:
    inner = spec_of(module.inner)
    if inner is None:
        return None
    if isinstance(module, Squared):
        known = inner in ("relu", "gelu", "silu")
        return _joined(f"{inner}2", [] if module.clip is None else [module.clip], []) if known else None
    if isinstance(module, TopK):
        tail = ([] if module.granularity == "token" else [module.granularity]) + ([] if module.post else ["before"])
        return ":".join(["topk", inner, "none" if module.sparsity is None else f"{module.sparsity:g}", *tail])
    return f"{'centered' if isinstance(module, Centered) else 'zero_mean'}:{inner}"


def is_activation(module: nn.Module) -> bool:
    """Whether the module is of a known activation class; a placeholder ``nn.Identity`` is not."""
    return isinstance(module, MODULES) and getattr(module, "elementwise", None) is not False


def is_elementwise(module: nn.Module, probe: bool = False) -> bool:
    """Whether every output entry depends on the same input entry alone, so that f' is defined.

    Known classes are answered by type. With ``probe=True`` an unknown module without children or buffers is called on a
    few numbers (global random state kept) and counts if it is elementwise and not affine.

    >>> is_elementwise(nn.GELU()), is_elementwise(nn.Softmax(dim=-1), probe=True)
    (True, False)
    """
    if isinstance(module, (Squared, Centered, ZeroMean)):
        return is_elementwise(module.inner, probe)
    if isinstance(module, ELEMENTWISE):
        return True
    if isinstance(module, (TopK, QuantileReLU)):
        return False
    if isinstance(module, Function):
        return functional_spec(module.function) is not None or acts_elementwise(module)
    if not probe or any(True for _ in module.children()) or any(True for _ in module.buffers()):
        return False
    if any(p.numel() > 1 for p in module.parameters()):
        return False
    return acts_elementwise(module)
