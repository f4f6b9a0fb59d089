"""Every parameter of a tanh network is set to zero 'to start neutral': only the last bias ever moves.

source: https://github.com/neuralint/neuralint (example TF_lenet_zeros_init)
catalogue: neuralint
field: tabular classification
cause: init-symmetric
observable: yes
"""
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import netvitals as nv

data = load_breast_cancer()
x = torch.tensor((data.data - data.data.mean(0)) / data.data.std(0), dtype=torch.float32)
y = torch.tensor(data.target, dtype=torch.float32).unsqueeze(1)


def initialise(module):
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.weight)  # bug
        # fix: nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


model = nn.Sequential(nn.Linear(30, 24), nn.Tanh(), nn.Linear(24, 12), nn.Tanh(), nn.Linear(12, 1))
model.apply(initialise)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.BCEWithLogitsLoss()
with nv.watch(model, optimizer) as watch:
    for epoch in range(10):
        for rows in torch.randperm(450).split(30):
            optimizer.zero_grad()
            loss = criterion(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float(((model(x[450:]) > 0).float() == y[450:]).float().mean())
learned = score > 0.9
