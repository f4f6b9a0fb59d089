"""Segmentation network that ends in a ReLU, with BCE on logits: the sigmoid never falls below one half, there is no background.

source: http://www.dtcms.com/a/394596.html
catalogue: blog
field: medical image segmentation
cause: output-activation
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


def scans(n, size=16):
    centre, radius = torch.randint(4, 12, (n, 2)), torch.randint(2, 5, (n,))
    rows, cols = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    distance = (rows - centre[:, :1, None]) ** 2 + (cols - centre[:, 1:, None]) ** 2
    mask = (distance <= radius[:, None, None] ** 2).float().unsqueeze(1)
    return mask * 0.8 + 0.4 * torch.randn_like(mask), mask


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.bottom = block(1, 12), block(12, 24)
        self.up, self.join = nn.ConvTranspose2d(24, 12, 2, 2), block(24, 12)
        self.pool = nn.MaxPool2d(2)
        self.final = nn.Conv2d(12, 1, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.up(self.bottom(self.pool(a)))
        out = self.final(self.join(torch.cat([a, b], 1)))
        return torch.relu(out)  # bug
        # fix: return out


images, masks = scans(320)
model = UNet()
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(10):
        model.train()
        for i in torch.randperm(320).split(16):
            loss = criterion(model(images[i]), masks[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
x, y = scans(100)
with torch.no_grad():
    probability = torch.sigmoid(model(x))
score = float(2 * (probability * y).sum() / (probability.sum() + y.sum()))  # soft Dice
learned = score > 0.5
