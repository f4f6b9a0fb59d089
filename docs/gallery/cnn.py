"""A convolutional network on CIFAR-10, as a first attempt is often written, and as it should be.

    NETVITALS_DATA=FOLDER python docs/gallery/cnn.py

The first attempt leaves pixels at 0 to 255 and puts a softmax before the cross-entropy. FOLDER holds ``cifar10*.npz``
(x_train, y_train, x_test, y_test), whole or a part of the set.
"""

from __future__ import annotations

import torch
from exhibit import Piece, options, show, watched
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from netvitals_lab import data

TITLES = {"first": "first attempt", "mended": "mended"}


class Small(nn.Module):
    """Three convolutions with pools and two layers on top."""

    def __init__(self, width: int, softmax: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.conv3 = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.hidden = nn.Linear(2 * width * 16, 4 * width)
        self.head = nn.Linear(4 * width, 10)
        self.softmax = softmax

    def forward(self, x: Tensor) -> Tensor:
        for conv in (self.conv1, self.conv2, self.conv3):
            x = nn.functional.max_pool2d(conv(x).relu(), 2)
        x = self.head(self.hidden(x.flatten(1)).relu())
        return x.softmax(1) if self.softmax else x


def images(smoke: bool) -> tuple[Tensor, Tensor]:
    """Pixels from 0 to 255 and labels."""
    if smoke:
        chosen = torch.Generator().manual_seed(0)
        y = torch.randint(10, (200,), generator=chosen)
        x = 25.0 * y[:, None, None, None] + 20 * torch.rand(200, 3, 32, 32, generator=chosen)
        return x, y
    train = data.load("cifar10").train
    low, high = train.x.min(), train.x.max()
    return 255 * (train.x - low) / (high - low), train.y


def piece(name: str, smoke: bool) -> Piece:
    pixels, labels = images(smoke)
    first = name == "first"
    x = pixels if first else (pixels - pixels.mean()) / pixels.std()
    torch.manual_seed(0)
    model = Small(width=4 if smoke else 16, softmax=first)

    def draw(step: int) -> tuple[Tensor, Tensor]:
        rows = torch.randint(len(x), (16 if smoke else 64,), generator=torch.Generator().manual_seed(step))
        return x[rows], labels[rows]

    return Piece(
        name=f"cnn-{name}",
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        loss_fn=cross_entropy,
        draw=draw,
        steps=22 if smoke else 600,
        every=2 if smoke else 10,
    )


def main() -> None:
    arguments = options(__doc__ or "")
    for name in TITLES:
        show(watched(piece(name, arguments.smoke), arguments.out), f"CNN on CIFAR-10, {TITLES[name]}", arguments)


if __name__ == "__main__":
    main()
