"""ULMFiT: rates that fall by 2.6 per layer, layers thawed one after the other, slanted triangular schedule.

source: https://arxiv.org/abs/1801.06146
field: fine-tuning
unusual: parameters without gradient for the first epochs, groups whose rates differ by more than ten times
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)


def layer(i, o):
    return nn.Sequential(nn.Linear(i, o), nn.LayerNorm(o), nn.ReLU())


model = nn.Sequential(layer(64, 96), layer(96, 96), layer(96, 64), nn.Linear(64, 10))
pretraining = torch.optim.Adam(model.parameters(), lr=2e-3)
for _ in range(8):
    for rows in torch.randperm(900).split(50):
        pretraining.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        pretraining.step()

mirrored = x.view(-1, 8, 8).flip(2).reshape(-1, 64)  # the new domain
model[3] = nn.Linear(64, 10)
top = 5e-3
groups = [{"params": part.parameters(), "lr": top / 2.6 ** (3 - depth)} for depth, part in enumerate(model)]
optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
steps = 14 * 5 * 3
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda t: t / 20 if t < 20 else max(0.03, 1 - (t - 20) / (steps - 20)))
with nv.watch(model, optimizer) as watch:
    for epoch in range(15):
        for depth, part in enumerate(model):
            part.requires_grad_(depth >= 3 - epoch // 2)
        for rows in (900 + torch.randperm(700)).split(50):
            loss = F.cross_entropy(model(mirrored[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            watch.step(loss)

with torch.no_grad():
    score = float((model(mirrored[1600:]).argmax(1) == y[1600:]).float().mean())
learned = score > 0.82
