"""Energy-based model by contrastive divergence: Langevin chains that persist, small regulariser of the energies.

source: https://arxiv.org/abs/1903.08689
field: energy-based models
unusual: gradients with respect to inputs between the steps; the loss is a difference around zero; negative samples come from the model itself
"""
import torch
from torch import nn

import netvitals as nv

centres = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [0.0, -1.2]])


def data(n):
    return centres[torch.randint(0, 3, (n,))] + 0.2 * torch.randn(n, 2)


energy = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))


def langevin(x, steps, size=0.02):
    energy.requires_grad_(False)
    for _ in range(steps):
        x = x.detach().requires_grad_(True)
        grad = torch.autograd.grad(energy(x).sum(), x)[0]
        x = x - size * grad.clamp(-10, 10) + (2 * size) ** 0.5 * torch.randn_like(x)
    energy.requires_grad_(True)
    return x.detach().clamp(-3, 3)


optimizer = torch.optim.Adam(energy.parameters(), lr=2e-3, betas=(0.5, 0.999))
chains = torch.rand(1000, 2) * 4 - 2
with nv.watch(energy, optimizer) as watch:
    for step in range(300):
        i = torch.randperm(1000)[:96]
        start = torch.where(torch.rand(96, 1) < 0.05, torch.rand(96, 2) * 4 - 2, chains[i])
        negative = langevin(start, 8)
        chains[i] = negative
        up, down = energy(negative), energy(data(96))
        loss = down.mean() - up.mean() + 0.01 * (up.pow(2) + down.pow(2)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():  # does the energy rank data below uniform points?
    low, high = energy(data(500)), energy(torch.rand(500, 2) * 4 - 2)
score = float((low < high.T).float().mean())
learned = score > 0.85
