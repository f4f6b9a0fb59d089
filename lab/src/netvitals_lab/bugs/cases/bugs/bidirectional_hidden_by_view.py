"""Sentence VAE: the final states (2, batch, hidden) of a bidirectional GRU are flattened with view, which mixes sentences.

source: https://github.com/timbmg/Sentence-VAE/issues/15
catalogue: github
field: text (sentence encoder)
cause: layout-mixed
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

VOCAB, HIDDEN = 12, 32


class SentenceEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 16)
        self.encoder_rnn = nn.GRU(16, HIDDEN, bidirectional=True, batch_first=True)
        self.hidden2mean = nn.Linear(2 * HIDDEN, 16)
        self.classify = nn.Sequential(nn.ReLU(), nn.Linear(16, 3))

    def forward(self, sequence):
        batch_size = sequence.size(0)
        _, hidden = self.encoder_rnn(self.embedding(sequence))
        hidden = hidden.view(batch_size, 2 * HIDDEN)  # bug
        # fix: hidden = hidden.transpose(0, 1).reshape(batch_size, 2 * HIDDEN)
        return self.classify(self.hidden2mean(hidden))


def sentences(n):
    x = torch.randint(0, VOCAB, (n, 8))
    return x, (x[:, 0] // 4 + x[:, -1] // 4) % 3  # decided by the first and the last word


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
        self.criterion = nn.CrossEntropyLoss()

    def fit(self, steps):
        with nv.watch(self.model, self.optimizer) as watch:
            for _ in range(steps):
                x, y = sentences(64)
                loss = self.criterion(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                watch.step(loss)
        return watch


trainer = Trainer(SentenceEncoder())
watch = trainer.fit(500)
x, y = sentences(600)
score = float((trainer.model(x).argmax(1) == y).float().mean())
learned = score > 0.9
