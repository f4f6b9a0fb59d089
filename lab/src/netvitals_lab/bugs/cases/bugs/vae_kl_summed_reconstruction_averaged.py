"""VAE: mean squared error averaged over the pixels plus a KL term summed over the batch; the posterior collapses.

source: http://blog.shlomidom.com/Fixing-VAE-model-reconstructions
catalogue: blog
field: generative models (VAE)
cause: loss-term-dominates
observable: yes
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader

import netvitals as nv

X = torch.tensor(load_digits().data, dtype=torch.float32) / 16


class VAE(nn.Module):
    def __init__(self, latent=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU())
        self.mu, self.logvar = nn.Linear(128, latent), nn.Linear(128, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, 128), nn.ReLU(), nn.Linear(128, 64), nn.Sigmoid())

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.decoder(z), mu, logvar


def loss_function(recon, x, mu, logvar):
    reconstruction = F.mse_loss(recon, x)  # bug
    # fix: reconstruction = F.binary_cross_entropy(recon, x, reduction="sum")
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return reconstruction + kl


model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(25):
        for x in DataLoader(X, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            recon, mu, logvar = model(x)
            loss = loss_function(recon, x, mu, logvar)
            loss.backward()
            optimizer.step()
            watch.step(loss)

recon, mu, logvar = model(X)
score = 1 - float((model.decoder(mu) - X).pow(2).mean() / X.var(0).mean())
learned = score > 0.4
