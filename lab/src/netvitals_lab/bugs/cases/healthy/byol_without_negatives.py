"""BYOL: predict the view of a slowly moving copy; no negatives, no collapse.

source: https://arxiv.org/abs/2006.07733
field: self-supervised learning
unusual: no labels; a target network without gradients that moves by averaging; the loss is small from early on
"""
import copy
import math

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16


def view(images):
    images = torch.roll(images, torch.randint(-1, 2, (2,)).tolist(), (2, 3))
    images = images * (0.6 + 0.8 * torch.rand(len(images), 1, 1, 1))
    return images * (torch.rand(len(images), 1, 8, 8) > 0.15) + 0.1 * torch.randn_like(images)


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, o))


encoder = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(),
                        nn.Linear(512, 64))
online = nn.Sequential(encoder, mlp(64, 32))
predictor = mlp(32, 32)
target = copy.deepcopy(online).requires_grad_(False)
optimizer = torch.optim.AdamW([*online.parameters(), *predictor.parameters()], lr=2e-3, weight_decay=1e-3)
steps = 100
with nv.watch({"online": online, "predictor": predictor, "target": target}, optimizer) as watch:
    for step in range(steps):
        images = x[torch.randint(0, 1400, (64,))]
        a, b = view(images), view(images)
        with torch.no_grad():
            ta, tb = target(a), target(b)
        pa, pb = predictor(online(a)), predictor(online(b))
        loss = (2 - F.cosine_similarity(pa, tb) - F.cosine_similarity(pb, ta)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tau = 1 - 0.03 * (math.cos(math.pi * step / steps) + 1) / 2
        with torch.no_grad():
            for old, new in zip(target.parameters(), online.parameters()):
                old.mul_(tau).add_(new, alpha=1 - tau)
        watch.step(loss)

encoder.eval()
with torch.no_grad():
    features = encoder(x)
probe = LogisticRegression(max_iter=300).fit(features[:1400].numpy(), digits.target[:1400])
score = float(probe.score(features[1400:].numpy(), digits.target[1400:]))
learned = score > 0.8 and float(loss) < 1.2 and float(F.normalize(features, dim=1).std(0).mean()) > 0.03
