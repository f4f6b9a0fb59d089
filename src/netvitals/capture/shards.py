"""Parameters that no process holds whole: which piece of which tensor a rank has, and how many ranks have the same one.

FSDP2 and tensor parallel models keep DTensors; FSDP1 keeps flat parameters, of which a rank has a slice that may cut
through a tensor. Everything here looks at what a rank holds and at nothing else: no collective is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from netvitals._help import hint

WRAPPED = "_fsdp_wrapped_module."  # FSDP1 puts it into names
FLAT = "_flat_param"


class Piece(NamedTuple):
    """What a rank holds of one tensor."""

    shape: tuple[int, ...]  # of the whole
    holders: float  # ranks that hold this same piece

    @property
    def numel(self) -> int:
        return int(torch.Size(self.shape).numel())


def is_distributed(t: Any) -> bool:
    """Whether this is a DTensor, without importing what defines it.

    >>> is_distributed(torch.zeros(2))
    False
    """
    return hasattr(t, "_spec") and hasattr(t, "to_local") and hasattr(t, "placements")


def local(t: Tensor) -> Tensor:
    """What this rank holds of a tensor; any other tensor as it is.

    A gradient that ranks still have to add up is not what it seems: it is a ``ValueError``, and nobody adds it up here.
    """
    if not is_distributed(t):
        return t
    if any(p.is_partial() for p in t.placements):  # type: ignore[attr-defined]
        raise ValueError(
            "the parameter is a partial sum that the ranks have not added up yet, so its value is not available "
            f"{hint('sharded')}"
        )
    piece: Tensor = t.to_local()  # type: ignore[attr-defined]
    return piece


def locals_of(tensors: Mapping[str, Tensor], skipped: dict[str, str]) -> dict[str, Tensor]:
    """What this rank holds of each tensor; what cannot be said goes to ``skipped``."""
    out: dict[str, Tensor] = {}
    for name, t in tensors.items():
        try:
            out[name] = local(t)
        except ValueError as error:
            skipped[f"gradient of {name}"] = str(error)
    return out


def pieces_of(model: nn.Module, world: int) -> dict[str, Piece]:
    """Every parameter of a model of which at least one tensor is cut into pieces; empty where a rank holds everything.

    >>> pieces_of(nn.Linear(2, 1), 1)
    {}
    """
    found: dict[str, Piece] = {}
    cut = False
    slices = dict(_flat_slices(model))
    for name, p in model.named_parameters():
        plain = plain_name(name)
        if plain in slices:
            shape, ranks = slices[plain]
            found[plain] = Piece(shape, world / ranks)
            cut = cut or ranks > 1
        elif name.endswith(FLAT):
            parts = {n: Piece(shape, world / ranks) for n, (shape, ranks) in slices.items() if n in _inside(name, p)}
            found.update(parts)
            cut = cut or any(piece.holders < world for piece in parts.values())
        elif is_distributed(p):
            found[plain] = piece = piece_of(p, world)
            cut = cut or piece.holders < world
        else:
            found[plain] = Piece(tuple(p.shape), float(world))
    return found if cut else {}


def piece_of(t: Tensor, world: int) -> Piece:
    """What a rank holds of a DTensor; of any other tensor all."""
    ranks = 1
    if is_distributed(t):
        mesh = t.device_mesh  # type: ignore[attr-defined]
        for dim, placement in enumerate(t.placements):  # type: ignore[attr-defined]
            ranks *= mesh.size(dim) if not placement.is_replicate() else 1
    return Piece(tuple(t.shape), world / ranks)


def is_put_away(t: Tensor) -> bool:
    """Whether FSDP1 has taken a parameter apart: what is there is a slice, or memory that was freed."""
    freed = t.layout is torch.strided and t.numel() > 0 and t.untyped_storage().size() == 0
    return freed or bool(getattr(t, "_fsdp_flattened", False))


def tensor_parallel_groups(model: nn.Module) -> set[tuple[int, ...]]:
    """The groups of ranks over which layers are cut, so that each computes with a part of them; empty where none is.

    FSDP puts its pieces together before they are computed with: what it has cut is whole here.

    >>> tensor_parallel_groups(nn.Linear(2, 1))
    set()
    """
    managed: dict[int, Any] = {}
    for module in model.modules():
        state = getattr(module, "_get_fsdp_state", None)
        for group in getattr(state(), "_fsdp_param_groups", ()) if callable(state) else ():
            managed.update((id(one.sharded_param), one) for one in group.fsdp_params)
    found: set[tuple[int, ...]] = set()
    for p in model.parameters():
        if not is_distributed(p):
            continue
        of_fsdp = managed.get(id(p))
        if of_fsdp is not None and not of_fsdp.is_dtensor:
            continue
        spec: Any = p._spec if of_fsdp is None else _whole_spec(of_fsdp)  # type: ignore[attr-defined]
        found |= {
            tuple(torch.distributed.get_process_group_ranks(spec.mesh.get_group(dim)))
            for dim, placement in enumerate(spec.placements)
            if not placement.is_replicate()
        }
    return found


def _whole_spec(of_fsdp: Any) -> Any:
    """How a parameter of FSDP2 is cut when FSDP has put its own pieces together."""
    spec = getattr(of_fsdp, "_unsharded_dtensor_spec", None) or getattr(of_fsdp, "_tp_spec", None)
    if spec is None:
        raise NotImplementedError(
            "this version of torch does not expose how FSDP splits its parameters, so they cannot be measured "
            f"{hint('sharded')}"
        )
    return spec


def plain_name(name: str) -> str:
    """The name that a user gave, without those of wrappers.

    >>> plain_name("_fsdp_wrapped_module.blocks.0._fsdp_wrapped_module.up.weight")
    'blocks.0.up.weight'
    """
    return name.replace(WRAPPED, "").removesuffix(WRAPPED[:-1]).removesuffix(".")


def is_wrapped(place: str) -> bool:
    """Whether a place has a name of FSDP1's own; what is there is known by the user's name.

    >>> is_wrapped("blocks.0._fsdp_wrapped_module.up"), is_wrapped("blocks.0.up")
    (True, False)
    """
    return WRAPPED[:-1] in place or FLAT in place


def unflattened(name: str, flat: Any, t: Tensor) -> Iterator[tuple[str, Tensor]]:
    """A tensor as it is, or the parameters in the slice of a flat parameter of FSDP1."""
    if not name.endswith(FLAT):
        yield plain_name(name), t
        return
    for inside, info in zip(_inside(name, flat), _slices(flat)):
        start, length = (info.offset_in_shard, info.numel_in_shard) if info.in_shard else (0, 0)
        yield inside, t[start : start + length]


def named(parameters: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by the names that a user knows, flat parameters taken apart."""
    return {n: part for name, t in tensors.items() for n, part in unflattened(name, parameters.get(name), t)}


def _inside(name: str, flat: Any) -> list[str]:
    """Names of the parameters in a flat parameter."""
    prefix = plain_name(name.removesuffix(FLAT).removesuffix("."))
    return [f"{prefix}.{n}" if prefix else n for n in map(plain_name, flat._fqns)]


def _slices(flat: Any) -> Iterable[Any]:
    known = getattr(flat, "_shard_param_infos", None)
    if known is not None:
        return list(known)
    raise ValueError(
        f"FSDP with use_orig_params=False and NO_SHARD is not supported; use use_orig_params=True {hint('sharded')}"
    )


def _flat_slices(model: nn.Module) -> Iterator[tuple[str, tuple[tuple[int, ...], int]]]:
    """(name, (whole shape, ranks that hold a slice each)) of every parameter that FSDP1 keeps in a flat one."""
    for prefix, module in model.named_modules():
        handle: Any = getattr(module, "_handle", None)
        flat = getattr(handle, "flat_param", None)
        if flat is None or not hasattr(flat, "_fqns"):
            continue
        ranks = handle.world_size if handle.uses_sharded_strategy else 1
        where = plain_name(f"{prefix}.") if prefix else ""
        for inside, shape in zip(flat._fqns, flat._shapes):
            inside = plain_name(inside)
            yield (f"{where}.{inside}" if where else inside), (tuple(shape), ranks)
