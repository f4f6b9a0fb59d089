"""Batches of the user's loader, read without leaving a trace, and what they were read from."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from netvitals.capture import batches_of, mapped, tensors

MEMORY = 512 * 2**20  # bytes of batches that are kept, two batches at least


@dataclass(frozen=True)
class Drawn:
    """The first batches of a loader.

    Attributes:
        batches: copies of the batches.
        ended: the loader has no more.
        note: what cannot be put back, such as batches taken from an iterator; empty where nothing is.
    """

    batches: tuple[Any, ...]
    ended: bool
    note: str = ""


def draw(loader: Any, count: int) -> Drawn:
    """Read up to ``count`` batches; generators of the loader and its samplers are put back."""
    out: list[Any] = []
    used, ended = 0, True
    with _generators_kept(loader):
        for batch in batches_of(loader):
            out.append(mapped(batch, lambda t: t.detach().clone()))
            used += sum(t.numel() * t.element_size() for t in tensors(batch))
            if len(out) >= count or (len(out) >= 2 and used > MEMORY):
                ended = False
                break
    if not out:
        raise ValueError(
            "the loader yields no batch: with drop_last=True, the dataset must contain at least one full batch"
        )
    n = f"{len(out)} {'batch was' if len(out) == 1 else 'batches were'}"
    note = ""
    if isinstance(loader, Iterator):
        note = f"{n} taken from the iterator that was given, and the training will not see them"
    elif isinstance(getattr(loader, "dataset", None), IterableDataset):
        ahead = loader.num_workers * (loader.prefetch_factor or 0) if isinstance(loader, DataLoader) else 0
        note = f"{n} read from an iterable dataset" + (f", and up to {ahead} more by its workers" if ahead else "")
        note += "; a stream that cannot be rewound will not repeat them"
    return Drawn(tuple(out), ended, note)


@contextmanager
def _generators_kept(loader: Any) -> Iterator[None]:
    """Put the generators of a loader back, and close workers that it had not started."""
    holders = [loader]
    for name in ("sampler", "batch_sampler", "dataset"):
        holders.append(getattr(loader, name, None))
    holders.append(getattr(getattr(loader, "batch_sampler", None), "sampler", None))
    states = []
    for holder in holders:
        generator = getattr(holder, "generator", None)
        if isinstance(generator, torch.Generator):
            states.append((generator, generator.get_state()))
    fresh = isinstance(loader, DataLoader) and getattr(loader, "_iterator", None) is None
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)
        if fresh:
            loader._iterator = None  # persistent workers that were started here


def repeated_noise(loader: Any) -> dict[str, Any] | None:
    """Whether workers draw the same augmentation: example 0 as the first two workers load it, and once more.

    None where there are no two workers, or examples are not random.
    """
    if not isinstance(loader, DataLoader) or loader.num_workers < 2 or isinstance(loader.dataset, IterableDataset):
        return None
    found = weakref.proxy(loader)
    workers = found.num_workers
    probe = DataLoader(
        found.dataset,
        batch_size=1,
        sampler=[0] * (2 * workers),
        num_workers=workers,
        worker_init_fn=found.worker_init_fn,
        multiprocessing_context=found.multiprocessing_context,
        timeout=60,
    )
    rows = [list(tensors(batch)) for batch in probe]
    first, others, again = rows[0], rows[1:workers], rows[workers]
    if _equal(first, again):
        return None  # nothing random in it
    return {"workers": workers, "same": 1 + sum(_equal(first, other) for other in others)}


def _equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))
