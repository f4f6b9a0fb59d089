"""Conditional GAN trained with one and the same condition for all generated samples: it learns a single class.

source: https://github.com/kmualim/CGAN-Pytorch/issues/1
catalogue: github
field: generative models (conditional GAN)
cause: labels-wrong
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

centres = torch.tensor([[2.0, 0], [-2, 0], [0, 2], [0, -2]])


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.label = nn.Embedding(4, 8)
        self.main = nn.Sequential(nn.Linear(4 + 8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, z, c):
        return self.main(torch.cat([z, self.label(c)], 1))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.label = nn.Embedding(4, 8)
        self.main = nn.Sequential(nn.Linear(2 + 8, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))

    def forward(self, x, c):
        return self.main(torch.cat([x, self.label(c)], 1))


G, D = Generator(), Discriminator()
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.999))
with nv.watch({"G": G, "D": D}, [opt_g, opt_d]) as watch:
    for step in range(500):
        c = torch.randint(0, 4, (64,))
        x = centres[c] + 0.3 * torch.randn(64, 2)
        fake_c = torch.full((64,), 3)  # bug
        # fix: fake_c = torch.randint(0, 4, (64,))
        fake = G(torch.randn(64, 4), fake_c)
        d_real, d_fake = D(x, c), D(fake.detach(), fake_c)
        d_loss = F.softplus(-d_real).mean() + F.softplus(d_fake).mean()
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()

        g_loss = F.softplus(-D(fake, fake_c)).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        watch.step(g_loss)

c = torch.arange(4).repeat(100)
with torch.no_grad():
    generated = G(torch.randn(400, 4), c)
score = float((torch.cdist(generated, centres).argmin(1) == c).float().mean())
learned = score > 0.9
