"""Luong attention whose softmax runs over dimension 0 (batch and queries) instead of over the context.

source: https://github.com/PetrochukM/PyTorch-NLP/issues/2
catalogue: github
field: text (sequence to sequence with attention)
cause: softmax-wrong-dimension
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


class Attention(nn.Module):
    def __init__(self, dimensions):
        super().__init__()
        self.linear_in = nn.Linear(dimensions, dimensions, bias=False)
        self.linear_out = nn.Linear(dimensions * 2, dimensions, bias=False)
        self.softmax = nn.Softmax(dim=0)  # bug
        # fix: self.softmax = nn.Softmax(dim=-1)

    def forward(self, query, context):
        batch_size, output_len, dimensions = query.size()
        query_len = context.size(1)
        scores = torch.bmm(self.linear_in(query), context.transpose(1, 2)) / dimensions**0.5
        weights = self.softmax(scores.view(batch_size * output_len, query_len)).view(batch_size, output_len, query_len)
        mix = torch.bmm(weights, context)
        return torch.tanh(self.linear_out(torch.cat([mix, query], dim=2)))


class Reverser(nn.Module):
    def __init__(self, vocab=10, d=48, length=7):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.place = nn.Embedding(length, d)
        self.encoder = nn.GRU(d, d, batch_first=True)
        self.attention = Attention(d)
        self.out = nn.Linear(d, vocab)

    def forward(self, x):
        places = self.place(torch.arange(x.size(1)))
        context, _ = self.encoder(self.embed(x) + places)
        query = places.flip(0).expand(len(x), -1, -1)
        return self.out(self.attention(query, context))


net = Reverser()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
loss_fn = nn.CrossEntropyLoss()
with nv.watch(net, opt) as watch:
    for i in range(500):
        x = torch.randint(0, 10, (48, 7))
        loss = loss_fn(net(x).flatten(0, 1), x.flip(1).flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        watch.step(loss)

with torch.no_grad():
    x = torch.randint(0, 10, (300, 7))
    score = float((net(x).argmax(-1) == x.flip(1)).float().mean())
learned = score > 0.95
