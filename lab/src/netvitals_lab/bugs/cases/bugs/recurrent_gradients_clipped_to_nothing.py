"""The clip value of an RNN is set to 0.001: with SGD nearly nothing is left of every gradient.

source: https://github.com/rwth-i6/returnn/commit/8ee4cc03
catalogue: humbatova
field: sequence labelling
cause: clipping-misuse
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

gradient_clip = 0.001  # bug
# fix: gradient_clip = 1.0


def sequences(n, length=15):
    x = torch.randn(n, length, 3)
    state = torch.cumsum(x[:, :, 0], dim=1) / 2
    return x, ((state > 0) ^ (x[:, :, 1] > 1.2)).long()


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 32, batch_first=True)
        self.tag = nn.Linear(32, 2)

    def forward(self, x):
        return self.tag(self.rnn(x)[0])


tagger = Tagger()
optimizer = torch.optim.SGD(tagger.parameters(), lr=0.3, momentum=0.9)
criterion = nn.CrossEntropyLoss()
with nv.watch(tagger, optimizer) as watch:
    for step in range(300):
        x, tags = sequences(32)
        logits = tagger(x)
        loss = criterion(logits.reshape(-1, 2), tags.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(tagger.parameters(), gradient_clip)
        optimizer.step()
        watch.step(loss)

x, tags = sequences(300)
with torch.no_grad():
    score = float((tagger(x).argmax(-1) == tags).float().mean())
learned = score > 0.88
