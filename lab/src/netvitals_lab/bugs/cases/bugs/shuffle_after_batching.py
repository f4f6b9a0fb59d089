"""dataset.batch(n).shuffle(): whole batches of one class each change places, their members never mix.

source: https://stackoverflow.com/questions/44124376
catalogue: humbatova
field: image classification
cause: not-shuffled
observable: yes
"""
import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
by_class = np.argsort(digits.target, kind="stable")  # the files lie in one folder per class
images = torch.tensor(digits.data[by_class] / 16).float()
labels = torch.tensor(digits.target[by_class])
hold_out = torch.zeros(len(labels), dtype=torch.bool)
hold_out[::6] = True
x, y = images[~hold_out], labels[~hold_out]


def batches(batch_size=36):
    chunks = list(torch.arange(len(y)).split(batch_size))  # bug
    np.random.shuffle(chunks)  # bug
    # fix: chunks = torch.randperm(len(y)).split(batch_size)
    yield from chunks


model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
with nv.watch(model, sgd) as watch:
    for epoch in range(8):
        model.train()
        for rows in batches():
            sgd.zero_grad()
            loss = F.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            sgd.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    score = float((model(images[hold_out]).argmax(1) == labels[hold_out]).float().mean())
learned = score > 0.92
