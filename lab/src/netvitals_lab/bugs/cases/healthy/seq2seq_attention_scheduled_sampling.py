"""Attention decoder trained with a teacher-forcing ratio that falls from one to zero.

source: https://arxiv.org/abs/1506.03099
field: text (sequence to sequence)
unusual: the loss may rise while it is trained, as the task becomes harder; padding ignored; the decoder is run step by step with its own argmax as input
"""
import random

import torch
from torch import nn

import netvitals as nv

PAD, SOS, V = 0, 1, 12


def pairs(n):
    src = torch.zeros(n, 6, dtype=torch.long)
    for i in range(n):
        k = random.randint(3, 6)
        src[i, :k] = torch.randint(2, V, (k,))
    tgt = torch.where(src >= 2, (src - 2 + 3) % (V - 2) + 2, src)  # a substitution cipher
    return src, tgt


class Seq2Seq(nn.Module):
    def __init__(self, d=40):
        super().__init__()
        self.embed = nn.Embedding(V, d, padding_idx=PAD)
        self.encoder, self.decoder = nn.GRU(d, d, batch_first=True), nn.GRUCell(2 * d, d)
        self.query, self.out = nn.Linear(d, d), nn.Linear(2 * d, V)

    def forward(self, src, tgt, ratio):
        memory, h = self.encoder(self.embed(src))
        h, word, logits = h[0], torch.full((len(src),), SOS), []
        context = torch.zeros_like(h)
        for t in range(tgt.size(1)):
            h = self.decoder(torch.cat([self.embed(word), context], 1), h)
            scores = (memory @ self.query(h).unsqueeze(2)).squeeze(2) / 6
            weights = scores.masked_fill(src == PAD, -1e9).softmax(1)
            context = (weights.unsqueeze(1) @ memory).squeeze(1)
            logits.append(self.out(torch.cat([h, context], 1)))
            word = tgt[:, t] if random.random() < ratio else logits[-1].argmax(1)
        return torch.stack(logits, 1)


model = Seq2Seq()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
with nv.watch(model, optimizer) as watch:
    for step in range(270):
        src, tgt = pairs(48)
        loss = criterion(model(src, tgt, max(0.0, 1 - step / 190)).flatten(0, 1), tgt.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    src, tgt = pairs(200)
    score = float((model(src, tgt, 0.0).argmax(2) == tgt)[tgt != PAD].float().mean())
learned = score > 0.85
