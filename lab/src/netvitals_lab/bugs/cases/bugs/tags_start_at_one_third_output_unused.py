"""The annotation tool numbers its two tags 1 and 2; the tagger got three outputs and its first one is never a target.

source: https://stackoverflow.com/questions/59282996
catalogue: deepfd
field: sequence labelling
cause: labels-wrong
observable: yes
"""
import torch
import torch.nn as nn

import netvitals as nv


def tracks(n, steps=20):
    """Signals with two kinds of sections; the annotation tool calls them 1 and 2."""
    kind = torch.cumsum((torch.rand(n, steps) < 0.15).long(), dim=1) % 2
    x = torch.randn(n, steps, 3)
    x[:, :, 0] += 1.5 * kind
    return x, kind + 1


class Tagger(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.lstm = nn.LSTM(3, 24, batch_first=True, bidirectional=True)
        self.out = nn.Linear(48, tags)

    def forward(self, x):
        return self.out(self.lstm(x)[0])


x, labels = tracks(400)
model = Tagger(3)  # bug
# fix: model = Tagger(2)
# fix: labels = labels - 1
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
criterion = nn.CrossEntropyLoss()
with nv.watch(model, optimizer) as watch:
    for epoch in range(10):
        for rows in torch.randperm(400).split(20):
            logits = model(x[rows])
            loss = criterion(logits.flatten(0, 1), labels[rows].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

x, labels = tracks(200)
with torch.no_grad():
    predicted = model(x).argmax(-1)
score = float((predicted == labels - 1).float().mean())
learned = score > 0.8
