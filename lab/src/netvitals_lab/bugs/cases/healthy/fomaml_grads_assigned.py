"""First-order MAML: a copy is adapted with SGD, and the gradients of its query loss are written into the .grad of the meta-model.

source: https://arxiv.org/abs/1803.02999
field: meta-learning (first-order MAML)
unusual: no backward is ever called on the meta-model, its gradients are assigned by hand; many short-lived copies are trained with optimizers of their own
"""
import copy

import torch
from torch import nn

import netvitals as nv


def task(k=10):
    """Classify points of the plane by a random line through the neighbourhood of the origin."""
    angle, shift = torch.rand(1) * 1.6, torch.randn(1) * 0.2
    x = torch.randn(4 * k, 2)
    y = (x[:, 0] * angle.cos() + x[:, 1] * angle.sin() + shift > 0).float().unsqueeze(1)
    return x[:k], y[:k], x[k:], y[k:]


bce = nn.functional.binary_cross_entropy_with_logits
meta = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))


def adapt(x, y, steps=3):
    learner = copy.deepcopy(meta)
    sgd = torch.optim.SGD(learner.parameters(), lr=0.3)
    for _ in range(steps):
        sgd.zero_grad()
        bce(learner(x), y).backward()
        sgd.step()
    learner.zero_grad()
    return learner


def accuracy(n=100):
    right = []
    for _ in range(n):
        sx, sy, qx, qy = task()
        right.append(((adapt(sx, sy)(qx) > 0).float() == qy).float().mean())
    return float(torch.stack(right).mean())


optimizer = torch.optim.Adam(meta.parameters(), lr=5e-3)
before = accuracy()
with nv.watch(meta, optimizer) as watch:
    for iteration in range(150):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(3):
            sx, sy, qx, qy = task()
            learner = adapt(sx, sy)
            loss = bce(learner(qx), qy) / 3
            grads = torch.autograd.grad(loss, learner.parameters())
            for p, g in zip(meta.parameters(), grads):
                p.grad = g if p.grad is None else p.grad + g
            total = total + loss.detach()
        optimizer.step()
        watch.step(total)

score = accuracy()
learned = score > 0.82 and score > before + 0.03
