"""WGAN-GP that takes the gradient's norm over the channel axis only: every pixel's slope is pushed to one.

source: https://github.com/eriklindernoren/PyTorch-GAN/issues/20
catalogue: github
field: generative models (WGAN-GP)
cause: reduction-wrong, layout-mixed
observable: yes
"""
import torch
from sklearn.datasets import load_digits
from torch import autograd, nn

import netvitals as nv

digits = load_digits()
real_images = torch.tensor(digits.images[digits.target < 2], dtype=torch.float32).unsqueeze(1) / 8 - 1

generator = nn.Sequential(nn.Linear(12, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2),
                          nn.Linear(64, 64), nn.Tanh(), nn.Unflatten(1, (1, 8, 8)))
critic = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 3, 2, 1), nn.LeakyReLU(0.2),
                       nn.Flatten(), nn.Linear(128, 1))


def slopes(real, fake):
    alpha = torch.rand(len(real), 1, 1, 1)
    interpolates = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    scores = critic(interpolates)
    return autograd.grad(scores, interpolates, torch.ones_like(scores), create_graph=True)[0]


def gradient_penalty(real, fake):
    gradients = slopes(real, fake)
    # fix: gradients = gradients.view(len(real), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
with nv.watch({"generator": generator, "critic": critic}, [opt_g, opt_c]) as watch:
    for step in range(360):
        real = real_images[torch.randint(0, len(real_images), (48,))]
        fake = generator(torch.randn(48, 12)).detach()
        c_loss = critic(fake).mean() - critic(real).mean() + 10 * gradient_penalty(real, fake)
        opt_c.zero_grad()
        c_loss.backward()
        opt_c.step()
        if step % 3 == 2:
            g_loss = -critic(generator(torch.randn(48, 12))).mean()
            opt_g.zero_grad()
            g_loss.backward()
            opt_g.step()
        watch.step(c_loss)

fake = generator(torch.randn(300, 12)).detach()
norm = float(slopes(real_images[:300], fake).flatten(1).norm(dim=1).mean())
score = -abs(norm - 1)  # the critic is 1-Lipschitz
learned = score > -0.5
