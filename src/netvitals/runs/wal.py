"""The write-ahead log of a run that was killed: which of its frames SQLite takes, and whether more were written.

SQLite takes the frames up to the first whose checksum is wrong, and says nothing of those after it. Here they are
counted, so that a run that has lost its last commits says so.
"""

from __future__ import annotations

import os
import struct
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from netvitals.runs.untrusted import beside

MAGIC = 0x377F0682  # the last bit says that the words of checksums are big-endian
FRAME, HEADER = 24, 32
CHUNK = 1024  # frames read at a time


def check(file: Path) -> None:
    """A ``ValueError`` where the log of ``file``, which nobody writes now, has lost commits."""
    written, taken = count(file)
    if taken < written:
        raise ValueError(
            f"only {taken} of {written} frames of the side file {file.name}-wal are intact: the last measurements "
            "are lost"
        )


def count(file: Path) -> tuple[int, int]:
    """Frames that were written to the log, and those that SQLite takes."""
    log, index = beside(file, "-wal"), beside(file, "-shm")
    return _count(str(log), _state(log), str(index), _state(index))


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@lru_cache(maxsize=256)
def _count(log: str, log_state: object, index: str, index_state: object) -> tuple[int, int]:
    salts, known = _of_index(index) if index_state else (None, 0)
    size = Path(log).stat().st_size if log_state else 0
    if size < HEADER:
        return known, 0
    with open(log, "rb") as source:
        head = source.read(HEADER)
        magic, version, page, _, *_ = struct.unpack(">8I", head)
        words = ">u4" if magic & 1 else "<u4"
        sound = magic | 1 == MAGIC | 1 and version == 3007000 and page in {1 << n for n in range(9, 17)}
        if not sound or _checksum(np.frombuffer(head[:24], words)[None], (0, 0))[0] != struct.unpack(">2I", head[24:]):
            return max(1, (size - HEADER) // (FRAME + 4096)), 0
        frames = (size - HEADER) // (FRAME + page)
        written = taken = 0
        intact, sums = True, struct.unpack(">2I", head[24:])
        for start in range(0, frames, CHUNK):
            many = min(CHUNK, frames - start)
            block = np.frombuffer(source.read(many * (FRAME + page)), np.uint8).reshape(many, FRAME + page)
            own = np.frombuffer(head[16:24], np.uint32)
            marks = np.ascontiguousarray(block[:, 8:16]).view(np.uint32)
            here = np.flatnonzero((marks == own).any(1))  # a changed bit leaves one of the two salts as it was
            if len(here):
                written = start + int(here[-1]) + 1
            if not intact:
                continue
            covered = np.ascontiguousarray(np.concatenate([block[:, :8], block[:, FRAME:]], axis=1)).view(words)
            said = np.ascontiguousarray(block[:, 16:24]).view(">u4")
            for n, found in enumerate(_checksum(covered, sums)):
                numbered = block[n, :4].any()
                if found != tuple(said[n].tolist()) or not (marks[n] == own).all() or not numbered:
                    intact = False
                    break
                taken = start + n + 1
            if intact:
                sums = tuple(said[-1].tolist())
    return max(written, known if salts == head[16:24] else 0), taken


def _of_index(index: str) -> tuple[bytes | None, int]:
    """The salts and the number of frames that the killed process had noted in its index of the log."""
    with open(index, "rb") as source:
        head = source.read(100)
    if len(head) < 100 or head[:48] != head[48:96]:
        return None, 0
    most, done = struct.unpack_from("=I", head, 16)[0], struct.unpack_from("=I", head, 96)[0]
    return head[32:40], most if most > done else 0


def _checksum(words: np.ndarray, start: tuple[int, ...]) -> list[tuple[int, int]]:
    """SQLite's checksum after each row of words, from the one before it.

    A pair of words (x, y) makes a, b to a + b + x, a + 2b + x + y; so the words of a row enter with fixed weights.

    >>> _checksum(np.array([[1, 2], [3, 4]], ">u4"), (0, 0))
    [(1, 3), (7, 14)]
    """
    weights, ((p, q), (r, s)) = _weights(words.shape[1] // 2)
    numbers = words.astype(np.uint32)
    parts = [(numbers * w).sum(axis=1, dtype=np.uint32).tolist() for w in weights]
    (a, b), out = start, []
    for x, y in zip(*parts):
        a, b = (p * a + q * b + x) % 2**32, (r * a + s * b + y) % 2**32
        out.append((a, b))
    return out


@cache
def _weights(pairs: int) -> tuple[np.ndarray, tuple[tuple[int, int], tuple[int, int]]]:
    """(2, words): what each word adds to the two sums in the end; and what the sums before become."""
    weights = np.zeros((2, 2 * pairs), np.uint32)
    p, q, r, s = 1, 0, 0, 1  # of the pairs after it
    for k in reversed(range(pairs)):
        weights[:, 2 * k] = (p + q) % 2**32, (r + s) % 2**32
        weights[:, 2 * k + 1] = q, s
        p, q, r, s = (n % 2**32 for n in (p + q, p + 2 * q, r + s, r + 2 * s))
    return weights, ((p, q), (r, s))
