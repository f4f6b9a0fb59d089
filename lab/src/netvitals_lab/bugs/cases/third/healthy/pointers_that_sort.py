"""Pointer network: the decoder points at places of the input, places already used are masked with minus infinity.

source: https://arxiv.org/abs/1506.03134
field: combinatorial outputs (pointer network)
unusual: the classes are positions of the input; logits of minus infinity are normal; teacher forcing
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

LENGTH = 6


class PointerNet(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.encoder = nn.LSTM(1, dim, batch_first=True, bidirectional=True)
        self.cell, self.first = nn.LSTMCell(1, dim), nn.Parameter(torch.zeros(1))
        self.keys, self.query, self.v = nn.Linear(2 * dim, dim, bias=False), nn.Linear(dim, dim), nn.Linear(dim, 1, bias=False)

    def forward(self, x, order):
        memory, (h, c) = self.encoder(x.unsqueeze(2))
        h, c, keys = h.mean(0), c.mean(0), self.keys(memory)
        used, token, out = torch.zeros_like(x, dtype=torch.bool), self.first.expand(len(x), 1), []
        for t in range(LENGTH):
            h, c = self.cell(token, (h, c))
            logits = self.v(torch.tanh(keys + self.query(h).unsqueeze(1))).squeeze(2).masked_fill(used, float("-inf"))
            out.append(logits)
            place = logits.argmax(1, keepdim=True) if order is None else order[:, t : t + 1]
            used, token = used.scatter(1, place, True), x.gather(1, place)
        return torch.stack(out, 1)


model = PointerNet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(450):
        x = torch.rand(64, LENGTH)
        order = x.argsort(1)
        loss = F.cross_entropy(model(x, order).flatten(0, 1), order.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x = torch.rand(500, LENGTH)
    score = float((model(x, None).argmax(2) == x.argsort(1)).float().mean())
learned = score > 0.8
