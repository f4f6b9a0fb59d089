"""Spatial transformer: the picture is transformed, and then the untransformed one goes into the classifier.

source: https://github.com/kevinzakka/spatial-transformer-network/issues/3
catalogue: github
field: spatial transformers
cause: layers-unused, detached-graph
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)


def cluttered(rows):
    """A digit anywhere on a canvas of 24 by 24."""
    canvas = torch.zeros(len(rows), 1, 24, 24)
    for k, (r, y, x) in enumerate(zip(rows.tolist(), *torch.randint(0, 17, (2, len(rows))).tolist())):
        canvas[k, 0, y : y + 8, x : x + 8] = images[r]
    return canvas, labels[rows]


class STN(nn.Module):
    def __init__(self):
        super().__init__()
        self.localisation = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 2), nn.Tanh())
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        shift = self.localisation(x)
        theta = torch.zeros(len(x), 2, 3)
        theta[:, 0, 0] = theta[:, 1, 1] = 0.5
        theta[:, :, 2] = shift
        h_trans = F.grid_sample(x, F.affine_grid(theta, (len(x), 1, 12, 12), align_corners=False), align_corners=False)
        return self.classifier(F.interpolate(x, size=12, mode="area"))  # bug
        # fix: return self.classifier(h_trans)


model = STN()
optimizer = torch.optim.Adam(model.parameters(), lr=1.5e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(900):
        x, y = cluttered(torch.randint(0, 1300, (48,)))
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x, y = cluttered(torch.arange(1300, 1797))
score = float((model(x).argmax(1) == y).float().mean())
learned = score > 0.5
