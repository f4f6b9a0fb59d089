"""A denoising diffusion model on the two moons, with the simple loss and an averaged copy for sampling.

source: https://arxiv.org/abs/2006.11239
field: diffusion
unusual: the loss is noisy and stays far from zero; the targets are fresh noise; an average of the weights is used
"""
import math

import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import netvitals as nv

data = torch.tensor(make_moons(4000, noise=0.04)[0], dtype=torch.float32)
data = (data - data.mean(0)) / data.std(0)
T = 60
betas = torch.linspace(1e-4, 0.15, T)
alphas = 1 - betas
alpha_bar = alphas.cumprod(0)


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.inputs, self.time = nn.Linear(2, width), nn.Linear(32, width)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        angle = t[:, None] * torch.exp(-math.log(1000) * torch.arange(16) / 16)
        h = self.inputs(x) + self.time(torch.cat([angle.sin(), angle.cos()], 1))
        return self.out(h + self.body(h))


model = Denoiser()
averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(600):
        x0 = data[torch.randint(0, 4000, (192,))]
        t = torch.randint(0, T, (192,))
        noise = torch.randn_like(x0)
        a = alpha_bar[t, None]
        loss = (model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t) - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averaged.update_parameters(model)
        watch.step(loss)

with torch.no_grad():
    x = torch.randn(800, 2)
    for t in reversed(range(T)):
        e = averaged(x, torch.full((800,), t))
        x = (x - betas[t] / (1 - alpha_bar[t]).sqrt() * e) / alphas[t].sqrt()
        if t:
            x = x + betas[t].sqrt() * torch.randn_like(x)
    near = torch.cdist(x, data).min(1).values  # how far from the moons is a sample
    missed = torch.cdist(data[:800], x).min(1).values  # how far from the samples is a point of the moons
score = -float(near.mean() + missed.mean())
learned = score > -0.3
