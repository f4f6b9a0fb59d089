"""A bag-of-words encoder divides by the number of words; an empty text makes the gradients NaN.

source: https://github.com/allenai/allennlp/issues/4612 (gDefects4DL allennlp4612)
catalogue: gdefects4dl
field: text classification
cause: bad-values
observable: yes
"""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader

import netvitals as nv

topics = {0: range(1, 20), 1: range(20, 40), 2: range(40, 60)}


def write_text():
    topic = random.randrange(3)
    length = random.randrange(0, 30)  # somebody left the field empty now and then
    words = [random.choice(topics[topic]) if random.random() < 0.5 else random.randrange(1, 60) for _ in range(length)]
    return words, topic


def collate(rows):
    longest = max(len(words) for words, _ in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    for row, (words, _) in enumerate(rows):
        ids[row, :len(words)] = torch.tensor(words)
    return ids, torch.tensor([topic for _, topic in rows])


class BagOfEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(60, 24)
        self.attention = nn.Linear(24, 1)
        self.classifier = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, ids):
        mask = (ids > 0).float()
        vectors = self.embedding(ids)
        weights = torch.exp(torch.tanh(self.attention(vectors).squeeze(-1))) * mask
        weights = weights / weights.sum(1, keepdim=True)  # bug
        # fix: weights = weights / weights.sum(1, keepdim=True).clamp_min(1e-13)
        return self.classifier((weights.unsqueeze(-1) * vectors).sum(1))


texts = [write_text() for _ in range(1500)]
held_out = collate(texts[1200:])
model = BagOfEmbeddings()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(10):
        for ids, labels in DataLoader(texts[:1200], batch_size=32, shuffle=True, collate_fn=collate):
            loss = nn.functional.cross_entropy(model(ids), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    ids, labels = held_out
    score = float((model(ids).argmax(1) == labels).float().mean())
learned = score > 0.75
