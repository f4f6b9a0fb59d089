"""After the first test the model stays in eval mode: dropout is off for the rest and batch norm keeps its first statistics.

source: https://github.com/tk-rusch/coRNN/issues/1
catalogue: github
field: image classification
cause: batchnorm-train-eval
observable: yes
silent: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import netvitals as nv

digits = load_digits()
x_train, x_test, y_train, y_test = train_test_split(digits.data / 16, digits.target, test_size=0.3)
x_train, x_test = torch.tensor(x_train).float(), torch.tensor(x_test).float()
y_train, y_test = torch.tensor(y_train), torch.tensor(y_test)

model = nn.Sequential(
    nn.Linear(64, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Dropout(0.3),
    nn.Linear(96, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Dropout(0.3),
    nn.Linear(96, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)


def test():
    model.eval()
    with torch.no_grad():
        return float((model(x_test).argmax(1) == y_test).float().mean())


model.train()
in_training_mode = []
with nv.watch(model, optimizer) as watch:
    for epoch in range(12):
        # fix: model.train()
        for i in torch.randperm(len(x_train)).split(50):
            in_training_mode.append(model.training)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x_train[i]), y_train[i])
            loss.backward()
            optimizer.step()
            watch.step(loss)
        accuracy = test()

score = accuracy * sum(in_training_mode) / len(in_training_mode)
learned = score > 0.9
