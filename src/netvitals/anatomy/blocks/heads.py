"""Attention blocks: queries, keys, values and output, by what meets in the products, however they are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals.anatomy.blocks.layers import Layer
from netvitals.anatomy.blocks.norms import Norm
from netvitals.anatomy.blocks.projections import Projection, next_layers, part_of, projection
from netvitals.anatomy.dataflow import IDENTITY, Dataflow, decoded
from netvitals.anatomy.ir import Line, Operation, ParameterPart, Slot
from netvitals.anatomy.replay import Replay

SDPA = "_scaled_dot_product"
_FAR = 40  # operations between a score and its softmax


@dataclass(frozen=True, kw_only=True)
class Heads:
    """An attention block: softmax(``scale`` · q kᵀ) v, then the output projection. Part of :class:`Anatomy`.

    ``q``, ``k``, ``v`` and ``o`` are the projections of the block. ``query``, ``key``, ``value``, ``logits``,
    ``weights`` and ``output`` are the tensors, and ``operation`` and ``softmax`` the operations. There are ``heads``
    query heads and ``kv_heads`` key heads of ``head_dim`` channels. ``fused``, ``causal``, ``cross`` and ``qk_norm``
    describe how attention is computed. ``name``, ``module``, ``call`` and ``line`` describe where attention is
    computed.
    """

    name: str  # of the module that runs it
    operation: int  # the fused call, or the product with the values
    fused: bool  # through scaled_dot_product_attention; else matmul and softmax
    q: Projection | None  # None: not made by a layer
    k: Projection | None
    v: Projection | None
    o: Projection | None
    heads: int
    kv_heads: int
    head_dim: int
    scale: float  # of the product of query and key
    causal: bool
    cross: bool  # keys come from elsewhere than queries
    qk_norm: bool  # a norm between the layers and the product
    query: int  # values (…, positions, head_dim), before any constant factor: logits are scale · query · key
    key: int
    value: int  # (…, positions, channels), as it enters the product
    logits: int | None  # what enters the softmax; None where it is inside the fused call
    weights: int | None
    output: int
    softmax: int | None = None  # operation
    module: str = ""
    call: int = 1
    line: Line | None = None


@dataclass(frozen=True)
class _Found:
    op: Operation
    q: int
    k: int
    v: int
    out: int
    turned: tuple[bool, bool]  # the key, the value lie as (channels, positions)
    scale: float
    causal: bool
    logits: int | None = None
    weights: int | None = None
    softmax: int | None = None


def find_heads(flow: Dataflow, layers: Sequence[Layer], norms: Sequence[Norm]) -> tuple[Heads, ...]:
    """Every attention block of a pass."""
    free = {op.index for op in flow.operations if op.kind == "layer"} - {layer.operation for layer in layers}
    found = []
    for op in flow.operations:
        if op.name.startswith(SDPA) and op.index in free:
            found.append(_fused(op, flow))
        elif op.name in ("_softmax", "_safe_softmax") and (
            one := _written(op, op.inputs[0], op.outputs[0], flow, free)
        ):
            found.append(one)
    for norm in norms:
        if norm.kind == "softmax":
            op = flow.operations[norm.operation]
            if one := _written(op, norm.input, norm.output, flow, free):
                found.append(one)
    found.sort(key=lambda f: f.op.index)
    normed = {i for norm in norms for i in norm.operations}
    return tuple(_block(f, k, flow, layers, normed) for k, f in enumerate(found))


def _fused(op: Operation, flow: Dataflow) -> _Found:
    q, k, v = op.inputs[:3]
    kwargs = op.kwargs or {}
    causal = kwargs.get("is_causal", next((a for a in op.args[4:7] if isinstance(a, bool)), False))
    scale = kwargs.get("scale") or 1 / math.sqrt(flow.values[q].shape[-1])
    masked = "attn_mask" in kwargs or "attn_bias" in kwargs or len(op.inputs) > 3
    return _Found(
        op, q, k, v, op.outputs[0], (False, False), float(scale), bool(causal) or (masked and _triangle(op, flow))
    )


def _triangle(op: Operation, flow: Dataflow) -> bool:
    """Whether the mask of a fused call forbids exactly what lies ahead."""
    if len(op.inputs) < 4:
        return False
    mask = flow.tensors[op.inputs[3]]
    if mask.ndim < 2 or mask.shape[-1] != mask.shape[-2] or mask.shape[-1] < 2:
        return False
    allowed = mask if mask.dtype == torch.bool else mask > -1e4
    return _ahead(allowed.reshape(-1, *mask.shape[-2:])[0])


def _ahead(allowed: Tensor) -> bool:
    n = allowed.shape[-1]
    upper = torch.ones(n, n, dtype=torch.bool).triu(1)
    return not bool(allowed.cpu()[upper].any()) and bool(allowed.cpu().diagonal().any())


def _written(op: Operation, logits: int, weights: int, flow: Dataflow, free: set[int]) -> _Found | None:
    """Attention as two products around a softmax."""
    scores, path = _back(logits, flow, free)
    mixing = _forward(weights, flow, free)
    if scores is None or mixing is None or len(scores.inputs) < 2:
        return None
    second, at = mixing
    q, k = scores.inputs[-2:]
    q, before = _plain(q, flow, flow.values[q].shape[-1])
    k, also = _plain(k, flow, flow.values[k].shape[-2])
    first = second.inputs[-2:].index(at) == 0
    v = second.inputs[-1] if first else second.inputs[-2]
    f = Replay(path, scores.outputs[0], logits, flow)
    x = torch.zeros_like(flow.tensors[scores.outputs[0]], dtype=torch.float64, requires_grad=True)
    try:
        with torch.enable_grad():
            y = f(x)
            (slope,) = torch.autograd.grad(y.sum(), x) if path else (torch.ones_like(x),)
        scale = float(slope.nan_to_num(0.0, 0.0, 0.0).abs().max())
    except Exception:  # a step that refuses float64
        scale = math.nan
    scale *= before * also * float((scores.kwargs or {}).get("alpha", 1.0))
    weight = flow.tensors[at] if first else flow.tensors[at].transpose(-1, -2)
    square = weight.ndim >= 2 and weight.shape[-1] == weight.shape[-2] and weight.shape[-1] > 1
    causal = square and _ahead(weight.reshape(-1, *weight.shape[-2:])[0] > 0)
    return _Found(
        second, q, k, v, second.outputs[0], (not _upright(k, flow), not first), scale, causal, logits, weights, op.index
    )


def _plain(value: int, flow: Dataflow, size: int) -> tuple[int, float]:
    """A query or key before constant factors, with its channels last; and the factor."""
    factor, found, at = 1.0, value, value
    for _ in range(12):
        op = flow.producer(at)
        if op is None or not op.inputs:
            break
        if op.kind == "view" or op.name in IDENTITY:
            at = op.inputs[0]
            if len(flow.values[at].shape) < 3:
                break
        elif (by := _factor(op, flow)) is not None:
            factor, at = factor * by, flow.live_inputs(op)[0]
            found = at
        else:
            break
        if not _upright(found, flow) and _upright(at, flow) and flow.values[at].shape[-1] == size:
            found = at
    return found, factor


def _factor(op: Operation, flow: Dataflow) -> float | None:
    """The constant that an operation multiplies by."""
    if op.name not in ("mul", "div") or len(flow.live_inputs(op)) != 1 or len(op.args) < 2:
        return None
    other = op.args[1] if isinstance(op.args[0], Slot) and flow.signal[op.args[0].value] else op.args[0]
    if isinstance(other, Slot):
        held = flow.tensors[other.value]
        if flow.live[other.value] or flow.parametric[other.value] or held.numel() != 1:
            return None
        other = float(held)
    return 1 / float(other) if op.name == "div" else float(other)


def _upright(value: int, flow: Dataflow) -> bool:
    """Whether channels lie along the last dimension."""
    codes = flow.codes(value)
    if codes is None or codes.shape[-1] < 2:
        return False
    line = codes.reshape(-1, codes.shape[-1])[0]
    return bool((line != line[0]).any())


def _back(value: int, flow: Dataflow, free: set[int]) -> tuple[Operation | None, list[Operation]]:
    """The product of activations behind a softmax, and the steps between."""
    path: list[Operation] = []
    for _ in range(_FAR):
        op = flow.producer(value)
        if op is None:
            return None, []
        if op.index in free:
            return op, path[::-1]
        if op.kind not in ("view", "pointwise", "random") and op.name != "cat":  # to the logit of a sink
            return None, []
        path.append(op)
        live = flow.live_inputs(op)
        if not live:
            return None, []
        value = live[0]
    return None, []


def _forward(value: int, flow: Dataflow, free: set[int]) -> tuple[Operation, int] | None:
    """The product that attention weights enter, and the value that enters it."""
    todo = [(value, 0)]
    while todo:
        v, far = todo.pop(0)
        for op in flow.readers[v]:
            if op.index in free:
                return op, v
            if op.kind in ("view", "pointwise", "random") and far < _FAR and len(flow.live_inputs(op)) == 1:
                todo += [(o, far + 1) for o in op.outputs if flow.signal[o]]
    return None


def _rows(flow: Dataflow, value: int, turned: bool) -> list[tuple[int, ...]]:
    """The channel codes of each head, in the order of the heads."""
    codes = flow.codes(value)
    if codes is None or codes.ndim < 2:
        return []
    codes = codes.transpose(-1, -2) if turned else codes
    at = codes[..., codes.shape[-2] - 1, :].reshape(-1, codes.shape[-1])
    return [row for row in dict.fromkeys(map(tuple, at.tolist())) if any(c >= 0 for c in row)]


def _block(f: _Found, number: int, flow: Dataflow, layers: Sequence[Layer], normed: set[int]) -> Heads:
    rows = [_rows(flow, f.q, False), _rows(flow, f.k, f.turned[0]), _rows(flow, f.v, f.turned[1])]
    q, k, v = (projection(flow, layers, r) for r in rows)
    shape = flow.values[f.q].shape
    heads = len(rows[0]) or (shape[-3] if len(shape) > 2 else 1)
    value_dim = flow.values[f.v].shape[-2 if f.turned[1] else -1]
    return Heads(
        name=f.op.module or "the model",
        operation=f.op.index,
        fused=f.logits is None,
        q=q,
        k=k,
        v=v,
        o=_output(f, len(layers) + number, flow, layers, heads, value_dim),
        heads=heads,
        kv_heads=len(rows[1]) or heads,
        head_dim=shape[-1],
        scale=f.scale,
        causal=f.causal,
        cross=q is not None and k is not None and _apart(q, k, f.op.module, flow, layers),
        qk_norm=_normed(f.q, flow, normed) or _normed(f.k, flow, normed),
        query=f.q,
        key=f.k,
        value=f.v,
        logits=f.logits,
        weights=f.weights,
        output=f.out,
        softmax=f.softmax,
        module=f.op.module,
        call=f.op.call,
        line=f.op.line,
    )


def _output(
    f: _Found, source: int, flow: Dataflow, layers: Sequence[Layer], heads: int, value_dim: int
) -> Projection | None:
    readers = next_layers(flow, f.out, layers)
    if not readers:
        return None
    layer = readers[0]
    parts: tuple[ParameterPart, ...] = ()
    inner = flow.values[layer.input].shape[layer.channel_dim]
    if not layer.reparametrised and inner == heads * value_dim:
        flow.mark_heads(f.out, source, heads, -2 if f.turned[1] else -1)
        codes = flow.codes(layer.input)
        if codes is not None:
            line = codes.movedim(layer.channel_dim, -1).reshape(-1, inner)[0].tolist()
            owners = [decoded(c)[1] // value_dim if c >= 0 and decoded(c)[0] == source else -1 for c in line]
            columns = [[j for j, h in enumerate(owners) if h == head] for head in range(heads)]
            in_dim = {0: 1, 1: 0}.get(layer.out_dim, 1)
            if all(columns):
                parts = tuple(part_of(layer, c, flow, in_dim) for c in columns)
    return Projection(
        layer=layer.name,
        weight=layer.part,
        bias=ParameterPart(parameter=layer.bias) if layer.bias else None,
        operation=layer.operation,
        channels=inner,
        heads=parts,
    )


def _normed(value: int, flow: Dataflow, normed: set[int]) -> bool:
    """Whether a norm lies between a query or key and the layer that made it."""
    seen, todo = set[int](), [value]
    while todo:
        op = flow.producer(todo.pop())
        if op is None or op.index in seen or op.kind == "layer":
            continue
        if op.index in normed or op.kind == "norm":
            return True
        seen.add(op.index)
        todo += flow.live_inputs(op)
    return False


def _apart(q: Projection, k: Projection, module: str, flow: Dataflow, layers: Sequence[Layer]) -> bool:
    """Whether queries and keys are made of different things: cross attention."""
    made = {layer.operation: layer for layer in layers}
    sides = []
    for p in (q, k):
        behind = _makers(made[p.operation].input, flow, made)
        inner = {i for i in behind if i >= 0 and module and made[i].name.startswith(f"{module}.")}
        for i in inner:  # a low-rank step inside the block, as in latent attention
            behind = (behind - {i}) | _makers(made[i].input, flow, made)
        sides.append(behind)
    return not sides[0] & sides[1]


def _makers(value: int, flow: Dataflow, made: dict[int, Layer]) -> set[int]:
    """Layers (by operation) and inputs (−1 − value) that a value depends on without another layer between."""
    found, seen, todo = set[int](), set[int](), [value]
    while todo:
        v = todo.pop()
        op = flow.producer(v)
        if op is None:
            found |= {-1 - v} if flow.values[v].source == "input" else set()
        elif op.index in made:
            found.add(op.index)
        elif op.index not in seen:
            seen.add(op.index)
            todo += [i for i in op.inputs if flow.live[i]]
    return found
