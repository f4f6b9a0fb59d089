"""Three quantiles (10, 50, 90 percent) of a heteroscedastic target learned with the pinball loss.

source: Koenker & Bassett, Regression Quantiles (1978); https://scikit-learn.org/stable/auto_examples/linear_model/plot_quantile_regression.html
field: quantile regression
unusual: residuals are not symmetric, the loss stays far from zero, outputs disagree on purpose
"""
import torch
from torch import nn

import netvitals as nv

QUANTILES = torch.tensor([0.1, 0.5, 0.9])


def sample(n):
    x = torch.rand(n, 1) * 4 - 2
    y = torch.sin(2 * x) + (0.2 + 0.3 * x.abs()) * torch.randn(n, 1)
    return x, y


x_train, y_train = sample(2000)
x_test, y_test = sample(2000)
model = nn.Sequential(nn.Linear(1, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)


def pinball(prediction, target):
    error = target - prediction
    return torch.maximum(QUANTILES * error, (QUANTILES - 1) * error).mean()


with nv.watch(model, optimizer) as watch:
    for epoch in range(15):
        for rows in torch.randperm(len(x_train)).split(64):
            optimizer.zero_grad()
            loss = pinball(model(x_train[rows]), y_train[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    coverage = (y_test <= model(x_test)).float().mean(0)
score = -float((coverage - QUANTILES).abs().max())
learned = score > -0.08
