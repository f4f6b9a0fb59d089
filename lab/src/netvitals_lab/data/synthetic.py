"""Data made from a seed: a teacher network, a teacher over sequences, and plain noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Generator, Tensor

from netvitals import activations
from netvitals_lab.data.dataset import Dataset, Draw, Split, Task, probe_of


@dataclass(frozen=True)
class VectorTeacher:
    r"""$y = \sum_k \beta_k f(v_k^\top x) + \text{noise}$, x ~ N(0, I), orthonormal v_k.

    ``modes`` lists the β_k. With ``classes`` the target is instead the largest of ``classes`` random readouts of
    f(V x), V a random rotation. ``antithetic`` adds −x for every x and whitens the training inputs, so that their
    second moment is exactly I.
    """

    inputs: int = 16
    modes: tuple[float, ...] = (1.0,)
    act: str = "tanh"
    classes: int = 0
    noise: float = 0.0
    count: int = 4096
    test: int = 1024
    antithetic: bool = False
    seed: int = 0

    def load(self, folder: Path | None) -> Dataset:
        if not self.classes and len(self.modes) > self.inputs:
            raise ValueError(f"{len(self.modes)} orthonormal modes do not fit into {self.inputs} inputs")
        f = activations.get(self.act).eval()
        rotation, readout = self._weights()

        def label(x: Tensor, g: Generator) -> Tensor:
            with torch.no_grad():
                if self.classes:
                    return (f(x @ rotation) @ readout).argmax(1)
                y = f(x @ rotation[:, : len(self.modes)]) @ torch.tensor(self.modes)
                return (y + self.noise * torch.randn(len(y), generator=g)).unsqueeze(1)

        def draw(count: int, g: Generator) -> tuple[Tensor, Tensor]:
            x = torch.randn(count, self.inputs, generator=g)
            return x, label(x, g)

        data = _drawn(
            "teacher", draw, self.count, self.test, self.seed, "classes" if self.classes else "values", self.classes
        )
        if not self.antithetic:
            return data
        x = data.train.x[: self.count // 2].double()
        x = torch.linalg.solve_triangular(torch.linalg.cholesky(x.T @ x / len(x)), x.T, upper=False).T
        x = torch.cat([x, -x]).float()
        return replace(data, train=Split(x, label(x, torch.Generator().manual_seed(self.seed))))

    def directions(self) -> Tensor:
        """The orthonormal v_k as columns (inputs, modes)."""
        return self._weights()[0][:, : len(self.modes)]

    def _weights(self) -> tuple[Tensor, Tensor]:
        # not the generator of the inputs, which starts from the same seed
        generator = torch.Generator().manual_seed(self.seed + 2**31)
        rotation = torch.linalg.qr(torch.randn(self.inputs, self.inputs, generator=generator)).Q
        return rotation, torch.randn(self.inputs, max(self.classes, 1), generator=generator)


@dataclass(frozen=True)
class SequenceTeacher:
    r"""$y = \frac{1}{S}\sum_s \tanh(x_s^\top W) w + \epsilon$ over S positions, standardised on the training set."""

    width: int = 16
    length: int = 8
    noise: float = 0.1
    count: int = 2048
    test: int = 512
    seed: int = 0

    def load(self, folder: Path | None) -> Dataset:
        g = torch.Generator().manual_seed(self.seed)
        w, readout = (
            torch.randn(*shape, generator=g) / self.width**0.5 for shape in ((self.width, self.width), (self.width, 1))
        )
        x = torch.randn(self.count + self.test, self.length, self.width, generator=g)
        y = (torch.tanh(x @ w) @ readout).mean(1) + self.noise * torch.randn(len(x), 1, generator=g)
        y = (y - y[: self.count].mean()) / y[: self.count].std()
        test = Split(x[self.count :], y[self.count :])
        return Dataset(
            name="sequence-teacher",
            train=Split(x[: self.count], y[: self.count]),
            test=test,
            probe=probe_of(test),
            task="values",
        )


@dataclass(frozen=True)
class Noise:
    """Gaussian inputs with uniform random labels: nothing can be learned, a control for what training does by itself.

    With ``side`` the inputs are images of ``channels``×``side``×``side``; ``smooth`` makes them smooth, drawn on a
    grid a quarter as fine and enlarged, scaled to a standard deviation of ½ and cut to [−1, 1].
    """

    inputs: int = 64
    channels: int = 1
    side: int | None = None
    classes: int = 10
    smooth: bool = False
    count: int = 1024
    test: int = 256
    seed: int = 0

    def load(self, folder: Path | None) -> Dataset:
        if self.smooth and (self.side is None or self.side % 4):
            raise ValueError(f"smooth noise needs a side that 4 divides, got side={self.side}")
        inputs = self._smooth if self.smooth else self._plain

        def draw(count: int, g: Generator) -> tuple[Tensor, Tensor]:
            return inputs(count, g), torch.randint(0, self.classes, (count,), generator=g)

        return _drawn("noise", draw, self.count, self.test, self.seed, "classes", self.classes)

    def _plain(self, count: int, g: Generator) -> Tensor:
        shape = (self.inputs,) if self.side is None else (self.channels, self.side, self.side)
        return torch.randn(count, *shape, generator=g)

    def _smooth(self, count: int, g: Generator) -> Tensor:
        assert self.side is not None
        coarse = torch.randn(count, self.channels, self.side // 4, self.side // 4, generator=g)
        x = torch.nn.functional.interpolate(coarse, scale_factor=4, mode="bilinear", align_corners=False)
        return (x * (0.5 / x.std())).clamp(-1, 1)


def _drawn(name: str, draw: Draw, count: int, test: int, seed: int, task: Task, classes: int) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    train, held = Split(*draw(count, generator)), Split(*draw(test, generator))
    return Dataset(name=name, train=train, test=held, probe=probe_of(held), task=task, classes=classes, draw=draw)
