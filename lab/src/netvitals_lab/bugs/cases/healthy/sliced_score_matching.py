"""Sliced score matching: the gradient of the log-density is learned with random projections, without noise and without targets.

source: https://arxiv.org/abs/1905.07088
field: generative models (score matching)
unusual: the loss is negative and has no floor at zero; derivatives of the network's outputs with respect to its inputs are part of the loss; no targets
"""
import torch
from torch import nn
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

import netvitals as nv

centres = torch.tensor([[1.5, 0.0], [-1.0, 1.2], [-0.8, -1.3]])
density = MixtureSameFamily(Categorical(torch.ones(3)), Independent(Normal(centres, 0.6), 1))


class ScoreNet(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, d), nn.Softplus(), nn.Linear(d, d), nn.Softplus(), nn.Linear(d, 2))

    def forward(self, x):
        return self.net(x)


def sliced_loss(score, x):
    x = x.requires_grad_(True)
    v = torch.randn_like(x)
    s = score(x)
    grad = torch.autograd.grad((s * v).sum(), x, create_graph=True)[0]
    return ((grad * v).sum(1) + 0.5 * s.pow(2).sum(1)).mean()


data = density.sample((4000,))
model = ScoreNet()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 500)
with nv.watch(model, optimizer) as watch:
    for step in range(500):
        loss = sliced_loss(model, data[torch.randint(0, 4000, (256,))])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        watch.step(loss)

x = density.sample((1000,)).requires_grad_(True)
true = torch.autograd.grad(density.log_prob(x).sum(), x)[0]
score = 1 - float((model(x) - true).pow(2).mean() / true.var())
learned = score > 0.8
