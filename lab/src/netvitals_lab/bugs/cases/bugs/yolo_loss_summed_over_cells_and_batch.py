"""YOLO-like detector: summed squared errors, not divided by the batch size; the many empty cells set the size of the step.

source: https://github.com/aladdinpersson/Machine-Learning-Collection/issues/137
catalogue: github
field: object detection
cause: reduction-wrong
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

S = 4


def scenes(n):
    """One 4x4 object in a 16x16 picture; the grid has 4x4 cells with (confidence, x, y)."""
    x, target = 0.2 * torch.rand(n, 1, 16, 16), torch.zeros(n, 3, S, S)
    corner = torch.randint(0, 13, (n, 2))
    for k, (r, c) in enumerate(corner.tolist()):
        x[k, 0, r : r + 4, c : c + 4] += 0.8
        cy, cx = (r + 2) / 4, (c + 2) / 4
        i, j = min(int(cy), S - 1), min(int(cx), S - 1)
        target[k, :, i, j] = torch.tensor([1.0, cx - j, cy - i])
    return x, target


class Yolo(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.LeakyReLU(0.1), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.LeakyReLU(0.1), nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1), nn.LeakyReLU(0.1), nn.Conv2d(32, 3, 1),
        )

    def forward(self, x):
        return self.features(x)


mse = nn.MSELoss(reduction="sum")


def yolo_loss(prediction, target):
    exists = target[:, :1]
    box = mse(exists * prediction[:, 1:], exists * target[:, 1:])
    found = mse(exists * prediction[:, :1], exists * target[:, :1])
    empty = mse((1 - exists) * prediction[:, :1], (1 - exists) * target[:, :1])
    return 5 * box + found + 0.5 * empty  # bug
    # fix: return (5 * box + found + 0.5 * empty) / len(target)


model = Yolo()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
x, y = scenes(512)
with nv.watch(model, optimizer) as watch:
    for epoch in range(12):
        for i in torch.randperm(512).split(32):
            loss = yolo_loss(model(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

x, y = scenes(200)
with torch.no_grad():
    confidence = model(x)[:, 0].flatten(1)
score = float((confidence.argmax(1) == y[:, 0].flatten(1).argmax(1)).float().mean())
learned = score > 0.9
