"""Diffusion model: the noise is scaled with 1 - alpha_bar instead of its square root while training; sampling does it right.

source: https://github.com/Ryota-Kawamura/How-Diffusion-Models-Work/issues/1
catalogue: github
field: generative models (diffusion)
cause: train-test-mismatch
observable: no, the noisy inputs of training look as they should; only the sampler expects others
"""
import torch
from torch import nn

import netvitals as nv

T = 60
b_t = torch.linspace(1e-3, 0.15, T)
a_t = 1 - b_t
ab_t = a_t.cumprod(0)


def data(n):
    corner = torch.randint(0, 2, (n, 2)) * 2.0 - 1
    return 1.2 * corner + 0.1 * torch.randn(n, 2)


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.time = nn.Embedding(T, 32)
        self.net = nn.Sequential(nn.Linear(2 + 32, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], 1))


def perturb_input(x, t, noise):
    return ab_t.sqrt()[t, None] * x + (1 - ab_t[t, None]) * noise  # bug
    # fix: return ab_t.sqrt()[t, None] * x + (1 - ab_t[t, None]).sqrt() * noise


model = Denoiser()
optim = torch.optim.Adam(model.parameters(), lr=4e-3)
with nv.watch(model, optim) as watch:
    for step in range(800):
        x = data(256)
        noise, t = torch.randn_like(x), torch.randint(0, T, (256,))
        loss = nn.functional.mse_loss(model(perturb_input(x, t, noise), t), noise)
        optim.zero_grad()
        loss.backward()
        optim.step()
        watch.step(loss)

with torch.no_grad():
    x = torch.randn(2000, 2)
    for i in reversed(range(T)):
        eps = model(x, torch.full((2000,), i))
        z = torch.randn_like(x) if i > 0 else 0
        x = (x - eps * b_t[i] / (1 - ab_t[i]).sqrt()) / a_t[i].sqrt() + b_t[i].sqrt() * z
    astray = (x.abs() - 1.2).norm(dim=1) > 0.5  # samples that belong to none of the four modes
score = -float(astray.float().mean())
learned = score > -0.1
