"""What a long measurement has found so far, in a folder: a run that was interrupted goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

EVERY = 20.0  # seconds between two saves inside a pass over the data
NUMPY = "array of numpy"  # the key of what was one

_inside: ContextVar[bool] = ContextVar("inside a longer measurement", default=False)


class Journal:
    """Passes over the data by number: those that are over, and the one that was going on.

    A measurement with the same model, batches and settings asks the same products in the same order, so the products of
    its passes are all that has to be kept.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "state"
    >>> Journal(folder, {"of": "trace"}).save(0, {"batches": 3}, over=False)
    >>> Journal(folder, {"of": "trace"}).load(0)
    {'batches': 3}
    """

    def __init__(self, folder: str | os.PathLike[str], identity: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        self._saved = time.monotonic()
        text = json.dumps(dict(identity), sort_keys=True, default=str)
        self.folder.mkdir(parents=True, exist_ok=True)
        label = self.folder / "measurement.json"
        if not label.exists():
            if any(self.folder.iterdir()):
                raise ValueError(f"the folder {self.folder} contains other files: give resume= an empty or new folder")
            label.write_text(text, encoding="utf-8")
        elif label.read_text(encoding="utf-8") != text:
            old = json.loads(label.read_text(encoding="utf-8"))
            other = [k for k in dict(identity) if old.get(k) != json.loads(text).get(k)]
            raise ValueError(
                f"{self.folder} holds the state of a different measurement (its {', '.join(other) or 'settings'} "
                "differ): delete it, or give resume= another folder"
            )

    def load(self, number: int) -> Any:
        """What was kept of a pass; None where there is nothing."""
        path = self._path(number)
        if not path.exists():
            return None
        try:
            if not zipfile.is_zipfile(path):  # older formats of torch.save are read by code that can be misled
                raise ValueError
            return _arrays(torch.load(path, weights_only=True))  # tensors, numbers, lists and dicts; no code
        except Exception as error:
            raise ValueError(
                f"{path} is not a stored measurement state ({type(error).__name__}): delete {self.folder}, or give "
                "resume= another folder"
            ) from None

    def save(self, number: int, state: Any, *, over: bool) -> None:
        """Keep the state of a pass; while the pass goes on, only so often."""
        if not over and number in self._known() and time.monotonic() - self._saved < EVERY:
            return
        path = self._path(number)
        part = path.with_suffix(".part")
        torch.save(_tensors(state), part)
        part.replace(path)  # a run that is killed while it writes leaves the old state
        self._saved = time.monotonic()

    def close(self) -> None:
        """The measurement is over: remove the folder, unless it is part of a longer one."""
        if not _inside.get():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"pass-{number:05d}.pt"

    def _known(self) -> set[int]:
        return {int(p.stem.split("-")[1]) for p in self.folder.glob("pass-*.pt")}


@contextmanager
def longer(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """A measurement made of others: what they keep below ``folder`` stays until all of it is over."""
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def opened(
    folder: str | os.PathLike[str] | None, measurement: str, model: nn.Module, settings: Mapping[str, Any]
) -> Journal | None:
    """The journal in a folder; None where no folder was given."""
    if folder is None:
        return None
    return Journal(folder, {"measurement": measurement, "parameters": fingerprint(model), **settings})


def _tensors(state: Any) -> Any:
    """The state without arrays of numpy, which cannot be read back without running what a file says."""
    if isinstance(state, np.ndarray):
        return {NUMPY: torch.from_numpy(state)}
    if isinstance(state, dict):
        return {key: _tensors(value) for key, value in state.items()}
    return type(state)(map(_tensors, state)) if isinstance(state, list | tuple) else state


def _arrays(state: Any) -> Any:
    """The reverse of :func:`_tensors`."""
    if isinstance(state, dict):
        return state[NUMPY].numpy() if NUMPY in state else {key: _arrays(value) for key, value in state.items()}
    return type(state)(map(_arrays, state)) if isinstance(state, list | tuple) else state


def fingerprint(model: nn.Module) -> str:
    """A digest of names, shapes and values of parameters and buffers.

    >>> fingerprint(nn.Linear(1, 1)) == fingerprint(nn.Linear(1, 1))
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
