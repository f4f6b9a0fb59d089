"""The second residual block is made in __init__ but forward calls the first one twice.

source: https://pypi.org/project/torchtest2/ (bug gallery: a layer you forgot to call)
catalogue: torchtest
field: regression
cause: layers-unused
observable: yes
silent: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return x + F.gelu(self.fc(self.norm(x)))


class ResNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Linear(6, width)
        self.block1, self.block2 = Block(width), Block(width)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.block1(self.stem(x))
        x = self.block1(x)  # bug
        # fix: x = self.block2(x)
        return self.head(x).squeeze(-1)


x = torch.randn(1500, 6)
y = torch.sin(2 * x[:, 0]) * x[:, 1] + x[:, 2].abs() - x[:, 3] * x[:, 4]
model = ResNet()
before = model.block2.fc.weight.detach().clone()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.005, weight_decay=0.0)
with nv.watch(model, optimizer) as watch:
    for epoch in range(15):
        for rows in torch.randperm(1200).split(48):
            loss = F.mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = 1 - float(F.mse_loss(model(x[1200:]), y[1200:]) / y[1200:].var())
learned = score > 0.75 and not torch.equal(before, model.block2.fc.weight)
