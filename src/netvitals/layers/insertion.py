"""Put a norm in front of the activations of a model, such as the quantile norm that sets their sparsity."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from netvitals import activations
from netvitals.capture import inputs_of, undisturbed
from netvitals.layers.norms import norm
from netvitals.layers.replacement import Filter, Surgery, exchange, passes
from netvitals.layers.source import functional_activations
from netvitals.layers.surgery import spec_of_any


class Normed(nn.Sequential):
    """A norm, then the activation that was there.

    Args:
        norm: over the activation's input.
        activation: as it was.
    """

    def __init__(self, norm: nn.Module, activation: nn.Module) -> None:
        super().__init__()
        self.norm, self.activation = norm, activation


def insert_norm(model: nn.Module, batch: Any, *, to: str = "quantile:0.75", only: Filter = None) -> Surgery:
    """Insert a normalisation layer in front of every activation module, in place.

    A quantile norm in front of a ReLU sets its sparsity: ``"quantile:0.75"`` makes 75 % of the inputs negative. See
    ``drift.sparsity`` and ``drift.cliff``. The new norms have parameters, so call this function before making the
    optimizer. Activations that already follow a norm are left unchanged; use :func:`replace_norm` for them.

    Args:
        model: the model, which is changed; its parameters keep their names, but those of an activation module.
        batch: one batch as a data loader yields it; one forward pass tells the shapes.
        to: a spec of :func:`norm`.
        only: a pattern of dotted names (``"blocks.*.act"``) or a function of (name, module).

    Returns:
        The activations that have a norm now, and where none was put, with the reason.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> print(insert_norm(net, torch.randn(16, 4)))
    1: relu -> Normed
    >>> net[1].norm
    QuantileBatchNorm1d(8, q=0.75, search=channelwise, variance=quantile, eps=1e-05)
    """
    norm(to, 64, 4)  # a wrong name is refused before anything is changed
    if isinstance(model, activations.MODULES):
        raise ValueError(
            "the model itself is the activation, so no norm can be inserted in front of it: wrap the model in "
            "nn.Sequential"
        )
    inside = {
        id(part)
        for m in model.modules()
        if isinstance(m, (*activations.MODULES, Normed))
        for part in m.modules()
        if part is not m
    }
    shapes, reasons = _shapes(model, batch)
    skipped: dict[str, str] = {}
    made: dict[int, nn.Module] = {}
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))

    def wanted(name: str, module: nn.Module) -> bool:
        spec = spec_of_any(module)
        if not spec or spec == "identity" or id(module) in inside or not passes(only, name, module):
            return False
        why = reasons.get(id(module), "" if id(module) in shapes else "it is not called on this batch")
        if not why and id(module) not in made:
            try:
                made[id(module)] = norm(to, *shapes[id(module)]).to(like).train(module.training)
            except (ValueError, KeyError) as error:
                why = str(error)
        if why:
            skipped[name] = why
        return not why

    replaced = exchange(model, wanted, lambda old: Normed(made[id(old)], old), carry=False)
    for name, called, line in functional_activations(model):
        if only is None and not any(name == r.name or name.startswith(f"{r.name}.") for r in replaced):
            skipped[f"{name or 'model'} {called}"] = f"called as a function in forward, line {line}"
    return Surgery(replaced, skipped)


@undisturbed
def _shapes(model: nn.Module, batch: Any) -> tuple[dict[int, tuple[int, int]], dict[int, str]]:
    """(channels, ndim) of every activation module's input, and why one can have no norm: by the module's id."""
    shapes: dict[int, tuple[int, int]] = {}
    reasons: dict[int, str] = {}
    calls: Counter[int] = Counter()
    known = {id(m) for m in model.modules() if spec_of_any(m)}  # before there are hooks: a stranger is called for it
    makers: list[tuple[Tensor, str, nn.Module]] = []  # tensors are held, so that no other takes their place

    def after(name: str, module: nn.Module, args: Any, output: Any) -> None:
        if id(module) in known:
            x = args[0] if args else None
            calls[id(module)] += 1
            if calls[id(module)] > 1:
                reasons[id(module)] = "one module is called at several places: give each place one of its own"
            elif not isinstance(x, Tensor) or x.ndim not in (2, 3, 4):
                reasons[id(module)] = "its input is not (N, C), (N, T, C) or (N, C, H, W)"
            else:
                maker = next(((n, m) for t, n, m in makers if t is x), ("", None))
                if "norm" in type(maker[1]).__name__.lower():
                    reasons[id(module)] = f"it follows the norm {maker[0]}: use replace_norm"
                elif x.ndim == 3 and isinstance(maker[1], nn.Conv1d | nn.ConvTranspose1d):
                    reasons[id(module)] = "its input is (N, C, T), for which there is no quantile norm"
                shapes[id(module)] = (x.shape[1] if x.ndim == 4 else x.shape[-1], x.ndim)
        if isinstance(output, Tensor):
            makers.append((output, name, module))

    handles = [
        module.register_forward_hook(lambda m, a, o, name=name: after(name, m, a, o))
        for name, module in model.named_modules()
        if name
    ]
    try:
        with torch.no_grad():
            inputs_of(model, batch).forward()
    finally:
        for handle in handles:
            handle.remove()
    return shapes, reasons
