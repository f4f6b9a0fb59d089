"""Paired GAN: the generator's backward leaves gradients in the discriminator, and they are cleared after, not before, its own backward.

source: https://github.com/GaParmar/img2img-turbo/issues/56
catalogue: github
field: generative models (pix2pix)
cause: missing-zero-grad
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

target = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 16
source = F.avg_pool2d(target, 2).repeat_interleave(2, 2).repeat_interleave(2, 3)  # deblur the digits

net_g = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 1, 3, padding=1))
net_d = nn.Sequential(nn.Conv2d(2, 24, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(24, 24, 3, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(24, 1, 3))
optimizer_g = torch.optim.Adam(net_g.parameters(), lr=1e-3)
optimizer_d = torch.optim.Adam(net_d.parameters(), lr=5e-4)
right = []
with nv.watch({"g": net_g, "d": net_d}, [optimizer_g, optimizer_d]) as watch:
    for step in range(260):
        i = torch.randint(0, len(target), (16,))
        x, y = source[i], target[i]
        fake = net_g(x)
        verdict = net_d(torch.cat([x, fake], 1))
        loss_g = F.l1_loss(fake, y) * 10 + 0.1 * F.binary_cross_entropy_with_logits(verdict, torch.ones_like(verdict))
        optimizer_g.zero_grad()
        loss_g.backward()
        optimizer_g.step()

        # fix: optimizer_d.zero_grad()
        pred_real, pred_fake = net_d(torch.cat([x, y], 1)), net_d(torch.cat([x, fake.detach()], 1))
        loss_d = F.binary_cross_entropy_with_logits(pred_real, torch.ones_like(pred_real))
        loss_d = loss_d + F.binary_cross_entropy_with_logits(pred_fake, torch.zeros_like(pred_fake))
        loss_d.backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        watch.step(loss_g)
        right.append(0.5 * float((pred_real > 0).float().mean() + (pred_fake < 0).float().mean()))

score = sum(right[-50:]) / 50  # the discriminator tells real pairs from early generator output
learned = score > 0.7
