"""WGAN-GP: the critic's slope along lines between real and fake is held at one by a penalty on its gradient.

source: https://arxiv.org/abs/1704.00028
field: generative models (WGAN-GP)
unusual: second-order gradients in every critic step; losses of either sign; five critic steps per generator step
"""
import torch
from torch import nn

import netvitals as nv

angles = torch.arange(8) * 0.7854
centres = torch.stack([angles.cos(), angles.sin()], 1)


def ring(n):
    return centres[torch.randint(0, 8, (n,))] + 0.05 * torch.randn(n, 2)


generator = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
critic = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
with nv.watch({"generator": generator, "critic": critic}, [opt_g, opt_c]) as watch:
    for step in range(350):
        for _ in range(5):
            real, fake = ring(96), generator(torch.randn(96, 4)).detach()
            mix = torch.rand(96, 1)
            between = (mix * real + (1 - mix) * fake).requires_grad_(True)
            slope = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
            c_loss = critic(fake).mean() - critic(real).mean() + 1.0 * (slope.norm(dim=1) - 1).pow(2).mean()
            opt_c.zero_grad()
            c_loss.backward()
            opt_c.step()
        g_loss = -critic(generator(torch.randn(96, 4))).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        watch.step(c_loss)

with torch.no_grad():
    x = generator(torch.randn(2000, 4))
    distance, which = torch.cdist(x, centres).min(1)
score = float((which[distance < 0.3].bincount(minlength=8) > 60).sum())  # rungs that are visited
learned = score >= 7
