"""BYOL: the moving-average update of the target network is defined but never called, so the target stays random.

source: https://github.com/PatrickHua/SimSiam/issues/26
catalogue: github
field: self-supervised learning
cause: target-network-misuse
observable: yes
silent: yes
"""
import copy

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

images = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 16


def augment(x):
    dx, dy = torch.randint(-1, 2, (2,)).tolist()
    return torch.roll(x, (dx, dy), (2, 3)) * (0.7 + 0.6 * torch.rand(len(x), 1, 1, 1)) + 0.1 * torch.randn_like(x)


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, o))


class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        backbone = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten())
        self.online = nn.Sequential(backbone, mlp(128, 32))
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.predictor = mlp(32, 32)

    @torch.no_grad()
    def update_moving_average(self, m=0.98):
        for p, q in zip(self.online.parameters(), self.target.parameters()):
            q.mul_(m).add_(p, alpha=1 - m)

    def forward(self, x1, x2):
        p1, p2 = self.predictor(self.online(x1)), self.predictor(self.online(x2))
        with torch.no_grad():
            z1, z2 = self.target(x1), self.target(x2)
        return 2 - F.cosine_similarity(p1, z2).mean() - F.cosine_similarity(p2, z1).mean()


model = BYOL()
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(250):
        x = images[torch.randint(0, len(images), (96,))]
        loss = model(augment(x), augment(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # fix: model.update_moving_average()
        watch.step(loss)

with torch.no_grad():
    distance = sum((p - q).norm() for p, q in zip(model.online.parameters(), model.target.parameters()))
    size = sum(p.norm() for p in model.online.parameters())
score = -float(distance / size)  # the target follows the online network
learned = score > -0.15
