"""The parameters of a model as vital signs are shown them, and copies of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from netvitals._help import hint
from netvitals.anatomy import Anatomy
from netvitals.capture.shards import Piece, local, locals_of, named, plain_name
from netvitals.capture.views import ParameterView


def parameter_view(
    modules: Mapping[str, nn.Module],
    initial: Mapping[str, Tensor],
    grads: Mapping[str, Tensor] | None = None,
    before: Mapping[str, Tensor] | None = None,
    anatomy: Anatomy | None = None,
    pieces: Mapping[str, Piece] | None = None,
    skipped: dict[str, str] | None = None,
    given: Mapping[str, Tensor] | None = None,
) -> ParameterView:
    """All parameters of a model, given as its modules by name, as a vital sign is shown them.

    Args:
        modules: every module by its dotted name, the model itself under ``""``.
        initial: copies of the parameters as they were at the start, by name.
        grads: gradients by parameter name, sparse ones are made dense; None where there was no backward pass.
        before: copies of the parameters before the optimizer's step, by name; None where there was no step.
        anatomy: what the model is made of, where that is known.
        pieces: what this rank holds of each parameter, where none holds everything.
        skipped: takes what cannot be told.
        given: tensors that are trained in the place of the modules' own, by name.

    Returns:
        The view; a shared parameter is in it once, under the first of its names.

    >>> net = nn.Linear(2, 1)
    >>> sorted(parameter_view({"": net}, copies(net)).params)
    ['bias', 'weight']
    """
    params: dict[str, Tensor] = {}
    met: set[int] = set()
    for prefix, module in modules.items():
        for key, p in module._parameters.items():
            if p is not None and id(p) not in met:  # a shared parameter has the first of its names
                met.add(id(p))
                params[f"{prefix}.{key}" if prefix else key] = p
    params.update(given or {})
    grads, before = grads or {}, before or {}
    if pieces:
        whole, missed = dict(params), {} if skipped is None else skipped
        params, grads, before = (named(whole, locals_of(t, missed)) for t in (whole, grads, before))
        if grads:  # ranks that hold nothing of a tensor have no gradient of it, and all must tell of the same tensors
            free = named(whole, {n: p for n, p in whole.items() if p.requires_grad})
            for name in free.keys() - grads.keys():
                if f"gradient of {name}" not in missed:
                    grads[name] = params[name].new_empty(0)
            grads = {name: grads[name] for name in params if name in grads}
        modules = {plain_name(name): m for name, m in modules.items()}
    # an nn.Embedding(sparse=True) has a gradient that few operations take
    dense = {n: g if g.layout is torch.strided else g.to_dense() for n, g in grads.items()}
    return ParameterView(
        params=params,
        initial=initial,
        grads=dense,
        before=before,
        modules=modules,
        anatomy=anatomy,
        pieces=pieces or {},
    )


def copies(model: nn.Module) -> dict[str, Tensor]:
    """A copy of every parameter, by name.

    Args:
        model: a model whose parameters all have a shape; a lazy one is a ``ValueError``.

    Returns:
        Detached tensors on the parameters' own devices, by dotted name.

    >>> net = nn.Linear(2, 1); kept = copies(net)
    >>> with torch.no_grad():
    ...     _ = net.weight.zero_()
    >>> sorted(kept), bool((kept["weight"] != 0).any())
    (['bias', 'weight'], True)
    """
    lazy = [n for n, p in model.named_parameters() if isinstance(p, nn.parameter.UninitializedParameter)]
    if lazy:
        raise ValueError(
            f"the lazy parameter {lazy[0]!r} has no shape yet: run one batch through the model before watching it "
            f"{hint('lazy-parameters')}"
        )
    with torch.no_grad():
        parameters = dict(model.named_parameters())
        return named(parameters, {n: local(p.detach()).clone() for n, p in parameters.items()})
