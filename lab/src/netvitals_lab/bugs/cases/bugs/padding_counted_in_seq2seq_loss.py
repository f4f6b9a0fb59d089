"""Sequence to sequence with long padding and no ignore_index: most of the loss is about writing padding.

source: https://github.com/guxd/VariationalSeq2Seq/issues/5
catalogue: github
field: text (sequence to sequence)
cause: ignore-index
observable: yes
"""
import random

import torch
from torch import nn

import netvitals as nv

PAD, SOS, EOS, WORDS, MAX = 0, 1, 2, 14, 50


def batch(n):
    """Sort the words of a short sentence; a few sentences in the corpus are long, so everything is padded to 50."""
    src, tgt = torch.zeros(n, MAX, dtype=torch.long), torch.zeros(n, MAX + 1, dtype=torch.long)
    for i in range(n):
        words = [random.randrange(3, WORDS) for _ in range(random.randint(3, 5))]
        src[i, : len(words)] = torch.tensor(words)
        tgt[i, : len(words) + 2] = torch.tensor([SOS] + sorted(words) + [EOS])
    return src, tgt


class Seq2Seq(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.embed = nn.Embedding(WORDS, d, padding_idx=PAD)
        self.encoder, self.decoder = nn.GRU(d, d, batch_first=True), nn.GRU(d, d, batch_first=True)
        self.out = nn.Linear(d, WORDS)

    def forward(self, src, tgt):
        lengths = (src != PAD).sum(1)
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(src), lengths, batch_first=True, enforce_sorted=False)
        _, h = self.encoder(packed)
        return self.out(self.decoder(self.embed(tgt), h)[0])


model = Seq2Seq()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
criterion = nn.CrossEntropyLoss()  # bug
# fix: criterion = nn.CrossEntropyLoss(ignore_index=PAD)
with nv.watch(model, optimizer) as watch:
    for step in range(140):
        src, tgt = batch(32)
        logits = model(src, tgt[:, :-1])
        loss = criterion(logits.reshape(-1, WORDS), tgt[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        watch.step(loss)

src, tgt = batch(300)
real = tgt[:, 1:] != PAD
score = float((model(src, tgt[:, :-1]).argmax(-1) == tgt[:, 1:])[real].float().mean())
learned = score > 0.75
