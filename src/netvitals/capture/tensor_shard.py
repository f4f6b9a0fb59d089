"""Numbers of a layer that is cut over ranks (tensor parallel): each rank of a group sees a part of its channels.

Ranks do not ask each other what is cut. Each puts its numbers into a row of its own, a row for each place in the group;
where all rows come out the same the ranks have computed the same thing, and one row is the answer. Where they differ,
numbers by channel are put side by side, and all others pooled as over any ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

SAME = 1e-6  # relative: accelerators do not add up in the same order twice


class TensorShard(NamedTuple):
    """The place of a rank in its group, and what it sees of a site."""

    place: int
    places: int
    channels: int = 0  # that this rank sees; 0 where numbers by channel are not known as such

    def row(self, numbers: np.ndarray, elsewhere: float = 0.0) -> np.ndarray:
        """The numbers of this rank in their row, places × numbers.

        >>> TensorShard(1, 2).row(np.array([3.0, 4.0]))
        array([[0., 0.],
               [3., 4.]])
        """
        rows = np.full((self.places, *numbers.shape), elsewhere)
        rows[self.place] = numbers
        return rows

    def by_channel(self, numbers: np.ndarray) -> bool:
        """Whether there is one of these for each channel."""
        return bool(self.channels) and numbers.ndim > 0 and numbers.shape[-1] == self.channels


def are_copies(columns: Sequence[Sequence[np.ndarray]]) -> bool:
    """Whether every place of the group has the same arrays.

    >>> are_copies([[np.array([1.0])], [np.array([1.0 + 1e-9])]]), are_copies([[np.array([1.0])], [np.array([2.0])]])
    (True, False)
    """
    return all(
        np.allclose(a, b, rtol=SAME, atol=SAME * float(np.nanmax(np.abs(b), initial=0.0)), equal_nan=True)
        for other in columns[1:]
        for a, b in zip(other, columns[0])
    )
