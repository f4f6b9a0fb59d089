"""The list of parameters for the optimizer drops every name that contains 'bias': the biases stay at their start.

source: https://pypi.org/project/torchtest/ (README, assert_vars_change failure)
catalogue: torchtest
field: multi-class classification
cause: parameters-not-in-optimizer
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

inputs = torch.rand(1500, 1) * 10
targets = torch.bucketize(inputs.squeeze(1), torch.tensor([2.0, 3.5, 6.0, 8.5]))
inputs = inputs / 5

model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 5))
for layer in (model[0], model[2]):
    nn.init.zeros_(layer.bias)
params_to_train = [p for name, p in model.named_parameters() if "bias" not in name]  # bug
# fix: params_to_train = list(model.parameters())
optim = torch.optim.Adam(params_to_train, lr=0.02)
with nv.watch(model, optim) as watch:
    for epoch in range(20):
        for batch in torch.randperm(1500).split(75):
            optim.zero_grad()
            loss = F.cross_entropy(model(inputs[batch]), targets[batch])
            loss.backward()
            optim.step()
            watch.step(loss)

with torch.no_grad():
    score = float((model(inputs).argmax(1) == targets).float().mean())
learned = score > 0.85
