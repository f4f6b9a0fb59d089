"""Attention over the words of a question: the softmax runs over an axis of length one, so every weight is exactly 1.

source: https://github.com/DEEP-PolyU/KEQA_WSDM19/issues/2
catalogue: github
field: question answering (embedding regression)
cause: softmax-over-one-class
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

SEQ, WORDS = 12, 40
answers = torch.randn(8, 6)  # embedding of each predicate


def questions(n):
    """One key word (32..39) among filler words decides about the predicate."""
    x = torch.randint(0, 32, (SEQ, n))
    key = torch.randint(0, 8, (n,))
    x[torch.randint(0, SEQ, (n,)), torch.arange(n)] = 32 + key
    return x, answers[key]


class EmbedVector(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 24)
        self.gru = nn.GRU(24, 24, bidirectional=True)
        self.attn = nn.Sequential(nn.Linear(24 + 48, 24), nn.Tanh(), nn.Linear(24, 1))
        self.hidden2tag = nn.Linear(24 + 48, 6)

    def forward(self, x):
        x = self.embed(x)
        outputs, _ = self.gru(x)
        scores = self.attn(torch.cat((x, outputs), 2)).view(-1, 1)  # (seq_len * batch, 1)
        weights = F.softmax(scores, dim=1).view(SEQ, -1, 1)  # bug
        # fix: weights = F.softmax(scores.view(SEQ, -1, 1), dim=0)
        self.weights = weights.detach()
        return self.hidden2tag((weights * torch.cat((x, outputs), 2)).sum(0))


model = EmbedVector()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(400):
        x, y = questions(64)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x, y = questions(500)
    score = 1 - float(F.mse_loss(model(x), y) / y.var())
    on_key = float((model.weights.squeeze(-1) * (x >= 32)).sum(0).mean() / model.weights.squeeze(-1).sum(0).mean())
learned = score > 0.9 and on_key > 0.5
