"""A small curve fit with full-batch LBFGS and strong Wolfe line search.

source: https://pytorch.org/docs/stable/generated/torch.optim.LBFGS.html
field: curve fitting
unusual: step(closure) evaluates the model several times per step, lr of 1, the same full batch every time
"""
import torch
from torch import nn

import netvitals as nv

t = torch.linspace(-3, 3, 200).unsqueeze(1)
signal = torch.sin(2 * t) * torch.exp(-0.1 * t ** 2) + 0.02 * torch.randn(200, 1)
model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=4, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    error = nn.functional.mse_loss(model(t), signal)
    error.backward()
    return error


with nv.watch(model, optimizer) as watch:
    for iteration in range(110):
        loss = optimizer.step(closure)
        watch.step(loss)

with torch.no_grad():
    score = 1 - float(nn.functional.mse_loss(model(t), signal) / signal.var())
learned = score > 0.97
