"""Images: scikit-learn's embedded digits, and the usual archives from a folder."""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from netvitals_lab.data.dataset import Dataset, Split, probe_of
from netvitals_lab.data.folder import missing, places


@dataclass(frozen=True)
class ImageOptions:
    """Options of every image set.

    ``scaling``: ``standard`` subtracts the mean and divides by the standard deviation of each channel over the
    training images, ``range`` maps the raw range onto [−1, 1], ``none`` onto [0, 1], ``imagenet`` takes the means and
    deviations that networks for ImageNet are given.
    """

    scaling: str = "standard"
    train: int | None = None  # keep this many training images
    test: int | None = None

    def dataset(self, name: str, train: Split, test: Split, top: float) -> Dataset:
        """Scale raw pixels 0..top and put the pieces together."""
        classes = int(max(y.max() if len(y) else -1 for y in (train.y, test.y))) + 1  # also for a part of the images
        train, test = (s if n is None else s[:n] for s, n in ((train, self.train), (test, self.test)))
        if not len(train) or not len(test):
            raise ValueError(f"{name} needs at least one training and one test image, got {len(train)} and {len(test)}")
        channels = train.x.shape[1]
        pixels = train.x.to(torch.float32)
        if self.scaling == "standard":
            mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3)).clamp_min(1e-8)
        elif self.scaling == "range":
            mean, std = torch.full((2, channels), top / 2)
        elif self.scaling == "none":
            mean, std = torch.zeros(channels), torch.full((channels,), top)
        elif self.scaling == "imagenet":
            if channels != 3:
                raise ValueError(f"scaling=imagenet is for three colours, {name} has {channels} channels")
            mean, std = (top * torch.tensor(v) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
        else:
            raise ValueError(f"scaling is standard, range, none or imagenet, got {self.scaling!r}")

        def scaled(split: Split) -> Split:
            return Split((split.x.to(torch.float32) - mean.view(1, -1, 1, 1)) / std.view(1, -1, 1, 1), split.y.long())

        done = scaled(test)
        return Dataset(
            name=name,
            train=scaled(train),
            test=done,
            probe=probe_of(done),
            task="classes",
            classes=classes,
            mean=mean,
            std=std,
        )


@dataclass(frozen=True)
class Digits(ImageOptions):
    """1,797 handwritten digits of 8×8 pixels, embedded in scikit-learn: 1,437 to train, 360 to test."""

    seed: int = 0  # of the split

    def load(self, folder: Path | None) -> Dataset:
        from sklearn.datasets import load_digits

        raw = load_digits()
        every = Split(torch.from_numpy(raw.images).unsqueeze(1), torch.from_numpy(raw.target))
        order = torch.randperm(len(every), generator=torch.Generator().manual_seed(self.seed))
        return self.dataset("digits", every[order[:1437]], every[order[1437:]], 16.0)


@dataclass(frozen=True)
class MNIST(ImageOptions):
    """60,000 and 10,000 digits of 28×28 pixels, from the four idx files, plain or gzipped."""

    title: ClassVar[str] = "mnist"
    subfolders: ClassVar[tuple[str, ...]] = ("mnist", "MNIST", "MNIST/raw", "")

    def load(self, folder: Path | None) -> Dataset:
        wanted = [f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]
        observed = places(folder, self.subfolders)
        for place in observed:
            found = [next((p for p in (place / n, place / f"{n}.gz") if p.is_file()), None) for n in wanted]
            if all(found):
                x, y, x_test, y_test = (_idx(p) for p in found if p)
                return self.dataset(self.title, Split(x.unsqueeze(1), y), Split(x_test.unsqueeze(1), y_test), 255.0)
        raise missing(self.title, [f"{n}[.gz]" for n in wanted], observed)


@dataclass(frozen=True)
class FashionMNIST(MNIST):
    """60,000 and 10,000 pieces of clothing of 28×28 pixels, in the file format of MNIST."""

    title: ClassVar[str] = "fashion-mnist"
    subfolders: ClassVar[tuple[str, ...]] = ("fashion-mnist", "fashion", "FashionMNIST", "FashionMNIST/raw", "")


@dataclass(frozen=True)
class CIFAR10(ImageOptions):
    """Colour images of 32×32 pixels in ten classes.

    Either the folder of python batches (data_batch_1..5, test_batch) or an .npz file with x_train, y_train, x_test,
    y_test (uint8 images N×32×32×3), whole or a part of the set.
    """

    title: ClassVar[str] = "cifar10"
    subfolders: ClassVar[tuple[str, ...]] = (
        "cifar10",
        "cifar-10-batches-py",
        "CIFAR10",
        "cifar10/cifar-10-batches-py",
        "",
    )
    parts: ClassVar[tuple[str, ...]] = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5")
    held: ClassVar[str] = "test_batch"
    labels: ClassVar[bytes] = b"labels"

    def load(self, folder: Path | None) -> Dataset:
        observed = places(folder, self.subfolders)
        for place in observed:
            if place.is_file():
                return self.dataset(self.title, *_npz(place), 255.0)
            if all((place / part).is_file() for part in (*self.parts, self.held)):
                read = [_batch(place / part, self.labels) for part in self.parts]
                train = Split(torch.cat([r.x for r in read]), torch.cat([r.y for r in read]))
                return self.dataset(self.title, train, _batch(place / self.held, self.labels), 255.0)
            packed = sorted(place.glob(f"{self.title}[!0-9]*npz"))
            if packed:
                return self.dataset(self.title, *_npz(packed[0]), 255.0)
        raise missing(
            self.title,
            [*self.parts, self.held, f"or {self.title}*.npz with x_train, y_train, x_test, y_test"],
            observed,
        )


@dataclass(frozen=True)
class CIFAR100(CIFAR10):
    """Colour images of 32×32 pixels in a hundred classes, from the files train and test or an .npz file."""

    title: ClassVar[str] = "cifar100"
    subfolders: ClassVar[tuple[str, ...]] = (
        "cifar100",
        "cifar-100-python",
        "CIFAR100",
        "cifar100/cifar-100-python",
        "",
    )
    parts: ClassVar[tuple[str, ...]] = ("train",)
    held: ClassVar[str] = "test"
    labels: ClassVar[bytes] = b"fine_labels"


@dataclass(frozen=True)
class Images(ImageOptions):
    """Any square images packed as x_train, y_train, x_test, y_test (uint8 N×H×W×C) in the .npz file after the colon."""

    file: str = ""

    def load(self, folder: Path | None) -> Dataset:
        if not self.file:
            raise ValueError("name the packed file, as in images:tiny-imagenet.npz")
        observed = [Path(self.file).expanduser(), *([folder / self.file] if folder else [])]
        path = next((p for p in observed if p.is_file()), None)
        if path is None:
            raise missing("images", [self.file], [p.absolute().parent for p in observed])
        return self.dataset(f"images:{path.name}", *_npz(path), 255.0)


def _npz(path: Path) -> tuple[Split, Split]:
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not an .npz file of numpy arrays")
    with np.load(path, allow_pickle=False) as file:
        keys = ("x_train", "y_train", "x_test", "y_test")
        if absent := [k for k in keys if k not in file.files]:
            raise ValueError(f"{path} has no {', '.join(absent)}; it holds {', '.join(file.files)}")
        x, y, x_test, y_test = (file[k] for k in keys)
    for name, images in (("x_train", x), ("x_test", x_test)):
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] != images.shape[2]:
            raise ValueError(
                f"{name} of {path} must be uint8 square images N×H×W×C, got {images.dtype} of shape {images.shape}"
            )
    first, second = (torch.from_numpy(np.ascontiguousarray(i.transpose(0, 3, 1, 2))) for i in (x, x_test))
    return (
        Split(first, torch.from_numpy(y.reshape(-1).astype(np.int64))),
        Split(second, torch.from_numpy(y_test.reshape(-1).astype(np.int64))),
    )


def _idx(path: Path) -> Tensor:
    """Read one idx file: two zero bytes, a type (8: bytes), the number of dimensions, the dimensions, the values."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        raw = file.read()
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path} is not an idx file of bytes (it starts with {raw[:4].hex() or 'nothing'})")
    shape = np.frombuffer(raw, ">i4", raw[3], 4).tolist()
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3])
    if values.size != int(np.prod(shape)):
        raise ValueError(f"{path} says it holds {shape} values but has {values.size}; the file is cut or damaged")
    return torch.from_numpy(values.reshape(shape).copy())


class _ArraysOnly(pickle.Unpickler):
    """Reads the pickled batches without letting them run anything but numpy's array constructors."""

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype", "scalar", "_frombuffer"):
            return super().find_class(module, name)
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise ValueError(
            f"the batch file asks for {module}.{name}, which a file of images has no need for; it was not loaded"
        )


def _batch(path: Path, labels: bytes) -> Split:
    raw = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    x = torch.from_numpy(np.asarray(raw[b"data"], np.uint8).reshape(-1, 3, 32, 32))
    return Split(x, torch.tensor(raw[labels]))
