"""Reptile: after some steps of SGD on one task the weights move a little towards what was found there.

source: https://arxiv.org/abs/1803.02999 (sections 2 and 6)
field: meta-learning (Reptile)
unusual: the meta-step is an interpolation without any gradient; the loss jumps with each new task; a fresh optimizer per task
"""
import copy

import torch
from torch import nn

import netvitals as nv


def wave():
    amplitude, phase = 0.5 + 2 * torch.rand(1), 6.28 * torch.rand(1)
    return lambda x: amplitude * torch.sin(x + phase)


def adapt(net, f, steps, rate=0.02):
    x = torch.rand(10, 1) * 10 - 5
    for _ in range(steps):
        loss = (net(x) - f(x)).pow(2).mean()
        for p, g in zip(net.parameters(), torch.autograd.grad(loss, list(net.parameters()))):
            p.data -= rate * g


def quality(net):
    x, total = torch.linspace(-5, 5, 100).unsqueeze(1), 0
    for _ in range(60):
        f, twin = wave(), copy.deepcopy(net)
        adapt(twin, f, 16)
        total = total + (twin(x) - f(x)).pow(2).mean().detach()
    return float(total) / 60


net = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
before = quality(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
ROUNDS = 2000
with nv.watch(net, optimizer) as watch:
    for round in range(ROUNDS):
        old = [p.detach().clone() for p in net.parameters()]
        f = wave()
        x = torch.rand(50, 1) * 10 - 5
        for part in x.split(10):
            loss = (net(part) - f(part)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
        with torch.no_grad():
            for p, q in zip(net.parameters(), old):
                p.copy_(q + 0.5 * (1 - round / ROUNDS) * (p - q))

score = 1 - quality(net) / before
learned = score > 0.2
