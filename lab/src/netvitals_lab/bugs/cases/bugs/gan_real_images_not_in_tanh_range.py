"""The generator ends in tanh but the real images stay in 0..255: the discriminator can never be fooled.

source: https://stackoverflow.com/questions/50762466
catalogue: humbatova
field: GAN
cause: inputs-not-scaled, output-activation
observable: yes
"""
import torch
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
real_images = torch.tensor(digits.data[digits.target == 3], dtype=torch.float32) / 16 * 255
# fix: real_images = (real_images - 127.5) / 127.5
latent = 16
G = nn.Sequential(nn.Linear(latent, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.Tanh())
D = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=0.001, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=0.001, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)

with nv.watch({"generator": G, "discriminator": D}, [opt_g, opt_d]) as watch:
    for step in range(450):
        real = real_images[torch.randint(0, len(real_images), (32,))]
        fake = G(torch.randn(32, latent))
        loss_d = bce(D(real), ones) + bce(D(fake.detach()), zeros)
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()

        loss_g = bce(D(fake), ones)
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        watch.step(loss_g)

with torch.no_grad():
    mean_fake, mean_real = G(torch.randn(400, latent)).mean(0), real_images.mean(0)
    score = -float((mean_fake - mean_real).pow(2).mean() / mean_real.var())
learned = score > -0.8
