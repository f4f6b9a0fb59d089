"""Energy-based model by denoising score matching: the gradient of the energy is fitted to the score instead of to minus the score.

source: https://github.com/soran-ghaderi/torchebm/issues/318
catalogue: github
field: energy-based models
cause: wrong-sign
observable: no, the loss falls as it should; only the sampler finds that the data sit on the hills of the energy
"""
import torch
from torch import nn

import netvitals as nv

sigma = 0.3
modes = torch.tensor([[1.5, 0.0], [-1.5, 0.0], [0.0, 1.5]])


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 64), nn.Softplus(), nn.Linear(64, 64), nn.Softplus(), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def grad_energy(energy, x, create_graph):
    x = x.requires_grad_(True)
    return torch.autograd.grad(energy(x).sum(), x, create_graph=create_graph)[0]


energy = Energy()
optimizer = torch.optim.Adam(energy.parameters(), lr=3e-3)
with nv.watch(energy, optimizer) as watch:
    for step in range(500):
        x = modes[torch.randint(0, 3, (128,))] + 0.2 * torch.randn(128, 2)
        noise = torch.randn_like(x)
        target = -noise / sigma  # bug
        # fix: target = noise / sigma
        loss = 0.5 * (grad_energy(energy, x + sigma * noise, True) - target).pow(2).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x = torch.randn(300, 2)
for _ in range(200):  # Langevin sampling
    g = grad_energy(energy, x.detach(), False).clamp(-20, 20)
    x = (x.detach() - 0.01 * g + 0.1 * torch.randn(300, 2)).clamp(-10, 10)
score = -float(torch.cdist(x.detach(), modes).amin(1).mean())
learned = score > -0.9
