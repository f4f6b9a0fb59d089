"""Seals: how a row of a run is checked, how numbers are packed into a blob, and the summary that counts the rows."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_HEAD = struct.Struct("<4sQ")  # mark and number of measurements
_MARK = b"NVB2"
LONGEST_RECORD = 64 << 20  # characters of a text that is read as JSON
_KINDS = {bytes: b"b", str: b"s", int: b"i"}  # a bit can make a text of SQLite's a blob of the same bytes


def seal(*fields: Any) -> int:
    """CRC-32 over the fields, each with its kind and length: every single changed bit, and every burst up to 32, shows.

    >>> seal(1, "a", b"b") == seal(1, "a", b"b"), seal(1, "ab", b"") == seal(1, "a", b"b"), seal("a") == seal(b"a")
    (True, False, False)
    """
    parts: list[bytes] = []
    for value in fields:
        data = value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")
        kind = _KINDS.get(type(value)) or next((mark for sort, mark in _KINDS.items() if isinstance(value, sort)), b"o")
        parts += (kind, len(data).to_bytes(8, "little"), data)
    return zlib.crc32(b"".join(parts))


def pack(steps: np.ndarray, series: np.ndarray, values: np.ndarray) -> bytes:
    """Measurements as one blob of three columns: 20 bytes a measurement.

    >>> columns = unpack(pack(np.array([3, 3]), np.array([1, 2]), np.array([0.5, float("nan")])))
    >>> [c.tolist() for c in columns]
    [[3, 3], [1, 2], [0.5, nan]]
    """
    return b"".join(
        (
            _HEAD.pack(_MARK, len(steps)),
            steps.astype("<i8").tobytes(),
            series.astype("<i4").tobytes(),
            values.astype("<f8").tobytes(),
        )
    )


def unpack(blob: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The columns of :func:`pack`: steps, series, values."""
    if len(blob) < _HEAD.size:
        raise ValueError("a batch of measurements is too short for its header")
    mark, count = _HEAD.unpack_from(blob)
    if mark != _MARK or len(blob) != _HEAD.size + 20 * count:
        raise ValueError("a batch of measurements has a different size than its header states")
    start = _HEAD.size
    return (
        np.frombuffer(blob, "<i8", count, start),
        np.frombuffer(blob, "<i4", count, start + 8 * count).astype(np.int64),
        np.frombuffer(blob, "<f8", count, start + 12 * count),
    )


def parsed(record: str) -> Any:
    """A text of a run as JSON; what is too long or nested too deep to be one of ours is a ``ValueError``.

    >>> parsed("[1]")
    [1]
    """
    if len(record) > LONGEST_RECORD:
        raise ValueError(f"a text in the run file has {len(record):,} characters, which is too many")
    try:
        return json.loads(record)
    except RecursionError:
        raise ValueError("a text in the run file is nested too deeply") from None


@dataclass
class Summary:
    """What a list of runs needs of one, and how many rows each table of it has. The writer renews it at every commit.

    ``meta_sum`` and ``findings_sum`` are the seals of rows that may be replaced, joined by exclusive or.

    Attributes:
        batches: rows that hold measurements.
        arrays: rows that hold arrays.
        series: (vital, site, metric) triples.
        metas: entries of metadata.
        meta_sum: seals of the metadata, joined by exclusive or.
        findings: findings stored with the run.
        findings_sum: seals of the findings, joined by exclusive or.
        forecasts: forecasts stored with the run.
        measurements: numbers in all batches.
        last_step: the highest step that has a measurement; −1 where none has.
        commits: how often the writer committed.
        segment: how often the run was resumed.
        shown: model, status, heartbeat, started.

    >>> Summary(measurements=20, last_step=9).last_step
    9
    """

    batches: int = 0
    arrays: int = 0
    series: int = 0
    metas: int = 0
    meta_sum: int = 0
    findings: int = 0
    findings_sum: int = 0
    forecasts: int = 0
    measurements: int = 0
    last_step: int = -1
    commits: int = 0
    segment: int = 0
    shown: dict[str, Any] = field(default_factory=dict)

    def row(self) -> tuple[int, int, str]:
        """As it is stored: id, seal, record."""
        record = json.dumps(vars(self))
        return 0, seal(0, record), record

    @classmethod
    def from_row(cls, crc: int, record: str) -> Summary:
        """Read it back; a row that is not what was written is a ``ValueError``.

        Args:
            crc: the seal stored beside the record.
            record: the summary as JSON.
        """
        if crc != seal(0, record):
            raise ValueError("the summary of the run file does not match its checksum")
        known: Mapping[str, Any] = parsed(record)
        found = cls(**{key: known[key] for key in cls.__dataclass_fields__ if key in known})
        counts = [value for key, value in vars(found).items() if key not in ("shown", "last_step")]
        whole = all(type(n) is int for n in (*counts, found.last_step)) and all(n >= 0 for n in counts)
        if not whole or not isinstance(found.shown, dict):
            raise ValueError("the summary of the run file has invalid entries")
        return found
