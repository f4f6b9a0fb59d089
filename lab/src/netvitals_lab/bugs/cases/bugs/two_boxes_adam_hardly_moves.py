"""Two separable boxes of points, a two-neuron sigmoid network, and a rate too low for the number of epochs.

source: https://stackoverflow.com/questions/50306988
catalogue: deepfd
field: toy classification
cause: lr-too-low
observable: yes
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

size = 200
class_1 = np.random.uniform(0.2, 0.4, size=(size, 2))
class_2 = np.random.uniform(0.5, 0.7, size=(size, 2))
x_train = torch.tensor(np.concatenate([class_1, class_2]), dtype=torch.float32)
y_train = torch.tensor([0] * size + [1] * size)


class TwoNeurons(nn.Module):
    def __init__(self, nr_feats, nr_classes):
        super().__init__()
        self.hidden = nn.Linear(nr_feats, 2)
        self.out = nn.Linear(2, nr_classes)

    def forward(self, x):
        return self.out(torch.sigmoid(self.hidden(x)))


model = TwoNeurons(2, 2)
opt = torch.optim.Adam(model.parameters(), lr=0.001)  # bug
# fix: opt = torch.optim.Adam(model.parameters(), lr=0.05)
with nv.watch(model, opt) as watch:
    for epoch in range(20):
        for idx in torch.randperm(2 * size).split(32):
            opt.zero_grad()
            loss = F.cross_entropy(model(x_train[idx]), y_train[idx])
            loss.backward()
            opt.step()
            watch.step(loss)

with torch.no_grad():
    logits = model(x_train)
    accuracy = float((logits.argmax(1) == y_train).float().mean())
    score = -float(F.cross_entropy(logits, y_train))
learned = score > -0.3 and accuracy > 0.97
