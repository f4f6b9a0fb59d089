"""The text of the language studies: a file in NETVITALS_DATA, or a few thousand bytes made by a grammar."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import torch

from netvitals_lab import data as datasets
from netvitals_lab.data import Dataset, Split
from netvitals_lab.device import device

FILE = "tinyshakespeare.txt"
EMBEDDED = "made-up sentences"  # a row, a picture and a verdict say so by this name
SHARDS = "shards:"
VARIABLE = "NETVITALS_DATA"


def present(file: str = FILE) -> bool:
    folder = os.environ.get(VARIABLE)
    return folder is not None and (Path(folder).expanduser() / file).is_file()


def needed(file: str = FILE) -> str:
    """Why a study of real text cannot run here, or an empty string."""
    if file.startswith(SHARDS):
        return datasets.missing(file)
    if file == EMBEDDED or present(file):
        return ""
    return f"needs {file} in the folder that {VARIABLE} names; any file of a megabyte of text will do under that name"


def source() -> str:
    """Which text there is: the name of the file, or ``made-up sentences`` for the embedded grammar."""
    return FILE if present() else EMBEDDED


def text(name: str, context: int) -> Dataset:
    """Windows of bytes of a file or of the embedded ``made-up sentences``, or of the tokens of ``shards:FOLDER``."""
    if name.startswith(SHARDS):
        return datasets.load(name, context=context)
    if name != EMBEDDED:
        return datasets.load(f"text:{name}", context=context)
    stream = torch.from_numpy(np.frombuffer(sentences().encode(), np.uint8).astype(np.int64))
    cut = int(0.9 * len(stream))

    def windows(part: torch.Tensor) -> Split:
        view = part.unfold(0, context + 1, context)
        return Split(view[:, :-1], view[:, 1:])

    train, test = windows(stream[:cut]), windows(stream[cut:])
    tokens = datasets.load("random-tokens", context=context, count=1, test=1)
    return replace(tokens, name=EMBEDDED, train=train, test=test, probe=test[:64], draw=None).to(device())


def sentences(count: int = 1500, seed: int = 0) -> str:
    """Short sentences of a small grammar: enough structure to learn, nothing to download.

    >>> sentences(2)
    'a sparse layer forgets a wide signal.\\na wide garden opens the deep engine.\\n'
    """
    draw = Random(seed)
    adjectives = ("small", "old", "bright", "quiet", "deep", "narrow", "sparse", "wide")
    nouns = ("layer", "engine", "river", "garden", "signal", "teacher", "weights", "gate")
    verbs = ("follows", "counts", "opens", "crosses", "forgets", "measures", "holds", "learns")

    def phrase() -> str:
        adjective = draw.choice(adjectives)
        article = draw.choice(("the", "an" if adjective[0] in "aeiou" else "a"))
        return f"{article} {adjective} {draw.choice(nouns)}"

    return "".join(f"{phrase()} {draw.choice(verbs)} {phrase()}.\n" for _ in range(count))
