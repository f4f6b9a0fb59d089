"""Dropout layers sit in front of batch norm: the variance seen in training is not the one at evaluation.

source: https://github.com/neuralint/neuralint (rule "Batchnorm layer should be before the dropout")
catalogue: neuralint
field: regression
cause: norm-misplaced
observable: yes
silent: yes
"""
import torch
from torch import nn

import netvitals as nv

x = torch.randn(1400, 10)
y = (torch.sin(x[:, 0] * 1.5) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3]).unsqueeze(1)
x_train, y_train, x_val, y_val = x[:1100], y[:1100], x[1100:], y[1100:]


def stage(n_in, n_out, p=0.5):
    return nn.Sequential(
        nn.Linear(n_in, n_out),
        nn.ReLU(),
        nn.Dropout(p),  # bug
        nn.BatchNorm1d(n_out),
        # fix: nn.Dropout(p),
    )


model = nn.Sequential(stage(10, 128), stage(128, 128), nn.Linear(128, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
mse = nn.MSELoss()
with nv.watch(model, optimizer) as watch:
    for epoch in range(25):
        model.train()
        for rows in torch.randperm(1100).split(50):
            optimizer.zero_grad()
            loss = mse(model(x_train[rows]), y_train[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)
        model.eval()
        with torch.no_grad():
            val_loss = mse(model(x_val), y_val)

score = 1 - float(val_loss / y_val.var())
learned = score > 0.75
