"""Someone wondered why the gradient of a trained binary classifier is zero: softmax over a single unit.

source: https://stackoverflow.com/questions/45337371
catalogue: deepfd
field: tabular classification
cause: softmax-over-one-class
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn, optim

import netvitals as nv

num_features = 5
rule = torch.randn(num_features)


def sample(count):
    features = torch.rand(count, num_features) - 0.5
    return features, (features @ rule > 0).float().unsqueeze(1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense_1 = nn.Linear(num_features, 60)
        self.dense_2 = nn.Linear(60, 50)
        self.dense_3 = nn.Linear(50, 1)

    def forward(self, inputs):
        x = self.dense_1(inputs).relu()
        x = self.dense_2(x).relu()
        return F.softmax(self.dense_3(x), dim=1)  # bug
        # fix: return torch.sigmoid(self.dense_3(x))


model = Model()
optimizer = optim.Adam(model.parameters(), lr=0.002)
with nv.watch(model, optimizer) as watch:
    for iteration in range(300):
        inputs, targets = sample(64)
        loss = F.binary_cross_entropy(model(inputs), targets)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

inputs, targets = sample(1000)
with torch.no_grad():
    score = float(((model(inputs) > 0.5) == targets.bool()).float().mean())
learned = score > 0.92
