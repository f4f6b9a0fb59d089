"""An LSTM reads token sequences like film reviews; with plain SGD at 0.001 the loss stays at log 2.

source: https://github.com/shiningrain/AUTOTRAINER (problem SC, IMDB dataset)
catalogue: autotrainer
field: text classification
cause: lr-too-low, optimizer-choice
observable: yes
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

VOCAB, LENGTH = 100, 20
reviews = torch.randint(0, VOCAB, (1200, LENGTH))
good, bad = (reviews < 10).sum(1), (reviews >= 90).sum(1)
keep = good != bad
reviews, sentiment = reviews[keep], (good > bad)[keep].float()
cut = int(0.8 * len(reviews))
train = DataLoader(TensorDataset(reviews[:cut], sentiment[:cut]), batch_size=32, shuffle=True)


class SentimentLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 16)
        self.lstm = nn.LSTM(16, 32, batch_first=True)
        self.dense = nn.Linear(32, 1)

    def forward(self, tokens):
        states, _ = self.lstm(self.embedding(tokens))
        return self.dense(states[:, -1]).squeeze(1)


model = SentimentLstm()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)  # bug
# fix: optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = nn.BCEWithLogitsLoss()
with nv.watch(model, optimizer) as watch:
    for epoch in range(10):
        for tokens, label in train:
            optimizer.zero_grad()
            loss = criterion(model(tokens), label)
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float(((model(reviews[cut:]) > 0).float() == sentiment[cut:]).float().mean())
learned = score > 0.8
