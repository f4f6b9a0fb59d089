"""Images come as height, width, channel; view() makes the shape of channels-first but scrambles the pixels.

source: https://twitter.com/karpathy/status/1013244313327681536 ("thinking view() and permute() are the same thing")
catalogue: blog
field: image classification
cause: layout-mixed
observable: yes
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import netvitals as nv

SIZE = 16


def load(n):
    """Numpy images as from an image library: a coloured square in one of four corners, HWC, uint8."""
    images = np.random.randint(0, 120, (n, SIZE, SIZE, 3), dtype=np.uint8)
    labels = np.random.randint(0, 6, n)
    for image, label in zip(images, labels):
        r, c = np.random.randint(0, SIZE - 5, 2)
        image[r:r + 5, c:c + 5, label % 3] = 200
        image[r + 1:r + 4, c + 1:c + 4, (label + 1 + label // 3) % 3] = 200
    return torch.from_numpy(images), torch.from_numpy(labels)


def to_input(images):
    images = images.float() / 127.5 - 1
    return images.view(-1, 3, SIZE, SIZE)  # bug
    # fix: return images.permute(0, 3, 1, 2)


class ColourNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 24, 3)
        self.fc = nn.Linear(24, 6)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.relu(self.conv2(x))
        return self.fc(x.amax((2, 3)))


net = ColourNet()
adam = torch.optim.Adam(net.parameters(), lr=0.003)
images, labels = load(1000)
with nv.watch(net, adam) as watch:
    for epoch in range(8):
        for rows in torch.randperm(1000).split(32):
            loss = F.cross_entropy(net(to_input(images[rows])), labels[rows])
            adam.zero_grad()
            loss.backward()
            adam.step()
            watch.step(loss)

images, labels = load(400)
with torch.no_grad():
    score = float((net(to_input(images)).argmax(1) == labels).float().mean())
learned = score > 0.85
