"""Tanh network for house prices: land sizes, distances and prices in dollars go in as they are.

source: https://github.com/ArabelaTso/DeepFD (benchmark entry kaggle-melbourne_properties)
catalogue: deepfd
field: regression
cause: targets-not-scaled, saturated-units
observable: yes
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

n = 1600
rooms = np.random.randint(1, 6, n)
distance = np.random.gamma(4, 3, n)
land = np.random.lognormal(6, 0.5, n)
year = np.random.randint(1880, 2018, n)
price = 1e5 * (3 + 2.5 * rooms - 0.25 * distance + land / 300 + 0.3 * np.random.randn(n))
features = np.stack([rooms, distance, land, year], 1).astype(np.float32)
# fix: features = (features - features.mean(0)) / features.std(0)
# fix: price = (price - price.mean()) / price.std()
X, y = torch.tensor(features), torch.tensor(price, dtype=torch.float32).unsqueeze(1)
train_loader = DataLoader(TensorDataset(X[:1280], y[:1280]), batch_size=32, shuffle=True)


def melbourne_model(num_features, width=20):
    layers = [nn.Linear(num_features, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)]
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight)
    return nn.Sequential(*layers)


model = melbourne_model(X.shape[1])
adam = torch.optim.Adam(model.parameters(), lr=0.005)
with nv.watch(model, adam) as watch:
    for epoch in range(15):
        for xb, yb in train_loader:
            adam.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            adam.step()
            watch.step(loss)

with torch.no_grad():
    error = model(X[1280:]) - y[1280:]
    score = 1 - float((error ** 2).mean() / y[1280:].var())
learned = score > 0.9
