"""An anatomy as a page of its own: modules that fold, the stream beside them, a colour for each role or number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING

from netvitals.anatomy.drawing.outline import counts_of
from netvitals.anatomy.drawing.style import STYLE
from netvitals.anatomy.drawing.tree import Branch, DrawnSite, tree_of

if TYPE_CHECKING:
    from netvitals.anatomy.anatomy import Anatomy
    from netvitals.anatomy.blocks.experts import Mixture
    from netvitals.anatomy.blocks.heads import Heads

_OPEN = 60  # sites up to which a page opens everything
_SQUARES = 64  # heads and experts that are drawn one by one


def page_of(anatomy: Anatomy, colours: Mapping[str, float] | None = None) -> str:
    """A self-contained page in light and dark, without scripts and without other files.

    >>> import torch
    >>> from torch import nn
    >>> from netvitals.anatomy import chart
    >>> page = page_of(chart(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), torch.ones(3, 4)))
    >>> page.count("<li class="), "<script" in page
    (2, False)
    """
    scale = _Scale(colours) if colours is not None else None
    tree = tree_of(anatomy)
    blocks = {h.module: h for h in anatomy.heads}
    experts = {m.name.rpartition(".")[0] if m.name != "the model" else "": m for m in anatomy.experts}
    body = "\n".join(_branch(tree, scale, blocks, experts, tree.count() <= _OPEN, top=True))
    roles = dict.fromkeys(_roles(tree))
    legend = "" if scale is not None else "".join(f'<span class="chip {_word(r)}">{escape(r)}</span>' for r in roles)
    batch = "no batch dimension" if anatomy.batch_dim is None else f"batch dimension {anatomy.batch_dim}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Anatomy of {escape(anatomy.model)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Anatomy of {escape(anatomy.model)}</h1>
<p class="sum">{escape(counts_of(anatomy))}; {len(anatomy.operations)} operations; {batch}</p>
<div class="legend">{legend if scale is None else scale.legend()}</div>
<main>
{body}
</main>
{_facts(anatomy)}
</body>
</html>
"""


class _Scale:
    """Numbers between the smallest and the largest, as a share of the way."""

    def __init__(self, colours: Mapping[str, float]) -> None:
        self.of = {k: float(v) for k, v in colours.items()}
        finite = [v for v in self.of.values() if math.isfinite(v)]
        self.low, self.high = min(finite, default=0.0), max(finite, default=0.0)

    def share(self, name: str) -> float | None:
        value = self.of.get(name, math.nan)
        if not math.isfinite(value):
            return None
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5

    def legend(self) -> str:
        return f'<span>{self.low:.4g}</span><span class="ramp"></span><span>{self.high:.4g}</span>'


def _branch(
    branch: Branch,
    scale: _Scale | None,
    blocks: Mapping[str, Heads],
    experts: Mapping[str, Mixture],
    opened: bool,
    top: bool = False,
) -> Iterator[str]:
    """A module: what it is, its blocks, its sites and inner modules."""
    label = branch.name.rpartition(".")[2] or branch.kind
    adds = f'<span class="adds">+{branch.writes if branch.writes > 1 else ""} stream</span>' if branch.writes else ""
    count = branch.count()
    inside = f'<span class="count">{count} site{"" if count == 1 else "s"}</span>'
    kind = f'<span class="kind">{escape(branch.kind)}</span>' if branch.name else ""
    on = " writes" if branch.writes else ""
    yield f'<details class="module{on}"{" open" if opened or top else ""}>'
    yield f"<summary><b>{escape(label)}</b> {kind} {inside} {adds}</summary>"
    for note in branch.notes:
        yield f'<p class="note">{escape(note)}</p>'
    if branch.name in blocks:
        yield _squares(blocks[branch.name])
    if branch.name in experts:
        yield _bars(experts[branch.name])
    yield "<ul>"
    last: tuple[object, ...] | None = None
    for part in branch.parts():
        if isinstance(part, DrawnSite):
            yield _site(part, part.label, "", scale)
        elif len(part.sites) == 1 and not part.inner and not part.notes:
            yield _site(part.sites[0], part.name.rpartition(".")[2], part.kind, scale)
        else:
            pattern = part.pattern()  # of blocks that are alike the first is open
            yield "<li>"
            yield from _branch(part, scale, blocks, experts, opened or pattern != last)
            yield "</li>"
            last = pattern
    yield "</ul></details>"


def _site(site: DrawnSite, label: str, kind: str, scale: _Scale | None) -> str:
    share = scale.share(site.name) if scale is not None else None
    value, style, mark = "", "", _word(site.role)
    if scale is not None:
        mark = "none" if share is None else "valued"
        style = "" if share is None else f' style="--share:{100 * share:.1f}%"'
        value = "" if share is None else f'<span class="value">{scale.of[site.name]:.4g}</span>'
    what = f"{kind}: {site.detail}" if kind else site.detail
    return (
        f'<li class="site {mark}"{style} title="{escape(site.name)}"><span class="dot"></span><b>{escape(label)}</b>'
        f'<span class="role">{escape(site.role)}</span><span class="detail">{escape(what)}</span>'
        f'<span class="shape">{escape(site.shape)}</span>{value}</li>'
    )


def _squares(block: Heads) -> str:
    """Heads as squares: queries above, keys below, as wide as the queries that share them."""
    if block.heads > _SQUARES:
        return ""
    per = max(block.heads // max(block.kv_heads, 1), 1)
    queries = "".join(f'<span class="q" title="query of head {h}">{h}</span>' for h in range(block.heads))
    keys = "".join(
        f'<span class="k" style="--wide:{per}" title="keys and values {h}">{h}</span>' for h in range(block.kv_heads)
    )
    return f'<div class="heads"><div><i>q</i>{queries}</div><div><i>kv</i>{keys}</div></div>'


def _bars(mixture: Mixture) -> str:
    """Experts as bars, as long as the share of tokens that they got."""
    if len(mixture.experts) > _SQUARES:
        return ""
    most = max(mixture.tokens, default=0) or 1
    bars = "".join(
        f'<span class="bar{"" if e.tokens else " idle"}" style="--share:{100 * e.tokens / most:.0f}%" '
        f'title="{escape(e.name)}: {e.tokens} tokens">{e.index}</span>'
        for e in mixture.experts
    )
    return f'<div class="experts">{bars}</div>'


def _facts(anatomy: Anatomy) -> str:
    rows = []
    for stream in anatomy.streams:
        origin = ", ".join(stream.origin_writers) or "the input"
        more = f"{len(stream.additions)} additions; read by {', '.join(stream.readers)}"
        rows.append(("stream", f"width {stream.width}, from {origin}; {more}"))
    rows += [("used again", f"{r.name}: {r.kind}, {r.calls} calls") for r in anatomy.recurrent]
    rows += [("tied", f"{p.name} = {' = '.join(p.ties)}") for p in anatomy.parameters if p.ties]
    rows += [("not charted", f"{place}: {why}") for place, why in anatomy.skipped.items()]
    lines = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in rows)
    return f"<dl>{lines}</dl>" if rows else ""


def _roles(branch: Branch) -> Iterator[str]:
    for part in branch.parts():
        yield from (part.role,) if isinstance(part, DrawnSite) else _roles(part)


def _word(role: str) -> str:
    return role.replace(" ", "-")
