"""Data by name."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from netvitals_lab import spec as grammar
from netvitals_lab.data.audio import Audio
from netvitals_lab.data.dataset import Dataset
from netvitals_lab.data.folder import root
from netvitals_lab.data.images import CIFAR10, CIFAR100, MNIST, Digits, FashionMNIST, Images
from netvitals_lab.data.photographs import ImageNet, Photographs, Places365, TinyImageNet
from netvitals_lab.data.speech import Speech
from netvitals_lab.data.synthetic import Noise, SequenceTeacher, VectorTeacher
from netvitals_lab.data.tokens import RandomTokens, Shards, Text, WikiText
from netvitals_lab.device import CPU, device

_CATALOGUE: dict[str, Any] = {
    "digits": Digits,
    "mnist": MNIST,
    "fashion-mnist": FashionMNIST,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "images": Images,
    "tiny-imagenet": TinyImageNet,
    "places365": Places365,
    "imagenet": ImageNet,
    "photographs": Photographs,
    "text": Text,
    "wikitext": WikiText,
    "shards": Shards,
    "teacher": VectorTeacher,
    "sequence-teacher": SequenceTeacher,
    "noise": Noise,
    "random-tokens": RandomTokens,
    "audio": Audio,
    "speech": Speech,
}


def names() -> list[str]:
    """Every dataset that :func:`load` knows.

    >>> names()[:4]
    ['digits', 'mnist', 'fashion-mnist', 'cifar10']
    """
    return list(_CATALOGUE)


def load(name: str, folder: str | Path | None = None, **options: Any) -> Dataset:
    """Load a dataset by ``NAME[:FILE][,key=value]...``.

    >>> print(load("digits"))
    digits: 1437 training and 360 test examples of shape (1, 8, 8), 10 classes
    """
    title, file, given = grammar.split(name)
    if title not in _CATALOGUE:
        raise ValueError(f"there is no dataset {title!r}; did you mean {grammar.nearest(title, _CATALOGUE)}?")
    kind = _CATALOGUE[title]
    if file:
        if "file" not in {f.name for f in fields(kind)}:
            raise ValueError(
                f"only text, images, photographs, shards and speech take a file after the colon, got {name!r}; "
                f"give {title} its folder instead"
            )
        given["file"] = file
    loaded = kind(**grammar.values(kind, {**given, **options}, title)).load(root(folder))
    return loaded if device().type == CPU else loaded.to(device())


def missing(name: str) -> str:
    """Why these data cannot be loaded here; empty if they can."""
    try:
        load(name)
    except FileNotFoundError as error:
        return str(error)
    return ""
