"""A small tanh regression network compiled with 'sgd' at a rate so small that 300 epochs are not enough.

source: https://stackoverflow.com/questions/44998910
catalogue: deepfd
field: regression
cause: lr-too-low
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

inputs = torch.randn(500, 4)
answers = (inputs.sum(dim=1, keepdim=True) + inputs[:, :1] * inputs[:, 1:2]) / 2.5
model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
learning_rate = 1e-4  # bug
# fix: learning_rate = 0.05
sgd = torch.optim.SGD(model.parameters(), lr=learning_rate)


def epoch_of(model, size=125):
    for chunk in torch.randperm(len(inputs)).split(size):
        sgd.zero_grad()
        loss = nn.functional.mse_loss(model(inputs[chunk]), answers[chunk])
        loss.backward()
        sgd.step()
        yield loss


with nv.watch(model, sgd) as watch:
    for epoch in range(150):
        for loss in epoch_of(model):
            watch.step(loss)

with torch.no_grad():
    fresh = torch.randn(300, 4)
    expected = (fresh.sum(dim=1, keepdim=True) + fresh[:, :1] * fresh[:, 1:2]) / 2.5
    score = 1 - float(((model(fresh) - expected) ** 2).mean() / expected.var())
learned = score > 0.8
