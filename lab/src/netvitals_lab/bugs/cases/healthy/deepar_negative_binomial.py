"""DeepAR for counts: a GRU that outputs the parameters of a negative binomial, inputs scaled per series.

source: https://arxiv.org/abs/1704.04110
field: forecasting (DeepAR)
unusual: targets are integers fed back as inputs with a lag of one; the loss is a count likelihood; per-series scaling; parameters through softplus
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import NegativeBinomial

import netvitals as nv


def demand(n, length=35):
    t = torch.arange(length).float()
    rate = (0.5 + 40 * torch.rand(n, 1) ** 2) * (1 + 0.8 * torch.sin(2 * torch.pi * t / 7))
    return torch.poisson(rate), rate, torch.stack([torch.sin(2 * torch.pi * t / 7), torch.cos(2 * torch.pi * t / 7)], 1).expand(n, -1, -1)


class DeepAR(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.rnn, self.mean, self.shape = nn.GRU(3, d, batch_first=True), nn.Linear(d, 1), nn.Linear(d, 1)

    def forward(self, z, covariates):
        scale = 1 + z[:, :14].mean(1, keepdim=True)
        lagged = F.pad(z[:, :-1], (1, 0)) / scale
        h, _ = self.rnn(torch.cat([lagged.unsqueeze(-1), covariates], -1))
        mean = F.softplus(self.mean(h)).squeeze(-1) * scale
        alpha = F.softplus(self.shape(h)).squeeze(-1) / scale.sqrt() + 1e-3
        return mean, NegativeBinomial(1 / alpha, logits=(mean * alpha + 1e-6).log())


model = DeepAR()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(250):
        z, _, covariates = demand(48)
        loss = -model(z, covariates)[1].log_prob(z)[:, 1:].mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    z, rate, covariates = demand(200)
    mean = model(z, covariates)[0][:, 14:]
score = 1 - float((mean - rate[:, 14:]).pow(2).mean() / rate[:, 14:].var())
learned = score > 0.9
