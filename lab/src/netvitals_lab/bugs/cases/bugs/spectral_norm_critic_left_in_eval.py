"""A critic with spectral norm is put into eval mode, so the power iteration never runs and nothing is bounded.

source: https://github.com/pytorch/pytorch/issues/51800
catalogue: traincheck
field: wasserstein critic
cause: module-mode-wrong NEW, batchnorm-train-eval
observable: yes
silent: yes
"""
import torch
from torch import nn
from torch.nn.utils import spectral_norm

import netvitals as nv


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            spectral_norm(nn.Linear(2, 64)), nn.LeakyReLU(0.2),
            spectral_norm(nn.Linear(64, 64)), nn.LeakyReLU(0.2),
            spectral_norm(nn.Linear(64, 1)))

    def forward(self, x):
        return self.net(x)

    @torch.no_grad()
    def steepness(self):
        """The largest slope between pairs of points: at most 1 for a 1-Lipschitz critic."""
        a, b = torch.randn(2000, 2), torch.randn(2000, 2)
        return float(((self(a) - self(b)).abs().squeeze(1) / (a - b).norm(dim=1)).max())


def real(n):
    angle = 2 * torch.pi * torch.rand(n)
    return torch.stack([2 * angle.cos(), 2 * angle.sin()], 1) + 0.05 * torch.randn(n, 2)


def fake(n):
    return 0.3 * torch.randn(n, 2)


critic = Critic()
critic.eval()
initial = critic.steepness()  # a look at the initial scale, as in the report
# fix: critic.train()
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
with nv.watch(critic, optimizer) as watch:
    for step in range(500):
        optimizer.zero_grad()
        loss = critic(fake(128)).mean() - critic(real(128)).mean()
        loss.backward()
        optimizer.step()
        watch.step(loss)

critic.eval()
gap = float(critic(real(1000)).mean() - critic(fake(1000)).mean())
score = -critic.steepness()
learned = score > -1.1 and gap > 0.3
