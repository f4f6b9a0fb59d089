"""The sites of an anatomy as a tree of modules: what an outline and a page show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netvitals.anatomy.anatomy import Anatomy


@dataclass(frozen=True, kw_only=True)
class DrawnSite:
    """One line of a picture: a layer, norm, activation, softmax or gate."""

    name: str  # as in ``Anatomy.roles``
    label: str
    role: str
    detail: str
    shape: str
    first: int  # operation


@dataclass(kw_only=True)
class Branch:
    """A module with its sites and its inner modules, in the order of the pass."""

    name: str
    kind: str  # class of the module
    sites: list[DrawnSite] = field(default_factory=list)
    inner: dict[str, Branch] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # attention, gated MLP, experts
    writes: int = 0  # additions to a stream

    def parts(self) -> list[DrawnSite | Branch]:
        """Sites and inner modules in the order in which they run."""
        return sorted([*self.sites, *self.inner.values()], key=lambda part: part.first)

    @property
    def first(self) -> int:
        """The first operation inside."""
        own = [s.first for s in self.sites] + [b.first for b in self.inner.values()]
        return min(own, default=1 << 60)

    def count(self) -> int:
        """Sites inside, at any depth."""
        return len(self.sites) + sum(b.count() for b in self.inner.values())

    def pattern(self) -> tuple[object, ...]:
        """What blocks that repeat have in common."""
        notes = tuple(re.sub(r"tokens [\d, ]+", "tokens", note) for note in self.notes)
        parts = tuple(
            part.pattern() if isinstance(part, Branch) else (part.role, part.detail, part.shape)
            for part in self.parts()
        )
        return self.kind, notes, self.writes, parts


def sites_of(anatomy: Anatomy) -> Iterator[tuple[str, DrawnSite]]:
    """Every site that is worth a line, with the module it belongs to."""
    for layer in anatomy.layers:
        times = f", call {layer.call} of {layer.calls}" if layer.calls > 1 else ""
        again = ", computed weight" if layer.reparametrised else ""
        frozen = ", frozen" if layer.frozen else ""
        own = "" if layer.name == layer.module else layer.name
        yield (
            layer.module,
            DrawnSite(
                name=layer.name,
                label=own.rpartition(".")[2] or layer.name.rpartition(".")[2],
                role=layer.role,
                detail=f"{anatomy.operations[layer.operation].name}{times}{again}{frozen}",
                shape=_shape(anatomy, layer.output),
                first=layer.operation,
            ),
        )
    for norm in anatomy.norms:
        shape = _shape(anatomy, norm.output)
        yield (
            norm.module,
            DrawnSite(
                name=norm.name,
                label=norm.name.rpartition(".")[2],
                role=norm.role,
                detail=f"{norm.kind} norm",
                shape=shape,
                first=norm.operations[0],
            ),
        )
    for region in anatomy.activations:
        where = f" at {region.line}" if region.line else ""
        yield (
            region.module,
            DrawnSite(
                name=region.name,
                label=region.name.rpartition(".")[2],
                role=region.role,
                detail=f"{_brief(region.text)}{where}",
                shape=_shape(anatomy, region.end),
                first=region.operations[-1],
            ),
        )
    for kind in (anatomy.softmaxes, anatomy.gates):
        for site in kind:
            yield (
                site.module,
                DrawnSite(
                    name=site.name,
                    label=site.name.rpartition(".")[2],
                    role=site.role,
                    detail="product of two branches" if kind is anatomy.gates else "softmax",
                    shape=_shape(anatomy, site.output),
                    first=site.operation,
                ),
            )


def tree_of(anatomy: Anatomy) -> Branch:
    """The modules of a model with what was found in each."""
    root = Branch(name="", kind=anatomy.model)

    def at(module: str) -> Branch:
        branch, path = root, []
        for part in module.split(".") if module else ():
            path.append(part)
            name = ".".join(path)
            branch = branch.inner.setdefault(part, Branch(name=name, kind=anatomy.modules.get(name, "")))
        return branch

    for module, site in sites_of(anatomy):
        at(module).sites.append(site)
    for block in anatomy.heads:
        keys = f" ({block.kv_heads} for keys)" if block.kv_heads != block.heads else ""
        made = ", ".join(f"{n} {p}" for n, p in zip("qkvo", (block.q, block.k, block.v, block.o)) if p is not None)
        how = " ".join(
            w for w, on in (("causal", block.causal), ("cross", block.cross), ("normed", block.qk_norm)) if on
        )
        text = f"{how}{' ' if how else ''}attention, {block.heads} heads{keys} of {block.head_dim}: {made}"
        at(block.module).notes.append(_within(text, block.module))
    for mlp in anatomy.gated:
        out = ", ".join(map(str, mlp.out))
        text = f"gated MLP: {mlp.text or 'bilinear'}({mlp.gate}) · {mlp.value} → {out}"
        at(mlp.module).notes.append(_within(text, mlp.module))
    for mixture in anatomy.experts:
        tokens = ", ".join(map(str, mixture.tokens))
        where = "" if mixture.name == "the model" else mixture.name.rpartition(".")[0]
        text = f"{len(mixture.experts)} experts, {mixture.top_k} a token, tokens {tokens}; router {mixture.router}"
        at(where).notes.append(_within(text, where))
    for stream in anatomy.streams:
        for addition in stream.additions:
            at(addition.module).writes += 1
    return root


def _within(text: str, module: str) -> str:
    """Names as they are inside a module."""
    return text.replace(f"{module}.", "") if module else text


def _batch_size(anatomy: Anatomy) -> int:
    given = (anatomy.values[v] for v in anatomy.inputs)
    return next((v.shape[v.batch_dim] for v in given if v.batch_dim is not None), 0)


def _shape(anatomy: Anatomy, index: int) -> str:
    """A shape with the batch marked: "B×6×16", or "B·6×16" where places were joined to it."""
    value, size = anatomy.values[index], _batch_size(anatomy)

    def one(dim: int, n: int) -> str:
        if dim != value.batch_dim or not size:
            return str(n)
        return "B" if n == size else f"B·{n // size}" if n % size == 0 else f"{n} of B"

    return "×".join(one(d, n) for d, n in enumerate(value.shape)) or "scalar"


def _brief(text: str) -> str:
    steps = text.split(" → ")
    return text if len(steps) < 5 else f"{steps[0]} → … → {steps[-1]} ({len(steps)} steps)"
