"""Twelve tags, several of them true at once, trained with categorical instead of binary cross-entropy.

source: https://stackoverflow.com/questions/58609115
catalogue: deepfd
field: multi-label classification
cause: loss-mismatch
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

TAGS = 12
projection = torch.randn(16, TAGS)


def draw(n):
    x = torch.randn(n, 16)
    return x, (x @ projection / 4 > 0.2).float()


x_train, y_train = draw(2000)
x_test, y_test = draw(500)
classifier = nn.Sequential(nn.Linear(16, 69), nn.ReLU(), nn.Linear(69, 69), nn.ReLU(), nn.Linear(69, TAGS))
optimizer = torch.optim.Adam(classifier.parameters(), lr=0.002)
loss_function = nn.CrossEntropyLoss()  # bug
# fix: loss_function = nn.BCEWithLogitsLoss()

with nv.watch(classifier, optimizer) as watch:
    for epoch in range(8):
        start = 0
        order = torch.randperm(len(x_train))
        while start < len(order):
            part = order[start:start + 50]
            start += 50
            loss = loss_function(classifier(x_train[part]), y_train[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    tags = torch.sigmoid(classifier(x_test)) > 0.5
    tp = (tags & y_test.bool()).sum()
    score = float(2 * tp / (tags.sum() + y_test.sum()))
learned = score > 0.9
