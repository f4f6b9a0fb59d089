"""Exchange the norms and the linear layers of a model in place."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from torch import nn

from netvitals.activations import TopK
from netvitals.layers.norms import NORMS, PerPosition, PerToken, norm
from netvitals.layers.replacement import Filter, Surgery, exchange, passes

_KINDS: dict[str, tuple[type[nn.Module], ...]] = {
    "batch": (nn.BatchNorm1d, nn.BatchNorm2d),
    "layer": (nn.LayerNorm,),
    "group": (nn.GroupNorm,),
    "rms": (nn.RMSNorm,),
}


def _norm_shape(old: nn.Module) -> tuple[int, int] | None:
    """(channels, ndim) of a norm, or None if it is not one we can rebuild."""
    if isinstance(old, nn.modules.batchnorm._NormBase) and not isinstance(old, nn.modules.instancenorm._InstanceNorm):
        return int(old.num_features), 4 if "2d" in type(old).__name__ else 2
    if isinstance(old, nn.GroupNorm):
        return int(old.num_channels), 4
    if isinstance(old, (nn.LayerNorm, nn.RMSNorm)) and len(old.normalized_shape) == 1:
        return int(old.normalized_shape[0]), 3
    return None


def replace_norm(
    model: nn.Module,
    frm: str | type[nn.Module] | None,
    to: str | Callable[[nn.Module], nn.Module],
    *,
    only: Filter = None,
) -> Surgery:
    """Replace normalisation layers in place, and copy γ, β and running statistics if the new norm has them.

    Args:
        model: the model, which is changed.
        frm: ``"batch"``, ``"layer"``, ``"group"``, ``"rms"``, a class, or None for every norm.
        to: a spec of :func:`netvitals.layers.norm`, or a factory that is given the old norm.
        only: a pattern of dotted names (``"blocks.*.norm"``) or a function of (name, module).

    Returns:
        What was replaced, place by place, with the tensors that were copied.

    >>> net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    >>> replace_norm(net, "batch", "quantile:0.75")[0].kept
    ('weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked')
    """
    if isinstance(frm, str) and frm not in _KINDS:
        near = difflib.get_close_matches(frm, [*_KINDS, *NORMS], 3, 0.4) or list(_KINDS)
        raise ValueError(f"there is no norm {frm!r}; the nearest names are {', '.join(near)}")
    kinds: tuple[type[nn.Module], ...] = (
        _KINDS[frm]
        if isinstance(frm, str)
        else (frm,)
        if frm is not None
        else tuple(k for group in _KINDS.values() for k in group)
    )
    if isinstance(to, str):
        norm(to, 64, 4)  # a wrong name is refused before anything is changed
    skipped: dict[str, str] = {}

    def wanted(name: str, module: nn.Module) -> bool:
        if not isinstance(module, kinds) or not passes(only, name, module):
            return False
        if isinstance(to, str) and _norm_shape(module) is None:
            skipped[name] = f"{type(module).__name__} over several dimensions has no counterpart"
            return False
        return True

    def make(old: nn.Module) -> nn.Module:
        if not isinstance(to, str):
            return to(old)
        shape = _norm_shape(old)
        assert shape is not None
        new = norm(to, *shape)
        for option in ("eps", "momentum"):
            inner = new.inner if isinstance(new, (PerToken, PerPosition)) else new
            if hasattr(old, option) and hasattr(inner, option) and getattr(old, option) is not None:
                setattr(inner, option, getattr(old, option))
        return new

    if isinstance(model, kinds):
        raise ValueError(
            "the model itself is the norm, so it cannot be replaced in place: wrap the model in nn.Sequential"
        )
    return Surgery(exchange(model, wanted, make, carry=True), skipped)


def replace_linear(
    model: nn.Module,
    to: str | Callable[[nn.Module], nn.Module],
    *,
    kinds: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv1d, nn.Conv2d),
    only: Filter = None,
) -> Surgery:
    """Replace linear and convolution layers in place by TopK layers, or by the modules that a factory returns.

    Args:
        model: the model, which is changed.
        to: ``"topk:SPARSITY[:GRANULARITY]"``, which wraps each layer, weights and all, in
            :class:`netvitals.layers.TopK`, or a factory that is given the old layer.
        kinds: classes of layers to replace; layers already inside a TopK are left unchanged.
        only: a pattern of dotted names (``"blocks.*.fc"``) or a function of (name, module); None is everywhere.

    Returns:
        What was replaced, place by place.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> print(replace_linear(net, "topk:0.5", only="0"))
    0: Linear -> TopK
    """
    if isinstance(to, str):
        name, *rest = to.split(":")
        if name != "topk" or not 1 <= len(rest) <= 2:
            raise ValueError(
                f"the replacement of a linear layer must be 'topk:SPARSITY[:GRANULARITY]' or a factory, got {to!r}"
            )
        sparsity, granularity = float(rest[0]), (rest[1] if len(rest) > 1 else "token")
        TopK(nn.Identity(), sparsity, granularity)  # type: ignore[arg-type]  # refuse wrong numbers before the cut
        make: Callable[[nn.Module], nn.Module] = lambda old: TopK(old, sparsity, granularity)  # type: ignore[arg-type]
    else:
        make = to
    inside = {id(m.inner) for m in model.modules() if isinstance(m, TopK)}
    wanted = lambda name, m: isinstance(m, kinds) and id(m) not in inside and passes(only, name, m)
    if isinstance(model, kinds):
        raise ValueError(
            "the model itself is the linear layer, so it cannot be replaced in place: wrap the model in nn.Sequential"
        )
    return Surgery(exchange(model, wanted, make, carry=False), {})
