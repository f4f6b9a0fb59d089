"""Some measurements of the table are missing (NaN) and go into the batch: the loss is NaN and so are all weights.

source: https://pypi.org/project/torchtest/ (README, assert_never_nan)
catalogue: torchtest
field: regression
cause: bad-values
observable: yes
"""
import numpy as np
import torch
from sklearn.datasets import load_diabetes
from sklearn.impute import SimpleImputer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

data = load_diabetes()
table = data.data / data.data.std(0)
table[np.random.rand(*table.shape) < 0.002] = np.nan
# fix: table = SimpleImputer(strategy="median").fit_transform(table)
target = (data.target - data.target.mean()) / data.target.std()
x, y = torch.tensor(table).float(), torch.tensor(target).float().unsqueeze(1)

model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
loader = DataLoader(TensorDataset(x[:350], y[:350]), batch_size=16, shuffle=True)
with nv.watch(model, optimizer) as watch:
    for epoch in range(10):
        for xb, yb in loader:
            loss = nn.functional.mse_loss(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

known = ~x[350:].isnan().any(1)
with torch.no_grad():
    error = (model(x[350:][known]) - y[350:][known]).pow(2).mean()
score = 1 - float(error / y[350:][known].var())
learned = score > 0.3
