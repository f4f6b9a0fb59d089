"""A pretrained digit network is fine-tuned to slightly shifted images with a rate of 2e-5 and ends a bit better.

source: Howard & Ruder, ULMFiT (2018); https://pytorch.org/tutorials/beginner/transfer_learning_tutorial.html
field: transfer learning
unusual: very small rate, parameters hardly move, the loss is low from the first step on
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
source = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
target = 0.75 * source + 0.25 * torch.roll(source, 1, dims=3) + 0.1 * torch.randn_like(source)
y = torch.tensor(digits.target)
order = torch.randperm(len(y))
train, test = order[:1400], order[1400:]

model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10),
)
pretrain = torch.optim.Adam(model.parameters(), lr=0.002)
for epoch in range(4):
    for rows in train[torch.randperm(1400)].split(64):
        pretrain.zero_grad()
        F.cross_entropy(model(source[rows]), y[rows]).backward()
        pretrain.step()


def loss_on(data):
    with torch.no_grad():
        return float(F.cross_entropy(model(data[test]), y[test]))


before = loss_on(target)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01)
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        for rows in train[torch.randperm(1400)].split(64):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(target[rows]), y[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)

after = loss_on(target)
score = before - after
learned = after < before * 0.97 and after < 0.5
