"""An anatomy as text: modules in the order of the pass, blocks that repeat once, roles, what was not charted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from netvitals.anatomy.drawing.tree import Branch, tree_of

if TYPE_CHECKING:
    from netvitals.anatomy.anatomy import Anatomy

_LINES = 80  # of the tree; what is deeper is counted
_WIDE = 118


def outline_of(anatomy: Anatomy) -> str:
    """A readable outline of an anatomy.

    >>> import torch
    >>> from torch import nn
    >>> from netvitals.anatomy import chart
    >>> text = outline_of(chart(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.ones(3, 4)))
    >>> print("\\n".join(text.splitlines()[:3]))
    Anatomy of Sequential: 3 modules ran in 6 operations; batch dimension 0
      2 layers, 1 activation
      0          hidden layer       Linear: addmm              B×8
    """
    ran = len({op.module for op in anatomy.operations} - {""})
    batch = "no batch dimension" if anatomy.batch_dim is None else f"batch dimension {anatomy.batch_dim}"
    lines = [f"Anatomy of {anatomy.model}: {ran} modules ran in {len(anatomy.operations)} operations; {batch}"]
    lines.append(f"  {counts_of(anatomy)}")
    tree = list(_drawn(tree_of(anatomy), 1))
    lines += [line[:_WIDE].rstrip() for line in tree[:_LINES]]
    lines += [f"  … and {len(tree) - _LINES} more lines; to_html() shows all"] if len(tree) > _LINES else []
    for stream in anatomy.streams[:4]:
        origin = ", ".join(stream.origin_writers) or "the input"
        lines.append(
            f"  stream of width {stream.width}: from {origin}, {len(stream.additions)} additions by "
            f"{_some(stream.writers)}; read by {_some(stream.readers)}{', post-norm' if stream.post_norm else ''}"
        )
    clean = [f"{c.writer} → {', '.join(c.readers)}" for c in anatomy.connections if c.clean]
    lines += [f"  feeds: {'; '.join(clean[:12])}{' …' if len(clean) > 12 else ''}"] if clean else []
    again = [f"{r.name} ({r.kind}, {r.calls} calls)" for r in anatomy.recurrent]
    lines += [f"  used again: {_some(again)}"] if again else []
    ties = [f"{p.name} = {' = '.join(p.ties)}" for p in anatomy.parameters if p.ties]
    lines += [f"  tied: {', '.join(ties)}"] if ties else []
    frozen = [p.name for p in anatomy.parameters if p.frozen]
    lines += [f"  frozen: {_some(frozen)}"] if frozen else []
    lines += [f"  not charted: {place}: {why}" for place, why in list(anatomy.skipped.items())[:10]]
    return "\n".join(lines)


def counts_of(anatomy: Anatomy) -> str:
    """How many of each kind there are, in words."""
    found = {
        "layer": len({layer.name for layer in anatomy.layers}),
        "norm": len(anatomy.norms),
        "activation": len(anatomy.activations),
        "gate": len(anatomy.gates),
        "attention block": len(anatomy.heads),
        "gated MLP": len(anatomy.gated),
        "mixture of experts": len(anatomy.experts),
        "residual stream": len(anatomy.streams),
    }
    many = lambda name: "mixtures of experts" if name.startswith("mixture") else f"{name}s"
    return ", ".join(f"{n} {name if n == 1 else many(name)}" for name, n in found.items() if n) or "nothing was found"


def _drawn(branch: Branch, depth: int) -> Iterator[str]:
    """A branch line by line; neighbours with the same pattern are drawn once."""
    pad = "  " * depth
    for note in branch.notes:
        yield f"{pad}[{note}]"
    for _, run in groupby(branch.parts(), key=lambda p: p.pattern() if isinstance(p, Branch) and p.inner else id(p)):
        group = list(run)
        part = group[0]
        if not isinstance(part, Branch):
            yield _line(pad, part.label, part.role, part.detail, part.shape)
        elif len(part.sites) == 1 and not part.inner and not part.notes:
            site, label = part.sites[0], part.name.rpartition(".")[2]
            yield _line(pad, label, site.role, f"{part.kind}: {site.detail}", site.shape)
        else:
            last = group[-1]
            assert isinstance(last, Branch)
            label = part.name.rpartition(".")[2]
            label += f" … {last.name.rpartition('.')[2]}" if len(group) > 1 else ""
            times = f", {len(group)} alike" if len(group) > 1 else ""
            adds = f", adds to the stream {part.writes} times" if part.writes > 1 else ""
            adds = ", adds to the stream" if part.writes == 1 else adds
            yield f"{pad}{label}  {part.kind}{times}{adds}"
            yield from _drawn(part, depth + 1)


def _line(pad: str, label: str, role: str, detail: str, shape: str) -> str:
    return f"{pad}{label:<10} {role:<18} {detail:<26} {shape}"


def _some(names: list[str] | tuple[str, ...]) -> str:
    count = Counter(names)
    shown = list(count)[:6]
    return ", ".join(shown) + (f" and {len(count) - 6} more" if len(count) > 6 else "") or "nobody"
