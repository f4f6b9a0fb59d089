"""A VAE with categorical codes: Gumbel-softmax with a temperature that falls from 1 to 0.4.

source: https://arxiv.org/abs/1611.01144
field: generative models (discrete codes)
unusual: noise inside of a softmax; a temperature schedule instead of one for the rate; KL to a uniform prior
"""
import math

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

images = torch.tensor(load_digits().images, dtype=torch.float32).flatten(1) / 16
CODES, WAYS = 12, 6


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, CODES * WAYS))
        self.decoder = nn.Sequential(nn.Linear(CODES * WAYS, 96), nn.ReLU(), nn.Linear(96, 64))

    def forward(self, x, temperature):
        logits = self.encoder(x).view(-1, CODES, WAYS)
        code = F.gumbel_softmax(logits, temperature)
        q = logits.softmax(2)
        kl = (q * (logits.log_softmax(2) + math.log(WAYS))).sum((1, 2)).mean()
        return self.decoder(code.flatten(1)), kl


vae = VAE()
optimizer = torch.optim.Adam(vae.parameters(), lr=2e-3)
with nv.watch(vae, optimizer) as watch:
    for step in range(800):
        x = images[torch.randint(0, 1300, (96,))]
        logits, kl = vae(x, max(0.4, math.exp(-1.2e-3 * step)))
        loss = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1).mean() + 0.5 * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x = images[1300:]
    hard = F.one_hot(vae.encoder(x).view(-1, CODES, WAYS).argmax(2), WAYS).float()
    score = 1 - float((vae.decoder(hard.flatten(1)).sigmoid() - x).pow(2).mean() / (x - x.mean(0)).pow(2).mean())
learned = score > 0.3
