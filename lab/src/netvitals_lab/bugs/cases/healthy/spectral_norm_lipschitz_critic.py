"""A spectrally normalised critic estimates the distance of two clouds of points; it ends on a growing score.

source: Miyato et al., Spectral Normalization for GANs (ICLR 2018)
field: optimal transport
unusual: weights are reparametrised, the loss is negative and falls without a floor at zero, the last layer has no target
"""
import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import spectral_norm

import netvitals as nv

shift = torch.tensor([1.5, 0.0, -1.0])


def clouds(n):
    return torch.randn(n, 3), torch.randn(n, 3) + shift


critic = nn.Sequential(
    spectral_norm(nn.Linear(3, 64)), nn.LeakyReLU(0.8),
    spectral_norm(nn.Linear(64, 64)), nn.LeakyReLU(0.8),
    spectral_norm(nn.Linear(64, 1)),
)
optimizer = torch.optim.Adam(critic.parameters(), lr=0.002, betas=(0.0, 0.9))
with nv.watch(critic, optimizer) as watch:
    for step in range(350):
        a, b = clouds(128)
        loss = critic(a).mean() - critic(b).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

critic.eval()
a, b = clouds(4000)
with torch.no_grad():
    estimate = float(critic(b).mean() - critic(a).mean())
score = estimate / float(shift.norm())
learned = 0.6 < score < 1.05
