"""Rows of ones against rows of zeros, a softmax on the one output and binary cross-entropy.

source: https://stackoverflow.com/questions/31880720
catalogue: deeplocalize
field: toy classification
cause: softmax-over-one-class
observable: yes
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

X_train = torch.cat([torch.ones(1000, 128), torch.zeros(1000, 128)])
Y_train = torch.cat([torch.ones(1000, 1), torch.zeros(1000, 1)])
loader = DataLoader(TensorDataset(X_train, Y_train), batch_size=32, shuffle=True)

model = nn.Sequential()
for i, (rows, cols) in enumerate([(128, 50), (50, 50)]):
    model.add_module(f"dense{i}", nn.Linear(rows, cols))
    model.add_module(f"relu{i}", nn.ReLU())
    model.add_module(f"dropout{i}", nn.Dropout(0.2))
model.add_module("last", nn.Linear(50, 1))
model.add_module("activation", nn.Softmax(dim=1))  # bug
# fix: model.add_module("activation", nn.Sigmoid())

rms = torch.optim.RMSprop(model.parameters(), lr=0.001)
bce = nn.BCELoss()
with nv.watch(model, rms) as watch:
    for epoch in range(3):
        model.train()
        for xb, yb in loader:
            rms.zero_grad()
            loss = bce(model(xb), yb)
            loss.backward()
            rms.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    score = float(((model(X_train) > 0.5).float() == Y_train).float().mean())
learned = score > 0.98
