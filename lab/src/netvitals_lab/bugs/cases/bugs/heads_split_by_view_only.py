"""Multi-head attention splits and joins the heads with view alone: words and heads are mixed.

source: https://github.com/reczoo/FuxiCTR/issues/30 (and https://github.com/649453932/Chinese-Text-Classification-Pytorch/issues/53)
catalogue: github
field: attention over a sequence
cause: layout-mixed
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads, self.attention_dim = num_heads, dim // num_heads
        self.W_q, self.W_k, self.W_v = (nn.Linear(dim, dim) for _ in range(3))
        self.W_o = nn.Linear(dim, dim)

    def split(self, x):
        batch_size, seq_len, _ = x.shape
        return x.view(batch_size * self.num_heads, -1, self.attention_dim)  # bug
        # fix: x = x.view(batch_size, seq_len, self.num_heads, self.attention_dim).transpose(1, 2)
        # fix: return x.reshape(batch_size * self.num_heads, seq_len, self.attention_dim)

    def join(self, x, batch_size):
        return x.view(batch_size, -1, self.attention_dim * self.num_heads)  # bug
        # fix: x = x.view(batch_size, self.num_heads, -1, self.attention_dim).transpose(1, 2)
        # fix: return x.reshape(batch_size, -1, self.attention_dim * self.num_heads)

    def forward(self, x):
        q, k, v = self.split(self.W_q(x)), self.split(self.W_k(x)), self.split(self.W_v(x))
        weights = (q @ k.transpose(1, 2) / self.attention_dim**0.5).softmax(-1)
        return self.W_o(self.join(weights @ v, len(x)))


class Reader(nn.Module):
    """Pairs of a name and a value, then a name: what was its value?"""

    def __init__(self, dim=48):
        super().__init__()
        self.name, self.value = nn.Embedding(8, dim), nn.Embedding(11, dim)
        self.attention = nn.ModuleList([MultiHeadSelfAttention(dim, 4) for _ in range(2)])
        self.norm = nn.ModuleList([nn.LayerNorm(dim) for _ in range(2)])
        self.out = nn.Linear(dim, 10)

    def forward(self, names, values):
        h = self.name(names) + self.value(values)
        for attention, norm in zip(self.attention, self.norm):
            h = norm(h + attention(h))
        return self.out(h[:, -1])


def questions(n):
    names = torch.rand(n, 8).argsort(1)[:, :5]
    values = torch.randint(0, 10, (n, 5))
    asked = torch.randint(0, 5, (n, 1))
    answer = values.gather(1, asked).squeeze(1)
    return (torch.cat([names, names.gather(1, asked)], 1), torch.cat([values, torch.full((n, 1), 10)], 1)), answer


model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(280):
        inputs, answer = questions(64)
        loss = nn.functional.cross_entropy(model(*inputs), answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    inputs, answer = questions(1000)
    score = float((model(*inputs).argmax(1) == answer).float().mean())
learned = score > 0.9
