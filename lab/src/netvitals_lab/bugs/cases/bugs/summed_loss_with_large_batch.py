"""Logistic regression whose cost is summed over a batch of 500 instead of averaged.

source: https://github.com/aymericdamien/TensorFlow-Examples/issues/10 (gDefects4DL tensorflow-examples10, Defects4DL Fault1)
catalogue: gdefects4dl
field: logistic regression
cause: reduction-wrong
observable: yes
"""
import torch
from sklearn.datasets import load_digits

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)

learning_rate = 0.5
training_epochs = 100
batch_size = 500


class LogisticRegression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.W = torch.nn.Parameter(torch.zeros(64, 10))
        self.b = torch.nn.Parameter(torch.zeros(10))

    def forward(self, x):
        return torch.log_softmax(x @ self.W + self.b, dim=1)


model = LogisticRegression()
optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
with nv.watch(model, optimizer) as watch:
    for epoch in range(training_epochs):
        avg_cost = 0.0
        for rows in torch.randperm(1500).split(batch_size):
            picked = model(x[rows])[torch.arange(len(rows)), y[rows]]
            cost = -picked.sum()  # bug
            # fix: cost = -picked.mean()
            optimizer.zero_grad()
            cost.backward()
            optimizer.step()
            watch.step(cost)
            avg_cost += cost.item() / 3

with torch.no_grad():
    log_prob = model(x[1500:])
    score = -float(torch.nn.functional.nll_loss(log_prob, y[1500:]))
learned = score > -0.6
