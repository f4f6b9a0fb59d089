"""Batches are (batch, time, feature) but the LSTM lacks batch_first: it walks over the examples of the batch.

source: https://pypi.org/project/torchtest2/ (bug gallery: an LSTM that treats the batch as time)
catalogue: torchtest
field: sequence classification
cause: layout-mixed
observable: yes
"""
import torch
import torch.nn as nn

import netvitals as nv


def make(n, steps=12):
    x = torch.randn(n, steps, 2)
    first, last = x[:, :4, 0].mean(1), x[:, -4:, 0].mean(1)
    return x, (first > last).long()


class SequenceClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(2, 32)  # bug
        # fix: self.lstm = nn.LSTM(2, 32, batch_first=True)
        self.fc = nn.Linear(32, 2)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(out[:, -1])


model = SequenceClassifier()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
criterion = nn.CrossEntropyLoss()
x_train, y_train = make(1600)
x_test, y_test = make(400)
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        for rows in torch.randperm(len(x_train)).split(32):
            optimizer.zero_grad()
            loss = criterion(model(x_train[rows]), y_train[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float((model(x_test).argmax(1) == y_test).float().mean())
learned = score > 0.8
