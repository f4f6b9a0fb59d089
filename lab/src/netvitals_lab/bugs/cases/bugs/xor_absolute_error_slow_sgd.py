"""XOR with sigmoid units, mean absolute error and SGD with lr 0.05: outputs stay near a half.

source: https://stackoverflow.com/questions/31556268
catalogue: deepfd
field: toy classification
cause: lr-too-low, loss-mismatch
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

train_data = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
label = torch.tensor([[0.0], [1.0], [0.0], [1.0]])

model = nn.Sequential(nn.Linear(2, 8), nn.Sigmoid(), nn.Linear(8, 1), nn.Sigmoid())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.11, nesterov=True)  # bug
loss_fn = nn.L1Loss()  # bug
# fix: optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
# fix: loss_fn = nn.BCELoss()

with nv.watch(model, optimizer) as watch:
    for epoch in range(600):
        prediction = model(train_data)
        loss = loss_fn(prediction, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    score = -float((model(train_data) - label).abs().max())
learned = score > -0.2
