"""Wasserstein GAN as in the paper: RMSprop, five critic steps, weights clipped to a box after each.

source: https://arxiv.org/abs/1701.07875
field: generative models (WGAN)
unusual: weights sit at the clipping bound; the losses have no floor and no fixed sign; the critic is trained more often than the generator; data changed in place between steps
"""
import torch
from torch import nn

import netvitals as nv


def real(n):
    t = torch.rand(n) * 3 * torch.pi
    return torch.stack([t.cos() * (0.3 + t / 9), t.sin() * (0.3 + t / 9)], 1) + 0.03 * torch.randn(n, 2)


G = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
C = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
g_opt, c_opt = torch.optim.RMSprop(G.parameters(), lr=5e-4), torch.optim.RMSprop(C.parameters(), lr=5e-4)
with nv.watch({"generator": G, "critic": C}, [g_opt, c_opt]) as watch:
    for iteration in range(300):
        for _ in range(5):
            with torch.no_grad():
                fake = G(torch.randn(64, 8))
            c_loss = C(fake).mean() - C(real(64)).mean()
            c_opt.zero_grad()
            c_loss.backward()
            c_opt.step()
            with torch.no_grad():
                for p in C.parameters():
                    p.clamp_(-0.1, 0.1)
        C.requires_grad_(False)
        g_loss = -C(G(torch.randn(64, 8))).mean()
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
        C.requires_grad_(True)
        watch.step(c_loss)

with torch.no_grad():
    a, b = real(800), G(torch.randn(800, 8))
score = -float((a.mean(0) - b.mean(0)).abs().mean() + (torch.cov(a.T) - torch.cov(b.T)).abs().mean())
learned = score > -0.25
