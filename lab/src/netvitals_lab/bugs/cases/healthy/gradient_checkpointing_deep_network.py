"""A residual network of 12 blocks with gradient checkpointing: every block runs forward twice per step.

source: https://arxiv.org/abs/1604.06174 and https://docs.pytorch.org/docs/stable/checkpoint.html
field: memory-efficient training
unusual: forward hooks see twice as many calls as there are batches, some of them in the backward pass
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.checkpoint import checkpoint

import netvitals as nv


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.body = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Dropout(0.05), nn.Linear(dim, dim))

    def forward(self, h):
        return h + self.body(self.norm(h))


class Deep(nn.Module):
    def __init__(self, dim=48, depth=12):
        super().__init__()
        self.stem = nn.Linear(64, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 10))

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False) if self.training else block(h)
        return self.head(h)


digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 8 - 1
y = torch.tensor(digits.target)
model = Deep()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
with nv.watch(model, optimizer) as watch:
    for epoch in range(6):
        model.train()
        for rows in torch.randperm(1500).split(64):
            loss = F.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
        model.eval()
        with torch.no_grad():
            score = float((model(x[1500:]).argmax(1) == y[1500:]).float().mean())

learned = score > 0.85
