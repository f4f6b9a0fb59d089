"""A six-layer network without any activation learns a linear map, as in the theory of deep linear networks.

source: Saxe, McClelland & Ganguli, Exact solutions to the nonlinear dynamics of learning in deep linear networks (2014)
field: theory of learning
unusual: no nonlinearity at all on purpose, orthogonal init, plateau at the beginning, no biases
"""
import torch
from torch import nn

import netvitals as nv

d = 12
teacher = torch.linalg.qr(torch.randn(d, d))[0] @ torch.diag(torch.linspace(2, 0.3, d)) @ torch.linalg.qr(torch.randn(d, d))[0]
x = torch.randn(1000, d)
y = x @ teacher.T + 0.02 * torch.randn(1000, d)

layers = []
for _ in range(6):
    layer = nn.Linear(d, d, bias=False)
    nn.init.orthogonal_(layer.weight, gain=0.9)
    layers.append(layer)
model = nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
with nv.watch(model, optimizer) as watch:
    for epoch in range(60):
        for rows in torch.randperm(1000).split(100):
            loss = (model(x[rows]) - y[rows]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

fresh = torch.randn(500, d)
with torch.no_grad():
    target = fresh @ teacher.T
    score = 1 - float((model(fresh) - target).pow(2).mean() / target.var())
learned = score > 0.95
