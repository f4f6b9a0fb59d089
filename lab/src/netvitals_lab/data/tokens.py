"""Sequences of tokens: a text file read byte by byte, and tokens drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor

from netvitals_lab.data.dataset import Dataset, Split, probe_of
from netvitals_lab.data.folder import missing, places


@dataclass(frozen=True)
class Text:
    """Bytes of one file, cut into windows of ``context`` tokens whose targets are the next tokens.

    The last tenth of the file is the test text. ``stride`` is the distance between the starts of training
    windows: the context by default, 1 for every possible window (a view, no copy).
    """

    file: str = ""
    context: int = 64
    stride: int | None = None
    held_out: float = 0.1

    def load(self, folder: Path | None) -> Dataset:
        if not self.file:
            raise ValueError("name the text file, as in text:corpus.txt")
        observed = [Path(self.file).expanduser(), *([folder / self.file] if folder else [])]
        path = next((p for p in observed if p.is_file()), None)
        if path is None:
            raise missing("text", [self.file], [p.absolute().parent for p in observed])
        stream = torch.from_numpy(np.frombuffer(path.read_bytes(), np.uint8).astype(np.int64))
        cut = int(len(stream) * (1 - self.held_out))
        if min(cut, len(stream) - cut) <= self.context:
            raise ValueError(
                f"{path} has {len(stream)} bytes, too few for a context of {self.context} "
                f"in both the training and the test part"
            )
        test = windows(stream[cut:], self.context, self.context)
        return Dataset(
            name=f"text:{path.name}",
            train=windows(stream[:cut], self.context, self.stride or self.context),
            test=test,
            probe=probe_of(test),
            task="tokens",
            classes=256,
        )


@dataclass(frozen=True)
class WikiText:
    """Bytes of wiki.train.* and wiki.test.* (the raw or the tokenised release), in windows of ``context``."""

    file: str = ""  # the folder
    context: int = 64
    limit: int | None = None  # keep so many bytes of the training text

    def load(self, folder: Path | None) -> Dataset:
        observed = [Path(self.file).expanduser()] if self.file else []
        observed += places(folder, [self.file] if self.file else ["wikitext-103-raw", "wikitext-2-raw", "wikitext", ""])
        for place in observed:
            found = [sorted(place.glob(f"wiki.{part}.*")) for part in ("train", "test")]
            if all(found):
                train, test = (np.frombuffer(f[0].read_bytes(), np.uint8).astype(np.int64) for f in found)
                if min(len(train), len(test)) <= self.context:
                    raise ValueError(f"{place} has too few bytes for a context of {self.context}")
                held = windows(torch.from_numpy(test), self.context, self.context)
                return Dataset(
                    name="wikitext",
                    train=windows(torch.from_numpy(train[: self.limit]), self.context, self.context),
                    test=held,
                    probe=probe_of(held),
                    task="tokens",
                    classes=256,
                )
        raise missing("wikitext", ["wiki.train.raw", "wiki.test.raw"], observed)


@dataclass(frozen=True)
class Shards:
    """Tokenised text in binary shards: 256 int32 of header (magic 20240520, version, count), then uint16 tokens.

    Files with ``val`` or ``test`` in their name are the test text, the others the training text, in the order of their
    names, up to ``limit`` tokens.
    """

    file: str = ""  # a folder of .bin files
    vocab: int = 50_257
    context: int = 2048
    limit: int = 100_000_000

    def load(self, folder: Path | None) -> Dataset:
        observed = [
            p
            for p in ((Path(self.file).expanduser() if self.file else None), folder / self.file if folder else None)
            if p is not None
        ]
        found = next((sorted(p.glob("*.bin")) for p in observed if p.is_dir() and any(p.glob("*.bin"))), [])
        held = [p for p in found if "val" in p.name or "test" in p.name]
        if not held or len(held) == len(found):
            raise missing("shards", ["*train*.bin", "*val*.bin"], observed)
        train = self._stream([p for p in found if p not in held])
        test = windows(self._stream(held), self.context, self.context)
        return Dataset(
            name="shards",
            train=windows(train, self.context, self.context),
            test=test,
            probe=probe_of(test),
            task="tokens",
            classes=self.vocab,
        )

    def _stream(self, paths: list[Path]) -> Tensor:
        pieces: list[Tensor] = []
        room = self.limit
        for path in paths:
            with path.open("rb") as file:
                header = np.frombuffer(file.read(1024), np.int32)
                if len(header) < 256 or header[0] != 20240520 or header[1] != 1:
                    raise ValueError(f"{path} is not a token shard: it does not start with 20240520, 1")
                tokens = np.fromfile(file, np.uint16, min(int(header[2]), room))
            pieces.append(torch.from_numpy(tokens.astype(np.int32)))
            room -= len(tokens)
            if not room:
                break
        stream = torch.cat(pieces)
        if len(stream) <= self.context or int(stream.max()) >= self.vocab:
            raise ValueError(
                f"shards need more than {self.context} tokens below {self.vocab}, got {len(stream)} "
                f"up to {int(stream.max()) if len(stream) else 'none'}"
            )
        return stream


@dataclass(frozen=True)
class RandomTokens:
    """Independent uniform tokens: nothing can be learned, whatever still moves is the optimiser's doing."""

    vocab: int = 256
    context: int = 64
    count: int = 1024
    test: int = 128
    seed: int = 0

    def load(self, folder: Path | None) -> Dataset:
        def draw(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
            block = torch.randint(0, self.vocab, (count, self.context + 1), generator=generator)
            return block[:, :-1], block[:, 1:]

        generator = torch.Generator().manual_seed(self.seed)
        train, test = Split(*draw(self.count, generator)), Split(*draw(self.test, generator))
        return Dataset(
            name="random-tokens",
            train=train,
            test=test,
            probe=probe_of(test),
            task="tokens",
            classes=self.vocab,
            draw=draw,
        )


def windows(stream: Tensor, context: int, stride: int) -> Split:
    """Windows of a stream and the same windows one token later.

    >>> windows(torch.arange(6), 2, 2).y
    tensor([[1, 2],
            [3, 4]])
    """
    view = stream.unfold(0, context + 1, stride)
    return Split(view[:, :-1], view[:, 1:])
