"""Domain-adversarial training with a gradient-reversal layer whose strength grows during training.

source: https://arxiv.org/abs/1505.07818
field: domain adaptation
unusual: the domain loss is meant to stay at chance, the features get its gradient with the opposite sign; part of the batch has no labels
"""
import math

import torch
import torch.nn.functional as F
from sklearn.datasets import make_moons
from torch import nn

import netvitals as nv


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


def moons(n, degrees):
    x, y = make_moons(n, noise=0.08)
    x, angle = torch.tensor(x, dtype=torch.float32) - torch.tensor([0.5, 0.25]), math.radians(degrees)
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return x @ turn, torch.tensor(y)


features = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
classifier, discriminator = nn.Linear(16, 2), nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
model = nn.ModuleDict({"features": features, "classifier": classifier, "discriminator": discriminator})
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
(xs, ys), (xt, yt) = moons(1000, 0), moons(1000, 20)
total = 400
with nv.watch(model, optimizer) as watch:
    for step in range(total):
        strength = 0.3 * (2 / (1 + math.exp(-10 * step / total)) - 1)
        i, j = torch.randint(0, 1000, (64,)), torch.randint(0, 1000, (64,))
        f = features(torch.cat([xs[i], xt[j]]))
        domains = discriminator(Reverse.apply(f, strength))
        loss = F.cross_entropy(classifier(f[:64]), ys[i]) + F.cross_entropy(domains, torch.arange(128) // 64)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

score = float((classifier(features(xt)).argmax(1) == yt).float().mean())
learned = score > 0.85
