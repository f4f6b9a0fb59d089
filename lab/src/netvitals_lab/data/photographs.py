"""Photographs from folders of image files: Tiny-ImageNet, Places365, ImageNet, or any with one folder a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
import torch

from netvitals_lab.data.dataset import Dataset, Split
from netvitals_lab.data.folder import missing, places
from netvitals_lab.data.images import ImageOptions

SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp")
LIMIT = 64.0  # gigabytes of pixels as float32; more is refused with a sentence
Files = list[tuple[Path, int]]  # a file and its class


@dataclass(frozen=True)
class Photographs(ImageOptions):
    """``train/CLASS/*`` and ``val/CLASS/*`` under the folder after the colon, cut to squares of ``side`` pixels.

    The shorter side is resized to ``side`` and the centre kept. Classes are numbered in the order of their names.
    ``train_per_class`` and ``test_per_class`` keep so many images of each class, chosen by ``seed``.
    """

    title: ClassVar[str] = "photographs"
    subfolders: ClassVar[tuple[str, ...]] = ("",)
    scaling: str = "imagenet"
    file: str = ""
    side: int = 224
    train_per_class: int | None = None
    test_per_class: int | None = None
    seed: int = 0

    def load(self, folder: Path | None) -> Dataset:
        if self.side < 1:
            raise ValueError(f"images have a side of at least one pixel, got side={self.side}")
        observed = [Path(self.file).expanduser()] if self.file else []
        observed += places(folder, [self.file] if self.file else self.subfolders)
        for place in observed:
            if (place / "train").is_dir() and (place / "val").is_dir():
                return self._read(place)
        raise missing(self.title, ["train/CLASS/*.jpg", self.held_out], observed)

    held_out: ClassVar[str] = "val/CLASS/*.jpg"

    def listed(self, place: Path) -> tuple[Files, Files]:
        """(training, test) files with the numbers of their classes."""
        classes = sorted(p.name for p in (place / "train").iterdir() if p.is_dir())
        if not classes:
            raise ValueError(f"{place / 'train'} has no folder a class; expected train/CLASS/*.jpg")
        strange = {p.name for p in (place / "val").iterdir() if p.is_dir()} - set(classes)
        if strange:
            raise ValueError(f"{place / 'val'} has classes that train has not: {', '.join(sorted(strange)[:5])}")
        return _of_classes(place / "train", classes), _of_classes(place / "val", classes)

    def _read(self, place: Path) -> Dataset:
        parts = self.listed(place)
        kept = [
            _some_of_each(files, count, self.seed)
            for files, count in zip(parts, (self.train_per_class, self.test_per_class))
        ]
        size = sum(map(len, kept)) * 3 * self.side**2 * 4 / 1e9
        if size > LIMIT:
            raise ValueError(
                f"{self.title}: {sum(map(len, kept))} images of side {self.side} take {size:.0f} GB in memory, more "
                f"than {LIMIT:g}; keep fewer with train_per_class=... and test_per_class=..., or make side smaller"
            )
        train, test = (_pixels(files, self.side) for files in kept)
        return self.dataset(self.title, train, test, 255.0)


@dataclass(frozen=True)
class Places365(Photographs):
    """Scenes in 365 classes: the folders ``train`` and ``val`` of the easy-format release."""

    title: ClassVar[str] = "places365"
    subfolders: ClassVar[tuple[str, ...]] = ("places365", "places365_standard", "")


@dataclass(frozen=True)
class ImageNet(Photographs):
    """A thousand classes: ``train/WNID/*.JPEG`` and ``val/WNID/*.JPEG``."""

    title: ClassVar[str] = "imagenet"
    subfolders: ClassVar[tuple[str, ...]] = ("imagenet", "ILSVRC2012", "")


@dataclass(frozen=True)
class TinyImageNet(Photographs):
    """200 classes at 64×64: ``train/WNID/images/*.JPEG``, and ``val/images`` named by ``val/val_annotations.txt``."""

    title: ClassVar[str] = "tiny-imagenet"
    subfolders: ClassVar[tuple[str, ...]] = ("tiny-imagenet-200", "tiny-imagenet", "")
    held_out: ClassVar[str] = "val/images/*.JPEG with val/val_annotations.txt"
    side: int = 64

    def listed(self, place: Path) -> tuple[Files, Files]:
        notes = place / "val" / "val_annotations.txt"
        if not notes.is_file():
            return super().listed(place)  # someone sorted the validation images into folders
        classes = sorted(p.name for p in (place / "train").iterdir() if p.is_dir())
        number = {name: i for i, name in enumerate(classes)}
        held: Files = []
        for line in notes.read_text().splitlines():
            name, wnid, *_ = [*line.split("\t"), "", ""]
            if wnid not in number:
                raise ValueError(f"{notes} gives {name!r} the class {wnid!r}, which train has not")
            held.append((place / "val" / "images" / name, number[wnid]))
        return _of_classes(place / "train", classes), held


def _of_classes(folder: Path, classes: Sequence[str]) -> Files:
    return [
        (path, i)
        for i, name in enumerate(classes)
        for path in sorted((folder / name).rglob("*"))
        if path.suffix.lower() in SUFFIXES
    ]


def _some_of_each(files: Files, count: int | None, seed: int) -> Files:
    if count is None:
        return files
    by_class: dict[int, Files] = {}
    for path, label in files:
        by_class.setdefault(label, []).append((path, label))
    few = {label: len(found) for label, found in by_class.items() if len(found) < count}
    if few:
        raise ValueError(f"{count} images a class were asked for, and class {min(few)} has {few[min(few)]}")
    draw = Random(seed)
    return [file for found in by_class.values() for file in sorted(draw.sample(found, count))]


def _pixels(files: Files, side: int) -> Split:
    from PIL import Image

    pixels = np.empty((len(files), 3, side, side), np.uint8)
    for i, (path, _) in enumerate(files):
        try:
            with Image.open(path) as opened:
                pixels[i] = np.asarray(_square(opened.convert("RGB"), side)).transpose(2, 0, 1)
        except OSError as error:
            raise ValueError(f"{path} cannot be read as an image ({error}); remove or replace it") from None
    return Split(torch.from_numpy(pixels), torch.tensor([label for _, label in files]))


def _square(image: Any, side: int) -> Any:
    """The shorter side resized to ``side``, and the centre of the longer one kept."""
    width, height = image.size
    factor = side / min(width, height)
    if factor != 1:
        image = image.resize((max(side, round(width * factor)), max(side, round(height * factor))))
    left, top = (image.size[0] - side) // 2, (image.size[1] - side) // 2
    return image.crop((left, top, left + side, top + side))
