r"""Candidate dead directions of a checkpoint, from one charted pass and one backward pass.

Units of every pair of layers, of experts and of gated MLPs (dead ones, and pairs that are alike), hidden directions
where nothing bends (also values with outputs and queries with keys of every attention head), the bottom of each layer's
K-FAC factors, and the kernel of each LayerNorm. Every parameter is moved by one of them or listed with the reason why
not.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from netvitals.anatomy import (
    Anatomy,
    Heads,
    Layer,
    ParameterPart,
    Projection,
    by_output,
    chart,
    find_links,
    layer_kind,
    plain_kernels,
)
from netvitals.capture import Task
from netvitals.singular.checkpoint.pairs import Direction, Pair, Side, dead_units, hidden_directions, merges
from netvitals.singular.moments.factors import kronecker_lift
from netvitals.singular.moments.kronecker import kfac

_MOVING = frozenset(
    {"view", "_unsafe_view", "reshape", "alias", "detach", "clone", "transpose", "permute", "expand", "contiguous"}
    | {"dropout", "native_dropout"}
)
ANSWERS = 64  # outputs per example up to which K-FAC factors sum over all of them
ROWS = 4096  # samples of activations behind a second moment
WIDEST = 2048  # channels up to which units are compared in pairs


def candidate_directions(task: Task, loss: str, units: int) -> tuple[list[Direction], dict[str, str]]:
    """Directions of a model in float64 that may be dead, and for every other parameter why it has none."""
    with plain_kernels():
        given = (task.args, dict(task.kwargs))
        anatomy = chart(task.model, given, forward=lambda model, batch: model(*batch[0], **batch[1]))
    known: dict[str, Tensor] = dict(task.model.named_parameters(remove_duplicate=False))
    skipped: dict[str, str] = {}
    out: list[Direction] = []
    for pair in layer_pairs(anatomy, known, skipped):
        if shut := pair.silent.nonzero()[:, 0].tolist():
            some = ", ".join(map(str, shut[:5])) + (", …" if len(shut) > 5 else "")
            skipped[f"{pair.name}, {pair.kind} {some}"] = f"{len(shut)} shut on the whole batch: nothing to scan into"
        if pair.linear:
            out += hidden_directions(pair, known, max(1, units // 2))
        if pair.kind == "unit":
            out += dead_units(pair, known, units)
            if not pair.linear and len(pair.reader.at) <= WIDEST:
                out += merges(pair, known, max(1, units // 2))
    outputs = anatomy.values[anatomy.outputs[0]].shape if anatomy.outputs else ()
    answers = int(torch.Size(outputs[1:]).numel())
    out += _bottoms(task, loss, "expected" if answers <= ANSWERS else "monte-carlo", skipped)
    out += _norm_kernels(task.model, anatomy, skipped)
    _cover(anatomy, out, skipped)
    return out, skipped


def layer_pairs(anatomy: Anatomy, known: dict[str, Tensor], skipped: dict[str, str]) -> Iterator[Pair]:
    """Hidden channels with what writes and what reads them: of linked layers, experts, gated MLPs and heads."""
    layers = {layer.name: layer for layer in anatomy.layers}
    links = find_links(anatomy)
    skipped |= links.skipped
    for link in links.links:
        first, second = layers[link.first], layers[link.second]
        name = f"{link.first} → {link.second}"
        if _stacked(first, anatomy) and _stacked(second, anatomy):
            yield from _experts(anatomy, known, first, second)
            continue
        width, inputs = known[first.weight].shape[first.out_dim], known[second.weight].shape[1 - second.out_dim]
        grouped = [x.name for x in (first, second) if _grouped(x, anatomy)]
        if inputs % width or grouped or "embedding" in (first.role,):
            skipped[name] = "no joint modes: the layers are grouped, look up ids, or do not share their channels"
            continue
        every = torch.arange(width)[:, None]
        writers = [Side(parameter=first.weight, dim=first.out_dim, at=every)]
        if first.bias in known:
            writers.append(Side(parameter=first.bias, dim=0, at=every))
        columns = torch.arange(inputs).reshape(width, -1)
        after = _channels(anatomy, second.input, -1 if second.channel_dim != 1 else 1)
        if columns.shape[1] > 1:  # a channel of a feature map owns the columns of all its pixels
            after = after.reshape(-1, width, columns.shape[1]).transpose(1, 2).reshape(-1, width)
        yield Pair(
            name=name,
            writers=tuple(writers),
            reader=Side(parameter=second.weight, dim=1 - second.out_dim, at=columns),
            kind="unit",
            before=_channels(anatomy, first.output, first.channel_dim),
            after=after,
            linear=all(op.rstrip("_") in _MOVING for op in link.between),
        )
    for gated in anatomy.gated:
        sides = (gated.value.weight.parameter, *(p.weight.parameter for p in gated.out))
        if len(sides) == 2 and set(sides) <= set(known):
            yield _between(anatomy, known, f"{gated.value} → {gated.out[0].weight}", gated.value, gated.out[0])
    for block in anatomy.heads:
        yield from _heads(anatomy, known, block, skipped)


def _between(anatomy: Anatomy, known: dict[str, Tensor], name: str, value: Projection, out: Projection) -> Pair:
    """The value branch of a gated MLP, or of one gated expert, whose weights are slices of the tensors of all."""
    first, second = _layer(anatomy, value), _layer(anatomy, out)
    rows = positions(value.weight, first.out_dim, known)
    reader, dim, expert = _slice_of(out.weight, second.out_dim)
    size = known[second.weight].shape[(expert is not None) + 1 - dim]
    before = _channels(anatomy, first.output, first.channel_dim)
    return Pair(
        name=name,
        writers=_writers(first, known, rows, value.weight),
        reader=Side(parameter=reader, dim=1 - dim, at=torch.arange(size)[:, None], expert=expert),
        kind="unit",
        before=before[:, rows],
        after=_channels(anatomy, second.input, second.channel_dim),
        linear=False,
    )


def _slice_of(part: ParameterPart, out_dim: int) -> tuple[str, int, int | None]:
    """Parameter, dimension of the outputs and expert of a matrix that may be one expert's slice of a stack."""
    if part.index and isinstance(part.index[0], int):
        return part.parameter, out_dim - 1, part.index[0]
    return part.parameter, out_dim, None


def _stacked(layer: Layer, anatomy: Anatomy) -> bool:
    """Whether all experts of a mixture run through this layer in one batched product."""
    held = {part.parameter for m in anatomy.experts if m.stacked for e in m.experts for part in e.parameters}
    return layer.weight in held and not layer.part.index


def _experts(anatomy: Anatomy, known: dict[str, Tensor], first: Layer, second: Layer) -> Iterator[Pair]:
    """The units of every expert, whose weights are slices of one tensor."""
    up, down = known[first.weight].detach(), known[second.weight].detach()
    units = torch.arange(up.shape[first.out_dim])[:, None]
    given, after = anatomy.tensors[first.input], anatomy.tensors[second.input]
    if not len(up) == len(down) == len(after) or down.shape[3 - second.out_dim] != len(units):
        return  # named among the parameters that no candidate moves
    for e in range(len(up)):
        own = given[e] if given.ndim == 3 and len(given) == len(up) else given  # its tokens, or those of all
        yield Pair(
            name=f"{first.name}[{e}] → {second.name}[{e}]",
            writers=(Side(parameter=first.weight, dim=first.out_dim - 1, at=units, expert=e),),
            reader=Side(parameter=second.weight, dim=2 - second.out_dim, at=units, expert=e),
            kind="unit",
            before=_rows(own) @ (up[e] if first.out_dim == 2 else up[e].T),
            after=_rows(after[e]),
            linear=False,
        )


def _heads(anatomy: Anatomy, known: dict[str, Tensor], block: Heads, skipped: dict[str, str]) -> Iterator[Pair]:
    for what, one, two in (("values → output", block.v, block.o), ("queries · keys", block.q, block.k)):
        place = f"{block.name}, {what}"
        if one is None or two is None or one.also or two.also or not one.heads or not two.heads:
            skipped[place] = "rows and heads could not be matched"
            continue
        if what != "values → output" and block.qk_norm:
            skipped[place] = "a norm lies between the layers and the product"
            continue
        if len(one.heads) > len(two.heads):  # keys that several heads share write what the queries of all of them read
            one, two = two, one
        first, second = _layer(anatomy, one), _layer(anatomy, two)
        dim = second.out_dim if two is not block.o else 1 - second.out_dim  # the output projection reads columns
        shared = len(two.heads) // len(one.heads)  # heads that read the same keys or values stand side by side
        before = _channels(anatomy, first.output, first.channel_dim)
        for head, mine in enumerate(one.heads):
            rows = positions(mine, first.out_dim, known)
            readers = [positions(other, dim, known) for other in two.heads[head * shared : (head + 1) * shared]]
            heads = f"head {head}" if shared == 1 else f"heads {head * shared} to {(head + 1) * shared - 1}"
            if not readers or any(len(columns) != len(rows) for columns in readers):
                skipped[f"{place}, {heads}"] = "rows and columns could not be matched"
                continue
            yield Pair(
                name=f"{place}, {heads}",
                writers=_writers(first, known, rows),
                reader=Side(parameter=two.weight.parameter, dim=dim, at=torch.stack(readers, 1)),
                kind="head channel",
                before=before[:, rows],
                after=before[:, rows],
                linear=True,
            )


def _bottoms(task: Task, loss: str, fisher: str, skipped: dict[str, str]) -> list[Direction]:
    # to find candidates, sampled labels do; the scans along them use the expected Fisher (§2.5)
    inputs = (dict(task.kwargs) if task.kwargs else task.args, None)
    out: list[Direction] = []
    try:
        found = kfac(task.model, loss, inputs, fisher=fisher)
    except (ValueError, RuntimeError) as error:  # an output that K-FAC has no likelihood for
        skipped["K-FAC bottoms"] = str(error).split("\n")[0]
        return out
    for name, factor in found.layers.items():
        module = task.model.get_submodule(name)
        if layer_kind(module) in ("linear", "convolution") and getattr(module, "groups", 1) == 1:
            turned = by_output(module)
            bottom = by_output(module, kronecker_lift(factor)[0].reshape(turned.shape))
            moves = {f"{name}.weight".lstrip("."): bottom}
            out.append(Direction(name=name or "model", kind="K-FAC bottom", moves=moves))
    return out


def _norm_kernels(model: nn.Module, anatomy: Anatomy, skipped: dict[str, str]) -> list[Direction]:
    """For every LayerNorm that a layer reads directly: the direction of that layer's rows which the norm removes."""
    layers = {layer.name: layer for layer in anatomy.layers}
    known = dict(model.named_parameters(remove_duplicate=False))
    norms = {norm.name: norm for norm in anatomy.norms}
    out: list[Direction] = []
    for reading in anatomy.norm_readers:
        norm = norms[reading.writer]
        if norm.kind != "layer" or norm.weight not in known:
            continue
        gain = known[norm.weight].detach()
        readers = [layers[n] for n in reading.readers if layers[n].weight in known and not layers[n].reparametrised]
        direct = [r for r in readers if known[r.weight].shape[1 - r.out_dim] == len(gain)] if gain.ndim == 1 else []
        if not direct or not bool((gain != 0).all()) or any(name not in _MOVING for name in reading.between):
            skipped[norm.name] = "no linear layer reads this norm directly, or a gain is zero"
            continue
        reader = direct[0]
        weight, kernel = known[reader.weight], 1 / gain
        row = torch.outer(torch.ones(weight.shape[reader.out_dim], dtype=weight.dtype), kernel / kernel.norm())
        row = row.transpose(0, reader.out_dim) / row.norm()
        name = f"{norm.name} read by {reader.name}"
        out.append(Direction(name=name, kind="norm kernel", moves={reader.weight: row}))
    return out


def _cover(anatomy: Anatomy, found: list[Direction], skipped: dict[str, str]) -> None:
    """Every parameter that no direction moves gets a reason."""
    moved = {name for d in found for name in d.moves}
    paired = {name for d in found if d.parts for name in d.moves}
    for layer in anatomy.layers:
        if layer.weight in paired:  # it starts no link, but it has directions all the same
            skipped.pop(layer.name, None)
    gains = {name for norm in anatomy.norms for name in (norm.weight, norm.bias)}
    for p in anatomy.parameters:
        names = (p.name, *p.ties)
        places = {part for name in names for part in (name, name.rpartition(".")[0])}
        if moved.isdisjoint(names) and not any(place in skipped for place in places):
            if not gains.isdisjoint(names):
                why = "a norm's gain or shift: the layers that read it can undo its scale, alone it is not dead"
            elif p.frozen:
                why = "frozen"
            elif len(p.shape) == 1:
                why = "a bias: it moves what its layer gives at first order, alone it is not dead"
            else:
                why = "no row or column of a pair of layers, no K-FAC factors: no candidate moves it"
            skipped[p.name] = why


def _grouped(layer: Layer, anatomy: Anatomy) -> bool:
    op = anatomy.operations[layer.operation]
    return "convolution" in op.name and op.args[8] != 1


def _layer(anatomy: Anatomy, p: Projection) -> Layer:
    return next(x for x in anatomy.layers if x.operation == p.operation)


def _writers(
    layer: Layer, known: dict[str, Tensor], rows: Tensor, part: ParameterPart | None = None
) -> tuple[Side, ...]:
    parameter, dim, expert = _slice_of(part or layer.part, layer.out_dim)
    sides = [Side(parameter=parameter, dim=dim, at=rows[:, None], expert=expert)]
    if layer.bias in known and expert is None:
        sides.append(Side(parameter=layer.bias, dim=0, at=rows[:, None]))
    return tuple(sides)


def positions(part: ParameterPart, dim: int, known: dict[str, Tensor]) -> Tensor:
    """The rows (or columns) of a parameter along ``dim`` that a part of it holds."""
    every = torch.arange(known[part.parameter].shape[dim])
    at = part.index[dim] if dim < len(part.index) else slice(None)
    return every[at] if isinstance(at, slice) else torch.tensor([at] if isinstance(at, int) else list(at))


def _channels(anatomy: Anatomy, value: int, dim: int) -> Tensor:
    """What a value held, as (samples, channels), evenly strided."""
    return _rows(anatomy.tensors[value].movedim(dim, -1))


def _rows(values: Tensor) -> Tensor:
    rows = values.detach().double().reshape(-1, values.shape[-1])
    return rows[:: max(1, -(-len(rows) // ROWS))]
