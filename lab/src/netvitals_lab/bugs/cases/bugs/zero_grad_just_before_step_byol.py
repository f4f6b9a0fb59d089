"""A BYOL trainer that sets the gradients to zero right before stepping the optimizer.

source: https://github.com/lucidrains/byol-pytorch/issues/93
catalogue: github
field: self-supervised learning
cause: zero-grad-after-backward
observable: yes
"""
import copy

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
y = torch.tensor(digits.target)


def augment(images):
    images = torch.roll(images, tuple(torch.randint(-1, 2, (2,)).tolist()), (2, 3))
    return images * (0.7 + 0.6 * torch.rand(len(images), 1, 1, 1)) + 0.1 * torch.randn_like(images)


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, outputs))


class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                                     nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), mlp(512, 32))
        self.predictor = mlp(32, 32)
        self.target = copy.deepcopy(self.encoder).requires_grad_(False)

    def forward(self, images):
        one, two = augment(images), augment(images)
        with torch.no_grad():
            t1, t2 = self.target(one), self.target(two)
        p1, p2 = self.predictor(self.encoder(one)), self.predictor(self.encoder(two))
        return (4 - 2 * F.cosine_similarity(p1, t2) - 2 * F.cosine_similarity(p2, t1)).mean()

    @torch.no_grad()
    def update_target(self):
        for old, new in zip(self.target.parameters(), self.encoder.parameters()):
            old.lerp_(new, 0.01)


net = BYOL()
opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=2e-3)
with torch.no_grad():
    first = float(net(x[:512]))
with nv.watch(net, opt) as watch:
    for step in range(150):
        # fix: opt.zero_grad()
        loss = net(x[torch.randint(0, 1400, (96,))])
        loss.backward()
        opt.zero_grad()  # bug
        opt.step()
        net.update_target()
        watch.step(loss)

with torch.no_grad():
    score = first - float(net(x[:512]))
learned = score > 0.8
