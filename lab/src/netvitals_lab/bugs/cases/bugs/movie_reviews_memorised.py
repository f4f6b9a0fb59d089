"""Bag-of-words review classifier with wide layers and no dropout: perfect on training, the validation loss climbs.

source: https://github.com/ArabelaTso/DeepFD (benchmark entry MovieReviews_Keras)
catalogue: deepfd
field: text classification
cause: overfitting
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

VOCAB, TRAIN, VAL = 600, 500, 500
polarity = torch.zeros(VOCAB)
polarity[:40], polarity[40:80] = 0.7, -0.7


def reviews(n):
    y = torch.randint(0, 2, (n, 1)).float()
    rate = (torch.full((VOCAB,), -3.0) + polarity * (2 * y - 1)).exp()
    return (torch.rand(n, VOCAB) < rate).float(), y


x_train, y_train = reviews(TRAIN)
x_val, y_val = reviews(VAL)
model = nn.Sequential(
    # fix: nn.Dropout(0.5),
    nn.Linear(VOCAB, 64), nn.ReLU(),
    # fix: nn.Dropout(0.5),
    nn.Linear(64, 64), nn.ReLU(),
    nn.Linear(64, 1),
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
epochs = 40  # bug
# fix: epochs = 10
with nv.watch(model, optimizer) as watch:
    for epoch in range(epochs):
        model.train()
        for rows in torch.randperm(TRAIN).split(32):
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(x_train[rows]), y_train[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)
        model.eval()
        with torch.no_grad():
            val_loss = F.binary_cross_entropy_with_logits(model(x_val), y_val)

score = -float(val_loss)
learned = score > -0.6
