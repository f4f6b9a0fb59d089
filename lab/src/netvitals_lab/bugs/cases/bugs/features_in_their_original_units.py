"""Regression on raw measurements of very different units, without normalising inputs or output.

source: https://theorangeduck.com/page/neural-network-not-working (You Forgot to Normalize Your Data)
catalogue: blog
field: tabular regression
cause: inputs-not-scaled
observable: yes
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

n = 1200
area = 50 + 150 * torch.rand(n)  # square metres
year = torch.randint(1950, 2021, (n,)).float()
income = 20000 + 60000 * torch.rand(n)
latitude = 47 + 0.5 * torch.rand(n)
x = torch.stack([area, year, income, latitude], 1)
price = 2 * (area - 125) / 43 + ((year - 1985) / 20) ** 2 + (income - 50000) / 17000 * (latitude - 47.25) / 0.14
y = ((price - price.mean()) / price.std()).unsqueeze(1)
# fix: x = (x - x.mean(0)) / x.std(0)

model = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loader = DataLoader(TensorDataset(x[:1000], y[:1000]), batch_size=32, shuffle=True)
with nv.watch(model, optimizer) as watch:
    for epoch in range(20):
        for features, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(features), target)
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = 1 - float((model(x[1000:]) - y[1000:]).pow(2).mean() / y[1000:].var())
learned = score > 0.85
