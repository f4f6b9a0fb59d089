r"""Pairs of layers with hidden channels between them, and the directions in which one of these can be dead.

A unit is dead where its incoming row a and its outgoing column c vanish together: the model changes by
$c\,\varphi(a x)$, of second order in both. Two units are one where their rows agree and their columns are parallel:
moving the rows apart by $c_j u$ and $-c_i u$ changes the model at second order. Where nothing bends between the layers
any direction of the hidden space may be dead: u that the writer does not reach ($u^\top h = 0$) and w that the reader
does not see ($W_2 w = 0$) give $\delta W_1 = w a^\top$, $\delta W_2 = c u^\top$.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

Moves = dict[str, Tensor]  # by parameter name, of the parameter's shape


@dataclass(frozen=True, kw_only=True)
class Direction:
    """A direction to scan, and the way from the checkpoint to the singular point that it stands for."""

    name: str
    kind: str
    moves: Moves
    to_point: Moves = field(default_factory=dict)  # empty: the checkpoint itself
    size: float = 0.0  # the usual size of such weights, over which to scan; 0: that of the weights moved
    parts: Mapping[str, Tensor] = field(default_factory=dict)  # parameter → 1 before, 2 behind what may be dead, else 0


@dataclass(frozen=True, kw_only=True)
class Side:
    """Rows (or columns) of a parameter, one block of positions for every hidden channel."""

    parameter: str
    dim: int  # of the parameter, or of the slice
    at: Tensor  # (channels, positions per channel)
    expert: int | None = None  # the slice of a parameter that holds all experts of a mixture, the expert first

    def read(self, weight: Tensor) -> Tensor:
        """(channels, everything else)."""
        own = weight.detach() if self.expert is None else weight.detach()[self.expert]
        return own.index_select(self.dim, self.at.flatten()).movedim(self.dim, 0).reshape(len(self.at), -1)

    def written(self, weight: Tensor, values: Tensor) -> Tensor:
        """``values`` (channels, everything else) in a tensor of the parameter's shape that is zero elsewhere."""
        out = torch.zeros_like(weight.detach())
        moved = (out if self.expert is None else out[self.expert]).movedim(self.dim, 0)
        moved[self.at.flatten()] = values.reshape(self.at.numel(), *moved.shape[1:]).to(out)
        return out


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Hidden channels with what writes them and what reads them."""

    name: str
    writers: tuple[Side, ...]  # weight rows, and the bias where there is one
    reader: Side
    kind: str  # "unit", "head channel", …: how a channel is called
    before: Tensor  # (samples, channels) before the activation
    after: Tensor  # (samples, channels) as the reader sees them
    linear: bool  # nothing bends in between

    def rows(self, known: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([s.read(known[s.parameter]) for s in self.writers], 1)

    def columns(self, known: Mapping[str, Tensor]) -> Tensor:
        return self.reader.read(known[self.reader.parameter])

    def size(self, known: Mapping[str, Tensor]) -> float:
        """The usual length of a row and a column together."""
        rows, columns = self.rows(known).norm(dim=1), self.columns(known).norm(dim=1)
        return float((rows.median().square() + columns.median().square()).sqrt())

    def moves(self, known: Mapping[str, Tensor], rows: Tensor, columns: Tensor) -> Moves:
        """Changes of rows (channels, in) and columns (channels, out) as changes of the parameters."""
        widths = [s.read(known[s.parameter]).shape[1] for s in self.writers]
        out: Moves = {}
        for side, values in (*zip(self.writers, rows.split(widths, 1)), (self.reader, columns)):
            change = side.written(known[side.parameter], values)
            out[side.parameter] = out[side.parameter] + change if side.parameter in out else change
        return out

    def mask(self, known: Mapping[str, Tensor], channels: Tensor) -> Moves:
        """1 where the rows of some channels lie, 2 where their columns do."""
        chosen = torch.zeros(len(self.reader.at), 1, dtype=torch.float64)
        chosen[channels] = 1.0
        rows, columns = self.rows(known), self.columns(known)
        return self.moves(known, chosen.expand_as(rows), 2 * chosen.expand_as(columns))

    @property
    def silent(self) -> Tensor:
        """Channels that are shut on every sample, and would stay shut: a zero behind the activation, none before it."""
        shut = self.after.abs().amax(0) <= 1e-12 * self.after.abs().max().clamp_min(1e-300)
        return shut & (self.before.abs().amax(0) > 1e-12)


def dead_units(pair: Pair, known: Mapping[str, Tensor], most: int) -> list[Direction]:
    """Joint modes of the weakest channels; silent ones are passed over, so that the list is full."""
    rows, columns = pair.rows(known), pair.columns(known)
    strength = pair.after.square().mean(0).sqrt() * columns.norm(dim=1) + 1e-12 * rows.norm(dim=1) * columns.norm(dim=1)
    open_ = [u for u in strength.argsort().tolist() if not bool(pair.silent[u])]
    out = []
    for u in open_[:most]:
        r, c = torch.zeros_like(rows), torch.zeros_like(columns)
        r[u], c[u] = _unit(rows[u], 2 * u), _unit(columns[u], 2 * u + 1, centred=True)
        out.append(
            Direction(
                name=f"{pair.name}, {pair.kind} {u}",
                kind="joint mode",
                moves=pair.moves(known, r, c),
                to_point=pair.moves(known, *(_only(x, u) for x in (-rows, -columns))),
                size=pair.size(known),
                parts=pair.mask(known, torch.tensor([u])),
            )
        )
    return out


def merges(pair: Pair, known: Mapping[str, Tensor], most: int) -> list[Direction]:
    """Rows of two channels moved apart, for the pairs whose activations are most alike."""
    rows, columns = pair.rows(known), pair.columns(known)
    size = pair.after.norm(dim=0)
    alive = (size > 0) & (columns.norm(dim=1) > 0) & (rows.norm(dim=1) > 0)
    unit = pair.after / size.clamp_min(1e-300)
    alike = (unit.T @ unit).triu(1) * alive[:, None] * alive[None]
    out = []
    for flat in alike.abs().flatten().argsort(descending=True)[:most].tolist():
        i, j = divmod(flat, len(alike))
        if not bool(alive[i] and alive[j]) or i == j:
            continue
        sign = float(torch.sign(alike[i, j])) or 1.0
        both = torch.stack([columns[i], sign * columns[j]])
        gamma = both @ torch.linalg.svd(both, full_matrices=False)[2][0]  # along the direction that both nearly have
        away = _unit(torch.zeros_like(rows[i]), i)
        r, c = torch.zeros_like(rows), torch.zeros_like(columns)
        r[i], r[j] = gamma[1] * away, -sign * gamma[0] * away
        total = gamma.sum() if float(gamma.sum().abs()) > 1e-9 else torch.ones(())
        mean = (gamma[0] * rows[i] + gamma[1] * sign * rows[j]) / total
        back = torch.zeros_like(rows)
        back[i], back[j] = mean - rows[i], sign * mean - rows[j]
        out.append(
            Direction(
                name=f"{pair.name}, {pair.kind}s {i} and {j}",
                kind="merge",
                moves=pair.moves(known, r, c),
                to_point=pair.moves(known, back, c),
                size=pair.size(known),
                parts=pair.mask(known, torch.tensor([i, j])),
            )
        )
    return out


def hidden_directions(pair: Pair, known: Mapping[str, Tensor], most: int) -> list[Direction]:
    """The bottom directions of a linear hidden space: of the activations' second moment, and of the reader's weight."""
    rows, columns = pair.rows(known), pair.columns(known)
    moment, reached = torch.linalg.eigh(pair.after.T @ pair.after / len(pair.after))
    seen = torch.linalg.eigh(columns @ columns.T).eigenvectors
    out = []
    for k in range(min(most, len(rows))):
        if k and moment[k] > 1e-8 * moment[-1]:
            break  # the weakest is tried in any case, others where the activations do not reach them
        u = reached[:, k]
        w = seen[:, : most + 1] @ (seen[:, : most + 1].T @ u)  # what the reader does not see, nearest to u
        if float(w.norm()) < 1e-3:
            continue
        w = w / w.norm()
        inner = float(u @ w)
        a, c = _unit(torch.zeros_like(rows[0]), 2 * k), _unit(torch.zeros_like(columns[0]), 2 * k + 1, centred=True)
        back = (-torch.outer(w, u @ rows) / inner, -torch.outer(u, w @ columns) / inner)
        out.append(
            Direction(
                name=f"{pair.name}, hidden direction {k}",
                kind="hidden direction",
                moves=pair.moves(known, torch.outer(w, a), torch.outer(u, c)),
                to_point=pair.moves(known, *back),
                size=pair.size(known),
                parts=pair.mask(known, torch.arange(len(rows))),
            )
        )
    return out


def _unit(values: Tensor, seed: int, centred: bool = False) -> Tensor:
    """The vector at length one; a fixed random one where it vanishes (a constant would be the logit shift)."""
    if float(values.norm()) > 0:
        return values / values.norm()
    drawn = torch.randn(values.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(values)
    drawn = drawn - drawn.mean() if centred and len(values) > 1 else drawn
    return drawn / drawn.norm()


def _only(values: Tensor, u: int) -> Tensor:
    out = torch.zeros_like(values)
    out[u] = values[u]
    return out
