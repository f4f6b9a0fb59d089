"""Cycle-consistent adversarial translation between two unpaired clouds, least-squares losses, one optimizer for both generators.

source: https://arxiv.org/abs/1703.10593
field: generative models (unpaired translation)
unusual: four networks, two optimizers, identity and cycle losses, discriminators switched off with requires_grad during the generators' step, replay buffer of old fakes
"""
import itertools

import torch
from torch import nn

import netvitals as nv


def mlp(o):
    return nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, o))


def domain_a(n):
    return torch.randn(n, 2) * torch.tensor([1.0, 0.3])


def domain_b(n):
    return torch.randn(n, 2) * torch.tensor([1.0, 0.3]) + torch.tensor([2.0, 1.5])


nets = nn.ModuleDict({"a2b": mlp(2), "b2a": mlp(2), "d_a": mlp(1), "d_b": mlp(1)})
g_opt = torch.optim.Adam(itertools.chain(nets["a2b"].parameters(), nets["b2a"].parameters()), lr=1e-3, betas=(0.5, 0.99))
d_opt = torch.optim.Adam(itertools.chain(nets["d_a"].parameters(), nets["d_b"].parameters()), lr=1e-3, betas=(0.5, 0.99))
pool = {"d_a": [], "d_b": []}
with nv.watch(nets, [g_opt, d_opt]) as watch:
    for step in range(350):
        a, b = domain_a(64), domain_b(64)
        for d in ("d_a", "d_b"):
            nets[d].requires_grad_(False)
        fake_b, fake_a = nets["a2b"](a), nets["b2a"](b)
        cycle = (nets["b2a"](fake_b) - a).abs().mean() + (nets["a2b"](fake_a) - b).abs().mean()
        adversarial = (nets["d_b"](fake_b) - 1).pow(2).mean() + (nets["d_a"](fake_a) - 1).pow(2).mean()
        g_loss = adversarial + 2 * cycle
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()

        for d in ("d_a", "d_b"):
            nets[d].requires_grad_(True)
        d_opt.zero_grad()
        for d, x, fake in (("d_a", a, fake_a), ("d_b", b, fake_b)):
            pool[d] = (pool[d] + [fake.detach()])[-10:]
            old = pool[d][int(torch.randint(0, len(pool[d]), (1,)))]
            (0.5 * (nets[d](x) - 1).pow(2).mean() + 0.5 * nets[d](old).pow(2).mean()).backward()
        d_opt.step()
        watch.step(g_loss)

with torch.no_grad():
    a, b = domain_a(500), domain_b(500)
    fake_b = nets["a2b"](a)
    score = -float((fake_b.mean(0) - b.mean(0)).abs().mean() + (nets["b2a"](fake_b) - a).abs().mean())
learned = score > -0.8
