"""A vital sign that writes something at every place, and small models that have every kind of place."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.capture import Vital


class Echo(Vital):
    """Writes one plain number per place and method."""

    name = "echo"

    def activation(self, recorder, view):
        recorder.write(view.site, ("a", "slope"), torch.stack([view.a.mean(), view.derivative.mean()]))

    def linear(self, recorder, view):
        recorder.write(view.site, ("y",), view.y.mean())

    def tensor(self, recorder, view):
        recorder.write(view.site, ("value",), view.value.mean())

    def gradient(self, recorder, view, g):
        recorder.write(view.site, ("gradient",), g.norm())

    def parameters(self, recorder, view):
        total = torch.stack([g.square().sum() for g in view.grads.values()]).sum() if view.grads else torch.zeros(())
        recorder.write("parameters", ("grad_norm",), total.sqrt())


class ImageBlock(nn.Module):
    """A residual block with everything in place, as image models have it."""

    def __init__(self, width):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norm1, self.norm2 = (nn.BatchNorm2d(width) for _ in range(2))
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.norm2(self.conv2(self.act(self.norm1(self.conv1(x)))))
        y += x
        return F.relu(y, inplace=True)


class ImageNet(nn.Module):
    def __init__(self, width=4, dropout=0.2):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(ImageBlock(width), ImageBlock(width))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        return self.head(self.dropout(self.blocks(self.stem(x)).mean((2, 3))))


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
def image_net():
    return ImageNet()


@pytest.fixture
def image_batch():
    return torch.randn(6, 3, 8, 8), torch.randint(0, 5, (6,))
