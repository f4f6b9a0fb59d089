"""WGAN with weight clipping whose generator minimises the critic's score of its fakes instead of maximising it.

source: https://github.com/Zeleni9/pytorch-wgan/pull/53
catalogue: github
field: generative models (WGAN)
cause: wrong-sign
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


def real(n):
    angle = torch.randint(0, 8, (n,)) * torch.pi / 4
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2) + 1.0


generator = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
critic = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
g_optimizer = torch.optim.RMSprop(generator.parameters(), lr=5e-4)
d_optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-4)
with nv.watch({"generator": generator, "critic": critic}, [g_optimizer, d_optimizer]) as watch:
    for iteration in range(500):
        for _ in range(3):
            d_optimizer.zero_grad()
            fake = generator(torch.randn(64, 4)).detach()
            d_loss = critic(fake).mean() - critic(real(64)).mean()
            d_loss.backward()
            d_optimizer.step()
            for p in critic.parameters():
                p.data.clamp_(-0.1, 0.1)
        g_optimizer.zero_grad()
        score_of_fakes = critic(generator(torch.randn(64, 4))).mean()
        g_loss = score_of_fakes  # bug
        # fix: g_loss = -score_of_fakes
        g_loss.backward()
        g_optimizer.step()
        watch.step(g_loss)

with torch.no_grad():
    fake, data = generator(torch.randn(500, 4)), real(500)
    nearest = torch.cdist(data, fake).min(1).values.mean() + torch.cdist(fake, data).min(1).values.mean()
score = -float(nearest)
learned = score > -0.8
