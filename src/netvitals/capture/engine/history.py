"""The readings of a run in bounded memory: everything recent, and the past thinned out evenly."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class History(Generic[T]):
    """Keeps at most ``limit`` entries: the last half of them whole, and of what came before every 2^k-th.

    The first entry stays for ever, so that a change since the beginning can always be told.

    >>> history = History(limit=8)
    >>> for step in range(40):
    ...     history.add([step])
    >>> list(history)
    [0, 16, 32, 36, 37, 38, 39]
    """

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._recent: deque[tuple[int, Sequence[T]]] = deque()
        self._past: list[tuple[int, Sequence[T]]] = []
        self._stride = 1
        self._count = 0

    def add(self, entry: Sequence[T]) -> None:
        self._recent.append((self._count, entry))
        self._count += 1
        if len(self._recent) <= self._half:
            return
        oldest = self._recent.popleft()
        if oldest[0] % self._stride == 0:
            self._past.append(oldest)
        while len(self._past) > self._half:
            self._stride *= 2
            self._past = [e for e in self._past if e[0] % self._stride == 0]

    def __iter__(self) -> Iterator[T]:
        for part in (self._past, self._recent):
            for _, entry in part:
                yield from entry

    def __len__(self) -> int:
        return len(self._past) + len(self._recent)
