"""A plain GAN with the non-saturating loss, BatchNorm in the generator, Adam with beta1 of one half.

source: https://arxiv.org/abs/1511.06434
field: generative adversarial network
unusual: two losses that balance and never go to zero; the discriminator's gradients on real and fake oppose each other
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
ones = torch.tensor(digits.images[digits.target == 0], dtype=torch.float32).view(-1, 64) / 8 - 1

g = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(),
                  nn.Linear(64, 64), nn.Tanh())
d = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(64, 32), nn.LeakyReLU(0.2),
                  nn.Linear(32, 1))
opt_g = torch.optim.Adam(g.parameters(), lr=1e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(d.parameters(), lr=5e-4, betas=(0.5, 0.999))


def distance(sample):
    """From the mean picture of the sample to the mean picture of the data, in units of that of no picture."""
    return float((sample.mean(0) - ones.mean(0)).norm() / (ones.mean(0) + 1).norm())


with nv.watch({"g": g, "d": d}, [opt_g, opt_d]) as watch:
    for step in range(550):
        x = ones[torch.randint(0, len(ones), (64,))]
        fake = g(torch.randn(64, 8))
        d_loss = F.softplus(-d(x)).mean() + F.softplus(d(fake.detach())).mean()
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
        g_loss = F.softplus(-d(fake)).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        watch.step(g_loss)

g.eval()
with torch.no_grad():
    sample = g(torch.randn(500, 8))
score = -distance(sample)
learned = score > -0.35 and float(sample.std(0).mean()) > 0.1
