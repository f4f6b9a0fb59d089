r"""Candidate gauges of branches that meet: the value branch of a gated MLP, values with outputs, queries with keys.

Of a gated MLP $W_o(f(W_g x) \odot W_v x)$ every row of $W_v$ scales against its column of $W_o$. In attention every
channel of a head's values scales against the columns of the output projection that read it, and every channel of its
queries against that of its keys; with rotary positions only a whole head may. Heads that share keys and values share
the factor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from netvitals.anatomy import Anatomy, Heads, ParameterPart, Projection
from netvitals.optim.blocks import GaugeBlock
from netvitals.optim.gauges import Gauge, Rescale
from netvitals.optim.invariance import Invariant

_TOLERANCE = 1e-8


def branch_gauges(net: Invariant, anatomy: Anatomy) -> Iterator[Gauge]:
    """Candidates of gated MLPs and attention blocks; each is proved afterwards."""
    known = dict(net.task.model.named_parameters(remove_duplicate=False))
    for gated in anatomy.gated:
        if len(gated.out) == 1 and gated.value.weight.parameter in known and gated.out[0].weight.parameter in known:
            rows, columns = [_side(gated.value, anatomy, known, 0)], [_side(gated.out[0], anatomy, known, 1)]
            yield from _gauge(f"gated rescale {gated.value} → {gated.out[0].layer}", rows, columns, known, anatomy)
    for block in anatomy.heads:
        shared = block.heads // max(block.kv_heads, 1)
        for what, first, second in (("value–output", block.v, block.o), ("query–key", block.q, block.k)):
            if first is None or second is None or (what == "query–key" and block.qk_norm):
                continue
            if any(p.also or p.weight.parameter not in known for p in (first, second)):
                continue
            name = f"{what} rescale {block.name}"
            for whole in (False, True) if first.heads and second.heads else ():
                sides = [
                    _of_heads(p, block, anatomy, known, 1 if p is block.o else 0, shared, whole)
                    for p in (first, second)
                ]
                found = list(_gauge(name, [sides[0]], [sides[1]], known, anatomy))
                if found and _holds(net, found[0]):
                    yield found[0]
                    break


_Side = tuple[Projection, int, Tensor]  # projection, 0 for rows and 1 for columns, channel of every position


def _side(p: Projection, anatomy: Anatomy, known: dict[str, Parameter], side: int) -> _Side:
    size, dim = _size(p, anatomy, known, side)
    at = _positions(p.weight, dim, size)
    return p, side, _filled(size, [(at, torch.arange(len(at)))])


def _of_heads(
    p: Projection, block: Heads, anatomy: Anatomy, known: dict[str, Parameter], side: int, shared: int, whole: bool
) -> _Side:
    """The channel of every row (column) of a projection; ``whole`` gives a head one channel."""
    size, dim = _size(p, anatomy, known, side)
    pieces = []
    group = 1 if p in (block.k, block.v) else shared  # query heads that share keys and values
    for head, part in enumerate(p.heads):
        at = _positions(part, dim, size)
        kv = head // group
        if whole:  # rotary positions hide which rows a channel comes from, but a head's rows lie together
            at = torch.arange(int(at.min()), min(int(at.min()) + block.head_dim, size))
            pieces.append((at, torch.full((len(at),), kv)))
        else:
            pieces.append((at, kv * len(at) + torch.arange(len(at))))
    return p, side, _filled(size, pieces)


def _gauge(
    name: str, first: Sequence[_Side], second: Sequence[_Side], known: dict[str, Parameter], anatomy: Anatomy
) -> Iterator[Gauge]:
    blocks = []
    for sides in (first, second):
        params, dims, rows = [], [], []
        for p, side, channel in sides:
            params.append(known[p.weight.parameter])
            dims.append(_size(p, anatomy, known, side)[1])
            rows.append(channel)
            if side == 0 and p.bias is not None and p.bias.parameter in known:
                params.append(known[p.bias.parameter])
                dims.append(0)
                rows.append(channel)
        blocks.append(GaugeBlock(tuple(params), tuple(dims), tuple(rows)))
    if blocks[0].channels == blocks[1].channels:
        yield Rescale(name, tuple(blocks))


def _size(p: Projection, anatomy: Anatomy, known: dict[str, Parameter], side: int) -> tuple[int, int]:
    """How many rows (columns) the weight has, and along which dimension they lie."""
    layer = next(x for x in anatomy.layers if x.operation == p.operation)
    dim = layer.out_dim if side == 0 else 1 - layer.out_dim
    return known[p.weight.parameter].shape[dim], dim


def _positions(part: ParameterPart, dim: int, size: int) -> Tensor:
    every = torch.arange(size)
    at = part.index[dim] if dim < len(part.index) else slice(None)
    return every[at] if isinstance(at, slice) else torch.tensor([at] if isinstance(at, int) else list(at))


def _filled(size: int, pieces: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    out = torch.full((size,), -1)
    for at, channel in pieces:
        out[at] = channel
    return out


def _holds(net: Invariant, gauge: Gauge) -> bool:
    try:
        gauge.check()
    except ValueError:
        return False
    return net.change_along(gauge, 0) <= _TOLERANCE
