"""SAM: climb to the worst point nearby, take the gradient there, step from where one was.

source: https://arxiv.org/abs/2010.01412
field: optimization
unusual: two forward and backward passes per step, weights that move away and come back in between
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer
from torch import nn

import netvitals as nv

data = load_breast_cancer()
order = torch.randperm(len(data.target))
x = torch.tensor(data.data, dtype=torch.float32)[order]
x = (x - x[:400].mean(0)) / x[:400].std(0)
y = torch.tensor(data.target, dtype=torch.float32)[order].unsqueeze(1)

model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
rho = 0.05


@torch.no_grad()
def climb():
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm() + 1e-12
    moves = [p.grad * (rho / norm) for p in model.parameters()]
    for p, move in zip(model.parameters(), moves):
        p.add_(move)
    return moves


@torch.no_grad()
def back(moves):
    for p, move in zip(model.parameters(), moves):
        p.sub_(move)


with nv.watch(model, optimizer) as watch:
    for epoch in range(30):
        for rows in torch.randperm(400).split(32):
            loss = F.binary_cross_entropy_with_logits(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            moves = climb()
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(x[rows]), y[rows]).backward()
            back(moves)
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float(((model(x[400:]) > 0) == (y[400:] > 0.5)).float().mean())
learned = score > 0.92
