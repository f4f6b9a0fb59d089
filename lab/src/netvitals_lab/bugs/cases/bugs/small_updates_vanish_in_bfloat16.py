"""All of the model in bfloat16 and a small rate: most updates of Adam are less than half the spacing of the weights.

source: https://github.com/workofart/ml-by-hand/pull/85 (and https://github.com/pytorch/ao/pull/1124)
catalogue: github
field: language model in bfloat16
cause: low-precision
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class NextWord(nn.Module):
    """A language model with a window of two words."""

    def __init__(self, vocabulary=24, dim=24):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, dim)
        self.ln = nn.LayerNorm(2 * dim)
        self.fc = nn.Linear(2 * dim, 96)
        self.head = nn.Linear(96, vocabulary)

    def forward(self, idx):
        h = self.ln(self.wte(idx).flatten(1))
        return self.head(F.gelu(self.fc(h)))


successor = torch.randperm(24)


def windows(n):
    first = torch.randint(0, 24, (n,))
    second = torch.where(torch.rand(n) < 0.5, successor[first], torch.randint(0, 24, (n,)))
    third = torch.where(torch.rand(n) < 0.95, successor[second], torch.randint(0, 24, (n,)))
    return torch.stack([first, second], 1), third


model = NextWord()
model = model.to(torch.bfloat16)  # bug
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.0)
with nv.watch(model, optimizer) as watch:
    for step in range(700):
        context, word = windows(64)
        loss = F.cross_entropy(model(context).float(), word)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    context, word = windows(4000)
    score = -float(F.cross_entropy(model(context).float(), word))
learned = score > -0.53
