"""WGAN whose critic is never clipped: it is not Lipschitz, its output grows without bound.

source: https://github.com/torchgan/torchgan/pull/42
catalogue: github
field: generative models (WGAN)
cause: clipping-misuse
observable: yes
"""
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

import netvitals as nv

images = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 8 - 1


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(16, 32 * 2 * 2)
        self.up = nn.Sequential(
            nn.BatchNorm2d(32), nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Tanh(),
        )

    def forward(self, z):
        return self.up(self.project(z).view(-1, 32, 2, 2))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Flatten(), nn.Linear(128, 1),
        )

    def forward(self, x):
        return self.main(x).view(-1)


netG, netD = Generator(), Critic()
optG = torch.optim.RMSprop(netG.parameters(), lr=1e-3)
optD = torch.optim.RMSprop(netD.parameters(), lr=1e-3)
largest = 0.0
with nv.watch({"G": netG, "D": netD}, [optG, optD]) as watch:
    for step in range(125):
        for k in range(3):
            x = images[torch.randint(0, len(images), (64,))]
            optD.zero_grad()
            lossD = netD(netG(torch.randn(64, 16)).detach()).mean() - netD(x).mean()
            lossD.backward()
            optD.step()
            # fix: for p in netD.parameters(): p.data.clamp_(-0.05, 0.05)
        optG.zero_grad()
        lossG = -netD(netG(torch.randn(64, 16))).mean()
        lossG.backward()
        optG.step()
        watch.step(lossD)
        largest = max(largest, abs(float(lossD)))

with torch.no_grad():
    fakes = netG(torch.randn(400, 16))
    difference = (fakes.mean(0) - images.mean(0)).abs().mean() + (fakes.std(0) - images.std(0)).abs().mean()
score = -float(difference) - largest / 100
learned = score > -0.4
