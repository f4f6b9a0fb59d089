"""Mean and variance are predicted together, trained with nn.GaussianNLLLoss after a warm-up on the mean.

source: Nix & Weigend, Estimating the mean and variance of the target probability distribution (1994)
field: heteroscedastic regression
unusual: the variance head has no gradient in the warm-up, loss becomes negative and changes its kind on the way
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def data(n):
    x = torch.rand(n, 1) * 6 - 3
    sd = 0.05 + 0.25 * torch.sigmoid(2 * x)
    return x, torch.cos(1.5 * x) + sd * torch.randn(n, 1), sd


class MeanVariance(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
        self.spread = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))

    def forward(self, x):
        return self.mean(x), F.softplus(self.spread(x)) + 1e-4


model = MeanVariance()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
likelihood = nn.GaussianNLLLoss()
x_train, y_train, _ = data(2000)
with nv.watch(model, optimizer) as watch:
    for epoch in range(16):
        for rows in torch.randperm(2000).split(64):
            mean, variance = model(x_train[rows])
            if epoch < 4:
                loss = F.mse_loss(mean, y_train[rows])
            else:
                loss = likelihood(mean, y_train[rows], variance)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

x, y, sd = data(2000)
with torch.no_grad():
    mean, variance = model(x)
    score = float(torch.corrcoef(torch.cat([variance.sqrt(), sd], dim=1).T)[0, 1])
    fit = 1 - float((mean - torch.cos(1.5 * x)).pow(2).mean() / torch.cos(1.5 * x).var())
learned = score > 0.85 and fit > 0.95
