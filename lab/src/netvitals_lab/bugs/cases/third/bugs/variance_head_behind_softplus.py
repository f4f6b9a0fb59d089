"""VAE for a driving agent: softplus is applied to what is then read as a log-variance, so no code can be precise.

source: https://github.com/masato-ka/airc-rl-agent/issues/43
catalogue: github
field: generative models (VAE for control)
cause: output-activation
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

grid = torch.linspace(-1, 1, 12)


def roads(n):
    """Pictures of a road that bends: where it starts, how it curves, how wide it is."""
    start, bend, width = torch.rand(3, n, 1, 1) * 2 - 1
    centre = 0.6 * start + 0.7 * bend * (grid.view(1, 12, 1) + 1) ** 2 / 4
    return torch.sigmoid(12 * (0.3 + 0.12 * width - (grid.view(1, 1, 12) - centre).abs())).flatten(1)


class VAE(nn.Module):
    def __init__(self, z=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(144, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU())
        self.mu, self.log_var = nn.Linear(64, z), nn.Linear(64, z)
        self.decoder = nn.Sequential(nn.Linear(z, 64), nn.ReLU(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 144))

    def encode(self, x):
        h = self.encoder(x)
        return self.mu(h), F.softplus(self.log_var(h))  # bug
        # fix: return self.mu(h), self.log_var(h)

    def forward(self, x):
        mu, log_var = self.encode(x)
        z = mu + torch.exp(0.5 * log_var) * torch.randn_like(mu)
        return self.decoder(z), mu, log_var


vae = VAE()
optimizer = torch.optim.Adam(vae.parameters(), lr=2e-3)
with nv.watch(vae, optimizer) as watch:
    for step in range(500):
        x = roads(64)
        logits, mu, log_var = vae(x)
        reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / 64
        kl = -0.5 * (1 + log_var - mu.pow(2) - log_var.exp()).sum(1).mean()
        loss = reconstruction + kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x = roads(500)
    score = float(vae.encode(x)[1].exp().min(1)[0].mean().sqrt())  # deviation of the sharpest code
    score = -score
learned = score > -0.5
