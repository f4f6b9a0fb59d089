"""Products of two branches, attention blocks and routers, as a vital sign is shown them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from netvitals.anatomy import Gate, Heads, Mixture, Operation, Slot
from netvitals.capture.engine.pass_state import Await, PassState
from netvitals.capture.engine.planning.extras import Extra
from netvitals.capture.site import Site
from netvitals.capture.views import HeadsView, RouterView

Tensors = Sequence[Tensor] | Mapping[int, Tensor]  # by value


def show_block(state: PassState, extra: Extra, site: Site, tensors: Tensors, gradient: Await | None) -> None:
    """Show a block whose operations have run."""
    part = extra.part
    if isinstance(part, Gate):
        state.product(site, *_factors(extra.core.path[0], part, tensors), gradient)
    elif isinstance(part, Heads):
        state.view("heads", _heads(site, part, extra.core.path[-1], tensors))
    elif isinstance(part, Mixture):
        state.view("router", _router(site, part, tensors))


def _factors(op: Operation, gate: Gate, tensors: Tensors) -> tuple[Tensor, Tensor]:
    """What a product multiplies; ``glu`` has both in one tensor, and a sigmoid for the second."""
    first, second = tensors[gate.left], tensors[gate.right]
    if op.name != "glu":
        return first, second
    value, opening = first.chunk(2, op.args[1] if len(op.args) > 1 else -1)
    return value, torch.sigmoid(opening)


def _heads(site: Site, part: Heads, op: Operation, tensors: Tensors) -> HeadsView:
    given = _bound(op) if part.fused else {}
    mask = given.get("attn_mask") or given.get("attn_bias")
    group = lambda value, heads: _grouped(tensors[value].detach(), heads, part.head_dim)
    scores = [None if v is None else _grouped(tensors[v].detach(), part.heads) for v in (part.logits, part.weights)]
    return HeadsView(
        site=site,
        q=group(part.query, part.heads),
        k=group(part.key, part.kv_heads),
        v=_grouped(tensors[part.value].detach(), part.kv_heads),
        scale=part.scale,
        causal=bool(given.get("is_causal", False)),
        mask=tensors[mask.value].detach() if isinstance(mask, Slot) else None,
        logits=scores[0],
        weights=scores[1],
    )


def _bound(op: Operation) -> dict[str, Any]:
    """The arguments of an operator by their names."""
    return dict(zip((a.name for a in op.func._schema.arguments), op.args)) | (op.kwargs or {})


def _grouped(t: Tensor, heads: int, channels: int | None = None) -> Tensor:
    """(examples, heads, rows, columns), from that or from (examples · heads, rows, columns); channels come last."""
    if channels is not None and t.shape[-1] != channels and t.shape[-2] == channels:
        t = t.transpose(-1, -2)
    if t.ndim == 4:
        return t
    if t.ndim == 2:
        return t[None, None]
    return t.reshape(-1, heads if t.shape[0] % heads == 0 else 1, *t.shape[-2:])


def _router(site: Site, part: Mixture, tensors: Tensors) -> RouterView:
    scores = tensors[part.scores].detach()
    scores = scores.reshape(-1, scores.shape[-1])
    return RouterView(
        site=site,
        scores=scores,
        chosen=tensors[part.chosen].detach(),
        top_k=part.top_k,
        probabilities=site.op == "softmax",
    )
