"""GAN for paired images: the discriminator's verdict is detached in the generator's loss, so the adversarial term trains nothing.

source: https://github.com/wangle53/CSA-CDGAN/issues/5
catalogue: github
field: generative models (GAN)
cause: detached-graph
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def real(n):
    x = torch.randn(n, 2)
    return torch.cat([x, x.sin() + 0.05 * torch.randn(n, 2)], 1)


class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        self.discriminator = nn.Sequential(nn.Linear(4, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))


gan = Gan()
opt_g = torch.optim.Adam(gan.generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
opt_d = torch.optim.Adam(gan.discriminator.parameters(), lr=1e-3, betas=(0.5, 0.9))
ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)
with nv.watch(gan, [opt_g, opt_d]) as watch:
    for step in range(800):
        x = real(64)
        fake = gan.generator(torch.randn(64, 8))
        pred_real = gan.discriminator(x)
        pred_fake = gan.discriminator(fake.detach())
        d_loss = F.binary_cross_entropy_with_logits(pred_real, ones) + F.binary_cross_entropy_with_logits(pred_fake, zeros)
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()

        pred_fake = gan.discriminator(fake)
        adversarial = F.binary_cross_entropy_with_logits(pred_fake.detach(), ones)  # bug
        # fix: adversarial = F.binary_cross_entropy_with_logits(pred_fake, ones)
        g_loss = adversarial + 0.01 * (fake.mean(0) - x.mean(0)).pow(2).sum()  # a little feature matching
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        watch.step(g_loss)

with torch.no_grad():
    data, fake = real(1000), gan.generator(torch.randn(1000, 8))
    covariance = (torch.cov(data.T) - torch.cov(fake.T)).abs().mean()
score = -float(covariance)
learned = score > -0.25
