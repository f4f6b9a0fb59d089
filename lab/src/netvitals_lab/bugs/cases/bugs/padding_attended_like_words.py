"""Padding is left out of the pooled mean, but attention still takes it for words.

source: https://github.com/jingyaogong/minimind-v/issues/76 (and https://github.com/DaoyuanLi2816/Molecule-Generator/pull/22)
catalogue: github
field: sequence classification with a transformer
cause: attention-mask-wrong
observable: yes
silent: yes
"""
import torch
from torch import nn

import netvitals as nv

PAD, words = 0, 25


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embedding, self.position = nn.Embedding(words, dim), nn.Embedding(40, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(dim, 2)

    def forward(self, x):
        mask = x == PAD
        h = self.embedding(x) + self.position(torch.arange(x.shape[1]))
        h = self.encoder(h)  # bug
        # fix: h = self.encoder(h, src_key_padding_mask=mask)
        h = h.masked_fill(mask.unsqueeze(-1), 0).sum(1) / (~mask).sum(1, keepdim=True)
        return self.out(h)


def reviews(n):
    """Good words against bad words; a few words, or many."""
    rows, labels = [], []
    for _ in range(n):
        kind = int(torch.randint(0, 2, ()))
        length = int(torch.randint(3, 13, ()))
        text = torch.randint(5, words, (length,))
        told = torch.rand(length) < 0.35
        text[told] = torch.randint(1, 3, (int(told.sum()),)) + 2 * kind
        rows.append(text)
        labels.append(kind)
    return rows, torch.tensor(labels)


def pad(rows, extra=0):
    batch = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return nn.functional.pad(batch, (0, extra), value=PAD)


rows, labels = reviews(1200)
test_rows, test_labels = reviews(300)
model = Encoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(7):
        for picked in torch.randperm(1200).split(32):
            loss = nn.functional.cross_entropy(model(pad([rows[i] for i in picked])), labels[picked])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    alone, padded = model(pad(test_rows)).softmax(1), model(pad(test_rows, extra=25)).softmax(1)
accuracy = float((alone.argmax(1) == test_labels).float().mean())
score = -float((alone - padded).abs().mean())  # more padding should change nothing
learned = score > -1e-4 and accuracy > 0.8
