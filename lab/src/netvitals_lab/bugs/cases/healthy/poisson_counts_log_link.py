"""Count data with a log link: the network gives the log rate and is trained by Poisson likelihood.

source: https://pytorch.org/docs/stable/generated/torch.nn.PoissonNLLLoss.html
field: Poisson regression
unusual: integer targets, negative loss values, loss that keeps a large irreducible part
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv


def shop_days(n):
    weather, weekday, price = torch.randn(n), torch.randint(0, 7, (n,)), torch.rand(n)
    log_rate = 1.0 + 0.5 * weather - 1.2 * price + 0.8 * (weekday >= 5)
    features = torch.cat([weather[:, None], price[:, None] - 0.5, nn.functional.one_hot(weekday, 7)], dim=1)
    return features, torch.poisson(log_rate.exp()), log_rate


features, visits, _ = shop_days(3000)
model = nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.Linear(32, 1), nn.Flatten(0))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
criterion = nn.PoissonNLLLoss(log_input=True)
loader = DataLoader(TensorDataset(features, visits), batch_size=100, shuffle=True)
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = criterion(model(xb), yb)
            loss.backward()
            optimizer.step()
            watch.step(loss)

features, _, truth = shop_days(1000)
with torch.no_grad():
    score = 1 - float((model(features) - truth).pow(2).mean() / truth.var())
learned = score > 0.9
