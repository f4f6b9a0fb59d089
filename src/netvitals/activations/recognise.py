"""Which modules and which torch functions are activations, and what their spec string is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from netvitals.activations.derivatives import shortest
from netvitals.activations.functions import Centered, Function, Polynomial, Squared, StiffSigmoid, ZeroMean
from netvitals.activations.lookalike import acts_elementwise
from netvitals.activations.sparse import QuantileReLU, TopK
from netvitals.activations.table import ACTIVATIONS

#: Modules whose output entry depends on the same input entry alone.
ELEMENTWISE: tuple[type[nn.Module], ...] = tuple(kind for row in ACTIVATIONS for kind in row.modules)

#: Every module class that is an activation site, elementwise or not.
MODULES: tuple[type[nn.Module], ...] = (*ELEMENTWISE, Squared, Centered, ZeroMean, Function, TopK, QuantileReLU)

#: torch functions and tensor methods that are activations. ``sin``, ``erf`` and ``atan`` are left out: models use them
#: for positions and statistics far more often than as activations.
FUNCTIONAL: dict[Callable[..., Any], str] = {
    function: row.name
    for row in ACTIVATIONS
    if row.described and not row.after_layer
    for function, _ in row.callables()
}

_BY_NAME = {row.name: row for row in ACTIVATIONS}
_BY_CLASS = {kind: row for row in ACTIVATIONS for kind in row.modules}


def _joined(name: str, values: Sequence[float], defaults: Sequence[float]) -> str:
    if list(values) == list(defaults):
        return name
    return ":".join([name, *(f"{v:g}" if float(f"{v:g}") == v else repr(float(v)) for v in values)])


def functional_spec(
    function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> str | None:
    """The spec of a call of a torch function, or None if the function is not an activation.

    Args:
        function: the object that was called, such as ``F.gelu``, ``torch.relu`` or ``Tensor.tanh``.
        args: positional arguments of the call, its input first; empty means the function's defaults.
        kwargs: keyword arguments of the call; None for none.

    Returns:
        The spec, with its parameters where any differs from its default, or None.

    >>> functional_spec(nn.functional.gelu, (), {"approximate": "tanh"}), functional_spec(nn.functional.linear)
    ('gelu_tanh', None)
    """
    try:
        name = FUNCTIONAL.get(function)
    except TypeError:  # unhashable callables are no torch functions
        return None
    kwargs = kwargs or {}
    if name == "gelu":
        return "gelu_tanh" if kwargs.get("approximate", "none") == "tanh" else "gelu"
    if name is None:
        return None
    numbers = _BY_NAME[name].numbers
    values = [kwargs.get(key, args[i] if len(args) > i else usual) for i, (key, usual) in enumerate(numbers.items(), 1)]
    return _joined(name, [float(v) for v in values], list(numbers.values()))


def spec_of(module: nn.Module) -> str | None:
    """The spec string of a module, or None if no spec describes it (a learned slope per channel, a user's own class).

    Args:
        module: any module; it is not called.

    Returns:
        A spec from which :func:`netvitals.activations.get` builds the same function, or None.

    >>> spec_of(nn.Softplus(beta=20)), spec_of(nn.GELU(approximate="tanh")), spec_of(nn.Linear(1, 1))
    ('softplus:20', 'gelu_tanh', None)
    """
    kind = type(module)
    if isinstance(module, nn.GELU) and kind is nn.GELU:
        return "gelu_tanh" if module.approximate == "tanh" else "gelu"
    if isinstance(module, nn.PReLU) and kind is nn.PReLU:
        # the shortest decimal that names the float32 slope: 0.1, not 0.10000000149
        return f"prelu:{shortest(module.weight)}" if module.weight.numel() == 1 else None
    if isinstance(module, StiffSigmoid):
        return _joined("sigmoid", [module.stiffness, module.center] if module.center else [module.stiffness], [1.0])
    if isinstance(module, Polynomial):
        return _joined("poly", list(module.coefficients), [])
    if kind is nn.Identity:
        return "identity"
    if kind is nn.Softplus and module.threshold != 20:
        return None
    row = _BY_CLASS.get(kind)
    if row is not None:
        numbers = [float(getattr(module, key)) for key in row.numbers]
        return _joined(row.name, numbers, list(row.numbers.values())) if row.described else None
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
    """Whether the module is of a known activation class; a placeholder ``nn.Identity`` is not.

    Args:
        module: any module; it is not called.

    Returns:
        True for torch's elementwise activations and those of netvitals, unless its ``elementwise`` is False.

    >>> is_activation(nn.GELU()), is_activation(nn.Linear(2, 2))
    (True, False)
    """
    return isinstance(module, MODULES) and getattr(module, "elementwise", None) is not False


def is_elementwise(module: nn.Module, probe: bool = False) -> bool:
    """Whether every output entry depends on the same input entry alone, so that f' is defined.

    Args:
        module: any module; known classes are answered by type.
        probe: call an unknown module without children or buffers on a few numbers (global random state kept), and count
            it if it is elementwise and not affine; False answers no for all unknown ones.

    Returns:
        True or False.

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
