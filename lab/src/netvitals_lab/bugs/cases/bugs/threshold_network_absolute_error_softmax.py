"""Is the number above the threshold? One sigmoid unit, one softmax unit, mean absolute error.

source: https://stackoverflow.com/questions/45442843
catalogue: deepfd
field: toy classification
cause: softmax-over-one-class
observable: yes
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import netvitals as nv

value = torch.rand(1200, 1) * 4 - 2
above = (value > 0.3).float()
train_set, test_set = random_split(TensorDataset(value, above), [1000, 200])
loader = DataLoader(train_set, batch_size=50, shuffle=True)

first, second = nn.Linear(1, 4), nn.Linear(4, 1)
last_activation = nn.Softmax(dim=-1)  # bug
# fix: last_activation = nn.Sigmoid()
model = nn.Sequential(first, nn.Sigmoid(), second, last_activation)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.02)
mae = nn.L1Loss()

with nv.watch(model, optimizer) as watch:
    for epoch in range(25):
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = mae(model(xb), yb)
            loss.backward()
            optimizer.step()
            watch.step(loss)

correct = 0
with torch.no_grad():
    for xb, yb in DataLoader(test_set, batch_size=100):
        correct += ((model(xb) > 0.5).float() == yb).sum().item()
score = correct / len(test_set)
learned = score > 0.94
