"""Curriculum: sequences grow from 3 to 10 symbols as soon as the current length is mastered.

source: https://arxiv.org/abs/1410.4615 (Learning to Execute) and Bengio et al., 2009
field: recurrent networks
unusual: the loss jumps up whenever the task gets harder; the shape of the batches changes
"""
import torch
from torch import nn

import netvitals as nv


class Adder(nn.Module):
    """Says the running sum modulo 5 after each digit."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 32)
        self.rnn = nn.GRU(32, 64, batch_first=True)
        self.out = nn.Linear(64, 5)

    def forward(self, x):
        return self.out(self.rnn(self.embed(x))[0])


def batch(n, length):
    x = torch.randint(0, 5, (n, length))
    return x, x.cumsum(1) % 5


model = Adder()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
length, recent = 3, 1.0
with nv.watch(model, optimizer) as watch:
    for step in range(500):
        x, y = batch(48, length)
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        watch.step(loss)
        recent = 0.8 * recent + 0.2 * loss.item()
        if recent < 0.15 and length < 10:
            length, recent = length + 1, 1.0

with torch.no_grad():
    x, y = batch(500, 10)
    score = float((model(x).argmax(-1) == y).float().mean())
learned = score > 0.95
