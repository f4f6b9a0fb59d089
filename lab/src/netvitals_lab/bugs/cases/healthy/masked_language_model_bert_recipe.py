"""Masked language model with the 80/10/10 rule of BERT.

source: https://arxiv.org/abs/1810.04805
field: masked language model
unusual: most labels are -100; a tenth of the inputs is replaced by random words, a tenth is left as it is
"""
import torch
from torch import nn

import netvitals as nv

MASK, words, length = 1, 24, 12


def sentences(n):
    start = torch.randint(0, 22, (n, 1))
    return (start + torch.arange(length)) % 22 + 2


def mask_tokens(tokens):
    labels = tokens.clone()
    chosen = torch.rand(tokens.shape) < 0.15
    labels[~chosen] = -100
    masked = chosen & (torch.rand(tokens.shape) < 0.8)
    swapped = chosen & ~masked & (torch.rand(tokens.shape) < 0.5)
    inputs = tokens.masked_fill(masked, MASK)
    return torch.where(swapped, torch.randint(2, words, tokens.shape), inputs), labels


class Bert(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.word, self.position = nn.Embedding(words, dim), nn.Embedding(length, dim)
        self.norm = nn.LayerNorm(dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.transform = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
        self.decoder = nn.Linear(dim, words)

    def forward(self, ids):
        h = self.encoder(self.norm(self.word(ids) + self.position(torch.arange(length))))
        return self.decoder(self.transform(h))


model = Bert()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=350)
with nv.watch(model, optimizer) as watch:
    model.train()
    for step in range(350):
        ids, labels = mask_tokens(sentences(32))
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        watch.step(loss)

model.eval()
with torch.no_grad():
    ids, labels = mask_tokens(sentences(400))
    wanted = labels != -100
    score = float((model(ids).argmax(-1) == labels)[wanted].float().mean())
learned = score > 0.7
