"""Gaussian process with lengthscale one on inputs in the thousands: every point is an island, nothing has a gradient.

source: https://github.com/cornellius-gp/gpytorch/issues/1359
catalogue: github
field: Gaussian processes
cause: inputs-not-scaled
observable: yes
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def wells(n):
    """Ground water by easting and northing in metres."""
    x = torch.rand(n, 2) * torch.tensor([6000.0, 4000.0])
    level = (x[:, 0] / 900).sin() + 0.8 * (x[:, 1] / 700).cos() * (x[:, 0] / 2500)
    return x, level + 0.1 * torch.randn(n)


class ExactGP(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw_lengthscale = nn.Parameter(torch.full((2,), 0.54))
        self.raw_scale, self.raw_noise = nn.Parameter(torch.tensor(0.54)), nn.Parameter(torch.tensor(-1.0))
        self.mean = nn.Parameter(torch.tensor(0.0))

    def kernel(self, a, b):
        length = F.softplus(self.raw_lengthscale)
        return F.softplus(self.raw_scale) * torch.exp(-0.5 * torch.cdist(a / length, b / length).pow(2))

    def factor(self, x):
        K = self.kernel(x, x) + (F.softplus(self.raw_noise) + 1e-4) * torch.eye(len(x))
        return torch.linalg.cholesky(K)

    def forward(self, x, y):
        """Negative marginal log-likelihood per point."""
        L = self.factor(x)
        a = torch.cholesky_solve((y - self.mean).unsqueeze(1), L).squeeze(1)
        return (0.5 * (y - self.mean) @ a + L.diagonal().log().sum()) / len(x) + 0.5 * math.log(2 * math.pi)

    def predict(self, x, y, new):
        return self.mean + self.kernel(new, x) @ torch.cholesky_solve((y - self.mean).unsqueeze(1), self.factor(x)).squeeze(1)


x, y = wells(160)
new_x, new_y = wells(400)
# fix: mean, std = x.mean(0), x.std(0)
# fix: x, new_x = (x - mean) / std, (new_x - mean) / std
model = ExactGP()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
with nv.watch(model, optimizer) as watch:
    for step in range(150):
        loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    score = 1 - float((model.predict(x, y, new_x) - new_y).pow(2).mean() / new_y.var())
learned = score > 0.7
