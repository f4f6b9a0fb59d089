"""Sentence classifier on padded batches: the final state of the GRU is the one after dozens of padding tokens.

source: https://github.com/pytorch/tutorials/issues/3643
catalogue: github
field: text classification
cause: ignore-index
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import netvitals as nv


def corpus(n, longest=60):
    x, lengths = torch.zeros(n, longest, dtype=torch.long), torch.randint(3, 9, (n,))
    for i, length in enumerate(lengths):
        x[i, :length] = torch.randint(1, 30, (int(length),))
    return x, lengths, x[:, 0] // 10  # the first word is the topic


class EncoderRNN(nn.Module):
    def __init__(self, hidden_size=32):
        super().__init__()
        self.embedding = nn.Embedding(30, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)
        self.out = nn.Linear(hidden_size, 3)

    def forward(self, x, lengths):
        embedded = self.embedding(x)
        _, hidden = self.gru(embedded)  # bug
        # fix: _, hidden = self.gru(pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False))
        return self.out(hidden[-1])


train, test = corpus(1500), corpus(400)
model = EncoderRNN()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(5):
        for i in torch.randperm(1500).split(50):
            x, lengths, y = (part[i] for part in train)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x, lengths), y)
            loss.backward()
            optimizer.step()
            watch.step(loss)

x, lengths, y = test
score = float((model(x, lengths).argmax(1) == y).float().mean())
learned = score > 0.85
