"""Exchange the activations of a model in place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn

from netvitals import activations
from netvitals.layers.replacement import Filter, Replaced, Surgery, exchange, passes, settle
from netvitals.layers.source import functional_activations

Make = str | nn.Module | Callable[..., Any]


def _fresh(to: Make) -> Callable[[nn.Module], nn.Module]:
    """A maker of replacements from a spec, a module to copy, a class, or a factory that is given the old part."""
    if isinstance(to, str):
        spec = activations.canonical(to)
        return lambda old: activations.get(spec)
    if isinstance(to, nn.Module):
        return lambda old: copy.deepcopy(to)
    if isinstance(to, type) and issubclass(to, nn.Module):
        return lambda old: to()
    if callable(to):
        function: Callable[..., Any] = to
        return (lambda old: activations.get(function)) if to in activations.FUNCTIONAL else function
    raise TypeError(f"the replacement must be a name, a module, a class or a factory, got {type(to).__name__}")


def spec_of_any(module: nn.Module) -> str | None:
    """The spec of an activation, a stranger's included."""
    if isinstance(module, activations.MODULES):
        return activations.spec_of(module) or type(module).__name__.lower()
    if type(module).__module__.startswith("torch.") or any(True for _ in module.children()):
        return None
    small = all(p.numel() <= 1 for p in module.parameters()) and not any(True for _ in module.buffers())
    return activations.look_alike(module) if small else None


def _matcher(frm: str | type[nn.Module] | tuple[str, ...] | None) -> Callable[[str | None, nn.Module], bool]:
    if frm is None:
        return lambda spec, module: spec is not None
    if isinstance(frm, type):
        return lambda spec, module: isinstance(module, frm)
    wanted = {activations.canonical(f) for f in ([frm] if isinstance(frm, str) else frm)}
    return lambda spec, module: spec is not None and (spec in wanted or spec.split(":")[0] in wanted)


def replace_activation(
    model: nn.Module, frm: str | type[nn.Module] | tuple[str, ...] | None, to: Make, *, only: Filter = None
) -> Surgery:
    """Replace activation modules by another activation, in place.

    Args:
        model: the model, which is changed.
        frm: a name (``"gelu"`` is GELU only, ``"leaky_relu"`` any slope, ``"leaky_relu:0.1"`` that slope), several
            names, a class, or None for every activation.
        to: a spec, a module (copied), a class, or a factory that is given the old module.
        only: a pattern of dotted names (``"blocks.*.act"``) or a function of (name, module).

    Returns:
        What was replaced, place by place, and what could not be.

    An activation function stored in an attribute (as in ``nn.TransformerEncoderLayer``) is replaced too. An activation
    that ``forward`` calls as a function cannot be replaced and is listed in ``.skipped``.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.Linear(2, 2))
    >>> print(replace_activation(net, "gelu", "relu2:15"))
    1: gelu -> relu2:15
    """
    fits, make = _matcher(frm), _fresh(to)
    if fits(spec_of_any(model), model):
        raise ValueError(
            "the model itself is the activation, so it cannot be replaced in place: wrap the model in nn.Sequential"
        )
    # an activation made of others (a squared one, a top-k one) is exchanged whole or not at all
    inside = {
        id(inner)
        for m in model.modules()
        if isinstance(m, activations.MODULES)
        for inner in m.modules()
        if inner is not m
    }

    def wanted(name: str, module: nn.Module) -> bool:
        return id(module) not in inside and passes(only, name, module) and fits(spec_of_any(module), module)

    replaced = exchange(model, wanted, make, carry=False)
    replaced += _exchange_attributes(
        model,
        lambda name, spec, owner: passes(only, name, owner) and fits(spec, owner) and not isinstance(frm, type),
        make,
    )
    skipped: dict[str, str] = {}
    for name, called, line in functional_activations(model):
        if not isinstance(frm, type) and fits(called, model):
            why = f"{called} is called as a function in forward, line {line}"
            skipped[name] = f"{skipped[name]}; {why}" if name in skipped else why
    _unfuse(model)
    return Surgery(replaced, skipped)


def _unfuse(model: nn.Module) -> None:
    """Tell torch's transformers which activation they hold: their fused path knows ReLU and GELU only."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            held = module.activation
            spec = activations.spec_of(held) if isinstance(held, nn.Module) else activations.functional_spec(held)
            module.activation_relu_or_gelu = {"relu": 1, "gelu": 2}.get(spec or "", 0)
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder):
            known = all(getattr(layer, "activation_relu_or_gelu", 1) for layer in module.layers)
            module.use_nested_tensor = bool(module.use_nested_tensor and known)


def _exchange_attributes(
    model: nn.Module, wanted: Callable[[str, str, nn.Module], bool], make: Callable[[nn.Module], nn.Module]
) -> list[Replaced]:
    replaced = []
    for name, module in model.named_modules():
        for key, value in list(vars(module).items()):
            spec = activations.functional_spec(value) if callable(value) else None
            place = f"{name}.{key}" if name else key
            if spec is None or not wanted(place, spec, module):
                continue
            old = activations.get(spec)
            new = make(old)
            settle(new, old, next(model.parameters(), None), carry=False)
            new.train(module.training)
            delattr(module, key)
            setattr(module, key, new)  # now a registered child
            replaced.append(Replaced(place, value, new))
    return replaced


#: Activations that ReLU can stand in for. Squashing ones (sigmoid, tanh) are gates and outputs: they stay.
RELUFIABLE = (
    *(row.name for row in activations.ACTIVATIONS if row.relu_like),
    *("gelu_tanh", "relu2", "gelu2", "silu2"),  # forms of them
)


def relufy(model: nn.Module, *, only: Filter = None) -> Surgery:
    """Replace every ReLU-like activation (GELU, SiLU, …) with ReLU, in place; sigmoid and tanh are kept.

    Args:
        model: the model, which is changed.
        only: a pattern of dotted names (``"blocks.*.act"``) or a function of (name, module); None is everywhere.

    Returns:
        What was replaced, place by place, and what was kept, with the reason.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.SiLU(), nn.Linear(2, 1), nn.Sigmoid())
    >>> print(relufy(net))
    1: silu -> relu
    not reached: 3: sigmoid is not ReLU-like and is kept
    """
    result = replace_activation(model, RELUFIABLE, "relu", only=only)
    for name, module in model.named_modules():
        spec = spec_of_any(module)
        if spec and spec.split(":")[0] not in ("relu", *RELUFIABLE) and passes(only, name, module):
            result.skipped[name] = f"{spec} is not ReLU-like and is kept"
    return result
