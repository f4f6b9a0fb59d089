r"""Numbers of several processes as one: each kind of number says how it is added up, and what comes out is exact.

A rank turns its numbers into a :class:`Message` of sums and maxima, two messages into one, and the last one back into
numbers, those of all ranks. With weights $n_r$ (elements behind a number): a mean is $\sum n_r m_r / \sum n_r$; a
variance about the mean before it is $\sum n_r (v_r + m_r^2) / \sum n_r - m^2$; a length is $\sqrt{\sum_r \ell_r^2}$
over the pieces of a tensor; central moments go through raw ones. All sums are of float64.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import comb
from typing import Any, NamedTuple

import numpy as np

from netvitals.capture.tensor_shard import TensorShard, are_copies

Kind = str  # one of the words that Over explains


class ReduceOverRanks(NamedTuple):
    """How the tensors of one entry become those of all ranks.

    ``kinds`` has one word a tensor: "sum"; "mean"; "variance" and "scatter" (the length of the deviations) about the
    mean before it; "norm", the length of a tensor in pieces; "max"; "min"; "moments" (mean, then central moments 2, 3,
    4 along the last dimension); "winner", a place on the rank that holds the largest of the "max" before it, which
    becomes (place, rank); "same" on every rank; "alone", which cannot be told from the ranks' own numbers and stays
    that of the first.

    >>> ReduceOverRanks(("mean", "max"), weight=64).kinds
    ('mean', 'max')
    """

    kinds: tuple[Kind, ...]
    weight: float = 1.0  # elements behind a mean
    pieces: bool = False  # of tensors that no rank holds whole: without the other ranks there is no number
    shares: np.ndarray | None = None  # of pieces: 1 / ranks that hold the same one, a number a row
    alone: str = ""  # which metrics stay those of the first rank
    part: TensorShard | None = None  # of a site whose layers are cut over ranks


class PooledArrays(NamedTuple):
    """Arrays of one vital sign that left the device together, and how they are pooled."""

    vital: str
    arrays: list[np.ndarray]
    over: ReduceOverRanks


@dataclass(frozen=True)
class Message:
    """What ranks hand on: sums and maxima of numbers, which places they belong to, and one row of facts a rank.

    Attributes:
        layout: a digest: only equal ones may be added.
        sums: that are added over ranks.
        largest: of which the largest counts.
        winners: (number, 3): largest value, place, rank.
        ranks: facts of single ranks, of any length.

    >>> empty = Message(layout="x", sums=np.ones(2), largest=np.zeros(0), winners=np.zeros((0, 3)))
    >>> Message.from_bytes(empty.to_bytes()).sums.tolist()
    [1.0, 1.0]
    """

    layout: str
    sums: np.ndarray
    largest: np.ndarray
    winners: np.ndarray
    ranks: dict[int, np.ndarray] = field(default_factory=dict)

    def __add__(self, other: Message) -> Message:
        """Both together.

        >>> mean = lambda m, n: [PooledArrays("v", [np.array([m])], ReduceOverRanks(("mean",), n))]
        >>> one, two = mean(1.0, 1), mean(4.0, 2)
        >>> pooled(one, message_of(one, rank=0) + message_of(two, rank=1))
        [([array([3.])], RankScale(elements=3.0, channels=1))]
        """
        if self.layout != other.layout:
            raise ValueError("ranks saw different places")
        wins = (other.winners[:, 0] > self.winners[:, 0])[:, None]
        return Message(
            layout=self.layout,
            sums=self.sums + other.sums,
            largest=np.maximum(self.largest, other.largest),
            winners=np.where(wins, other.winners, self.winners),
            ranks={**self.ranks, **other.ranks},
        )

    def to_bytes(self) -> bytes:
        """A line of JSON and the numbers."""
        parts = [self.sums, self.largest, self.winners.reshape(-1), *self.ranks.values()]
        head = {"layout": self.layout, "sizes": [len(p) for p in parts], "ranks": list(self.ranks)}
        return json.dumps(head).encode() + b"\n" + np.concatenate(parts).astype("<f8").tobytes()

    @staticmethod
    def from_bytes(given: bytes) -> Message:
        """What :meth:`to_bytes` gave, ``given`` back."""
        line, _, body = given.partition(b"\n")
        head: dict[str, Any] = json.loads(line)
        parts = np.split(np.frombuffer(body, dtype="<f8"), np.cumsum(head["sizes"])[:-1])
        ranks = {rank: row.copy() for rank, row in zip(head["ranks"], parts[3:])}  # else they keep all of it in memory
        return Message(head["layout"], parts[0], parts[1], parts[2].reshape(-1, 3), ranks)


class RankScale(NamedTuple):
    """How much more all ranks have seen than one, in elements and in channels."""

    elements: float = 1.0
    channels: int = 1


def message_of(
    entries: Sequence[PooledArrays], rank: int, facts: np.ndarray | None = None, examples_of: int | None = None
) -> Message:
    """The numbers of one rank, ready to be added to those of others."""
    sums: list[np.ndarray] = []
    largest: list[np.ndarray] = []
    winners: list[np.ndarray] = []
    seen: list[Any] = []
    known: dict[Any, Any] = {}
    for entry in entries:
        over = entry.over
        again = [key in known or bool(known.setdefault(key, False)) for key in _keys(entry)]
        seen.append((entry.vital, over.kinds, [a.shape for a in entry.arrays], again))
        own = (lambda numbers, elsewhere=0.0: numbers) if over.part is None else over.part.row
        sums.append(own(np.array([over.weight])).reshape(-1))
        for i, (kind, array) in enumerate(zip(over.kinds, entry.arrays)):
            if again[i]:
                continue
            flat = np.asarray(array, dtype=np.float64).reshape(-1)
            if kind in ("max", "min"):
                largest.append(own(flat if kind == "max" else -flat, -np.inf).reshape(-1))
            elif kind == "winner":
                seen_by = rank if examples_of is None else examples_of
                won = np.array([float(entry.arrays[i - 1].max()), float(flat[0]), float(seen_by)])
                winners.append(own(won, -np.inf).reshape(-1, 3))
            elif kind not in ("same", "alone"):
                summand = _summand(kind, array, over.weight, entry.arrays[i - 1], over.shares)
                sums.append(own(summand).reshape(-1))
    return Message(
        layout=hashlib.sha256(repr(seen).encode()).hexdigest()[:32],
        sums=np.concatenate([*sums, np.empty(0)]),
        largest=np.concatenate([*largest, np.empty(0)]),
        winners=np.concatenate([*winners, np.empty((0, 3))]),
        ranks={rank: np.empty(0) if facts is None else np.asarray(facts, dtype=np.float64)},
    )


def pooled(entries: Sequence[PooledArrays], message: Message) -> list[tuple[list[np.ndarray], RankScale]]:
    """The entries of one rank with the numbers of all."""
    out = []
    known: dict[Any, list[np.ndarray]] = {}
    at = high = won = 0
    cut = [e.over for e in entries if e.over.part is not None and e.over.part.channels]
    longest = max((over.weight / over.part.channels for over in cut if over.part is not None), default=0.0)
    for entry in entries:
        places = 1 if entry.over.part is None else entry.over.part.places
        totals = message.sums[at : at + places]
        at += places
        columns: list[list[np.ndarray]] = []  # of each tensor, the numbers of each place
        for i, (kind, array, key) in enumerate(zip(entry.over.kinds, entry.arrays, _keys(entry))):
            size, shape = places * array.size, (places, *array.shape)
            if key in known:
                columns.append(known[key])
            elif kind in ("same", "alone"):
                columns.append([array] * places)
            elif kind in ("max", "min"):
                values = message.largest[high : high + size].reshape(shape)
                columns.append(list(values if kind == "max" else -values))
                high += size
            elif kind == "winner":
                columns.append(list(message.winners[won : won + places, 1:]))
                won += places
            else:
                values = message.sums[at : at + size].reshape(shape)
                means = columns[i - 1] if i else values
                columns.append([_number(kind, *one) for one in zip(values, totals.tolist(), means)])
                at += size
            known.setdefault(key, columns[-1])
        arrays = list(zip(*columns)) if columns else [()] * places
        out.append(_as_one(entry.over, arrays, totals.tolist(), longest))
    return out


def _as_one(
    over: ReduceOverRanks, places: Sequence[Sequence[np.ndarray]], totals: list[float], longest: float
) -> tuple[list[np.ndarray], RankScale]:
    """The numbers of all places of a group as those of one."""
    weight, part = over.weight or 1.0, over.part
    if part is None or are_copies([[a for a, k in zip(arrays, over.kinds) if k != "winner"] for arrays in places]):
        return list(places[0]), RankScale(totals[0] / weight if over.weight else 1.0)
    # positions may be cut instead of channels (sequence parallel): then other sites have that many rows more
    rows = bool(part.channels) and round(weight / part.channels * part.places) == round(longest)
    out: list[np.ndarray] = []
    for i, kind in enumerate(over.kinds):
        found = [arrays[i] for arrays in places]
        if kind in ("same", "alone"):
            out.append(found[0])
        elif kind == "winner":
            out.append(found[int(np.argmax([arrays[i - 1].max() for arrays in places]))])
        elif not rows and kind != "moments" and part.by_channel(found[0]):
            out.append(np.concatenate(found, axis=-1))
        elif kind in ("max", "min"):
            out.append((np.maximum if kind == "max" else np.minimum).reduce(found))
        else:
            means = [arrays[i - 1] for arrays in places]
            total = sum(_summand(kind, v, n, m, None) for v, n, m in zip(found, totals, means))
            out.append(_number(kind, np.asarray(total), sum(totals), out[i - 1] if i else found[0]))
    return out, RankScale(sum(totals) / weight, 1 if rows else part.places)


def _keys(entry: PooledArrays) -> list[Any]:
    """What tells the numbers of an entry from others: an array that several vital signs ask for goes once."""
    over, arrays = entry.over, entry.arrays
    shares = None if over.shares is None else over.shares.tobytes()
    return [
        (
            *(id(array), kind, over.weight, shares, over.part),
            id(arrays[i - 1]) if kind in ("variance", "scatter", "winner") else 0,
        )
        for i, (kind, array) in enumerate(zip(over.kinds, arrays))
    ]


def _summand(kind: Kind, value: np.ndarray, n: float, mean: np.ndarray, shares: np.ndarray | None) -> np.ndarray:
    """What is added up over ranks of a number of this kind; ``mean`` is the one before it."""
    if kind in ("sum", "norm"):
        total = value if kind == "sum" else value * value
        return total if shares is None else total * shares.reshape(-1, *[1] * (total.ndim - 1))
    if kind == "mean":
        return value * n
    if kind == "moments":
        return raw_moments(value) * n
    return value * value + n * mean * mean if kind == "scatter" else n * (value + mean * mean)


def _number(kind: Kind, total: np.ndarray, n: float, mean: np.ndarray) -> np.ndarray:
    """The number of all ranks from what was added up."""
    if kind == "sum":
        return total
    if kind == "norm":
        return np.sqrt(total)
    if kind == "mean":
        return total / n
    if kind == "moments":
        return central_moments(total / n)
    spread = np.maximum(total - n * mean * mean, 0.0)
    return np.sqrt(spread) if kind == "scatter" else spread / n


def raw_moments(central: np.ndarray) -> np.ndarray:
    r"""$E x^k = \sum_j \binom{k}{j} E(x-\mu)^j \mu^{k-j}$ for k = 1, 2, 3, 4, from (μ, and central moments 2, 3, 4).

    >>> raw_moments(np.array([2.0, 1.0, 0.0, 3.0]))
    array([ 2.,  5., 14., 43.])
    """
    mean = central[..., 0]
    about = [np.ones_like(mean), np.zeros_like(mean), *(central[..., k] for k in (1, 2, 3))]
    return np.stack([sum(comb(k, j) * about[j] * mean ** (k - j) for j in range(k + 1)) for k in (1, 2, 3, 4)], axis=-1)


def central_moments(raw: np.ndarray) -> np.ndarray:
    """The way back.

    >>> central_moments(np.array([2.0, 5.0, 14.0, 43.0]))
    array([2., 1., 0., 3.])
    """
    mean = raw[..., 0]
    powers = [np.ones_like(mean), *(raw[..., k] for k in range(4))]
    higher = [sum(comb(k, j) * powers[j] * (-mean) ** (k - j) for j in range(k + 1)) for k in (2, 3, 4)]
    return np.stack([mean, *higher], axis=-1)
