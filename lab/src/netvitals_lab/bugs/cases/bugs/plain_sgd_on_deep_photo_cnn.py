"""An image CNN compiled with the plain 'sgd' of a small rate does not move; Adam trains it.

source: https://stackoverflow.com/questions/56380303
catalogue: deepfd
field: image classification
cause: optimizer-choice, lr-too-low
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def photos(n):
    """Four kinds of blobs: the quadrant that holds the bright disc is the class."""
    label = torch.randint(0, 4, (n,))
    cx = torch.where(label % 2 == 0, 6.0, 18.0) + torch.randn(n)
    cy = torch.where(label < 2, 6.0, 18.0) + torch.randn(n)
    g = torch.arange(24.0)
    d = (g[None, None, :] - cx[:, None, None]) ** 2 + (g[None, :, None] - cy[:, None, None]) ** 2
    image = torch.exp(-d / 18)[:, None] * torch.rand(n, 3, 1, 1) + 0.3 * torch.rand(n, 3, 24, 24)
    return image, label


class SmallVgg(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [3, 16, 16, 32]
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in zip(widths, widths[1:]))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(32 * 9, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x):
        for conv in self.convs:
            x = F.max_pool2d(F.relu(conv(x)), 2)
        return self.head(x)


model = SmallVgg()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)  # bug
# fix: optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
with nv.watch(model, optimizer) as watch:
    for step in range(200):
        images, labels = photos(32)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        watch.step(loss)

images, labels = photos(400)
with torch.no_grad():
    score = float((model(images).argmax(1) == labels).float().mean())
learned = score > 0.9
