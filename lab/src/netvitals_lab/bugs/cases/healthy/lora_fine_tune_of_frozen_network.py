"""LoRA: a frozen network and small trained matrices beside its layers.

source: https://arxiv.org/abs/2106.09685
field: parameter-efficient fine-tuning
unusual: B starts at exactly zero, so A has no gradient in the first step; most parameters are frozen on purpose
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)
turned = x.view(-1, 8, 8).rot90(1, (1, 2)).reshape(-1, 64)


class LoraLinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8.0):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=5**0.5)
        self.scaling = alpha / rank

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.lora_A), self.lora_B) * self.scaling


def fit(model, optimizer, data, epochs, watch=None):
    for _ in range(epochs):
        for rows in torch.randperm(1400).split(50):
            loss = F.cross_entropy(model(data[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if watch:
                watch.step(loss)


model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 10))
fit(model, torch.optim.Adam(model.parameters(), lr=2e-3), x, 10)
for number in (0, 2, 4):
    model[number] = LoraLinear(model[number])
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3, weight_decay=0.0)
with nv.watch(model, optimizer) as watch:
    fit(model, optimizer, turned, 15, watch)

with torch.no_grad():
    score = float((model(turned[1400:]).argmax(1) == y[1400:]).float().mean())
learned = score > 0.82
