"""Sequences of different length, packed, a bidirectional LSTM and gradient clipping.

source: https://pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pack_padded_sequence.html
field: sequence classification
unusual: padding rows, embedding with padding_idx (its row never moves), clipping in many steps
"""
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

import netvitals as nv

SYMBOLS, MARK = 12, 11


def strings(n):
    rows, labels = [], []
    for _ in range(n):
        s = torch.randint(1, MARK, (int(torch.randint(4, 16, (1,))),))
        if torch.rand(()) < 0.5:
            s[torch.randint(0, len(s), (1,))] = MARK
        rows.append(s)
        labels.append(int((s == MARK).any()))
    return rows, torch.tensor(labels)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, 12, padding_idx=0)
        self.lstm = nn.LSTM(12, 24, bidirectional=True, batch_first=True)
        self.out = nn.Linear(48, 2)

    def forward(self, rows):
        lengths = torch.tensor([len(r) for r in rows])
        x = self.embed(pad_sequence(rows, batch_first=True))
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        _, (h, _) = self.lstm(packed)
        return self.out(torch.cat([h[0], h[1]], dim=1))


train_rows, train_labels = strings(640)
model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
with nv.watch(model, optimizer) as watch:
    for epoch in range(6):
        for batch in torch.randperm(640).split(32):
            logits = model([train_rows[i] for i in batch])
            loss = nn.functional.cross_entropy(logits, train_labels[batch])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            watch.step(loss)

rows, labels = strings(300)
with torch.no_grad():
    score = float((model(rows).argmax(1) == labels).float().mean())
learned = score > 0.95
