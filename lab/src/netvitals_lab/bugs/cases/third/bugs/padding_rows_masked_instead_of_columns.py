"""Attention mask of shape (batch, 1, length, 1) hides padded queries, not padded keys: every word looks at the padding.

source: https://github.com/hyunwoongko/transformer/pull/40
catalogue: github
field: text classification (transformer from scratch)
cause: attention-mask-wrong, ignore-index
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

WORDS, LENGTH, PAD, DIM = 20, 24, 0, 32


def reviews(n):
    """Good words and bad words; the commoner of the two decides. Texts are padded with whatever padding was loaded."""
    length = torch.randint(3, LENGTH + 1, (n, 1))
    x = torch.randint(1, WORDS, (n, LENGTH)).masked_fill(torch.arange(LENGTH) >= length, PAD)
    balance = ((x > 0) & (x < 10)).sum(1) - (x >= 11).sum(1)
    keep = balance != 0
    return x[keep], (balance > 0).long()[keep]


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, DIM)
        with torch.no_grad():
            self.embed.weight[PAD] = 3 * torch.randn(DIM)
        self.q, self.k, self.v, self.out = (nn.Linear(DIM, DIM) for _ in range(4))
        self.head = nn.Linear(DIM, 2)

    def forward(self, x):
        mask = (x != PAD).unsqueeze(1).unsqueeze(3)  # bug
        # fix: mask = (x != PAD).unsqueeze(1).unsqueeze(2)
        h = self.embed(x)
        q, k, v = (f(h).view(len(x), -1, 4, DIM // 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        score = (q @ k.transpose(2, 3) / (DIM // 4) ** 0.5).masked_fill(~mask, -10000)
        h = (score.softmax(3) @ v).transpose(1, 2).flatten(2)
        return self.head(self.out(h)[:, 0])


model = Encoder()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(350):
        x, y = reviews(64)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():  # more padding must not change what the model says
    x, y = reviews(500)
    longer = F.pad(x, (0, 60), value=PAD)
    score = -float((model(longer).softmax(1) - model(x).softmax(1)).abs().mean())
    right = float((model(x).argmax(1) == y).float().mean())
learned = score > -1e-3 and right > 0.85
