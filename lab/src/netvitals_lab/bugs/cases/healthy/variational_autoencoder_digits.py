"""A variational autoencoder: summed binary cross-entropy plus KL, as in the PyTorch examples.

source: https://arxiv.org/abs/1312.6114 and https://github.com/pytorch/examples/tree/main/vae
field: generative model
unusual: the loss is a sum over pixels (large) per example; the target is the input; some latent units fall to the prior
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

x = torch.tensor(load_digits().data, dtype=torch.float32) / 16


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 128), nn.ReLU())
        self.mu, self.logvar = nn.Linear(128, 10), nn.Linear(128, 10)
        self.decode = nn.Sequential(nn.Linear(10, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, x):
        h = self.encode(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu) if self.training else mu
        return self.decode(z), mu, logvar


model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(25):
        for rows in torch.randperm(1500).split(64):
            logits, mu, logvar = model(x[rows])
            bce = F.binary_cross_entropy_with_logits(logits, x[rows], reduction="sum")
            kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum()
            loss = (bce + kl) / len(rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    rebuilt = model(x[1500:])[0].sigmoid()
    score = 1 - float((rebuilt - x[1500:]).square().sum() / (x[1500:] - x.mean(0)).square().sum())
learned = score > 0.4
