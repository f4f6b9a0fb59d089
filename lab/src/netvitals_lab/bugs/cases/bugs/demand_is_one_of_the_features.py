"""Load forecasting: the normalised target was concatenated to the features before the windows were cut, so it is an input.

source: https://github.com/ritikdhame/Electricity_Demand_and_Price_forecasting/issues/1
catalogue: github
field: forecasting (CNN)
cause: label-is-input
observable: yes
"""
import torch
from sklearn.decomposition import PCA
from torch import nn

import netvitals as nv

hours = 1500
t = torch.arange(hours).float()
weather = torch.randn(hours, 6).cumsum(0) * 0.05
weather = torch.cat([weather, torch.sin(2 * torch.pi * t / 24)[:, None], torch.cos(2 * torch.pi * t / 24)[:, None]], 1)
demand = weather[:, 6] + 0.5 * weather[:, 0].roll(2) + 0.7 * torch.randn(hours)
X = torch.tensor(PCA(6).fit_transform(weather.numpy()), dtype=torch.float32)
X = (X - X.mean(0)) / X.std(0)
y_norm = ((demand - demand.mean()) / demand.std()).unsqueeze(1)
data_norm = torch.cat([X, y_norm], 1)  # bug
# fix: data_norm = torch.cat([X, torch.zeros_like(y_norm)], 1)

window = 24
blocks = data_norm.unfold(0, window, 1)  # (n, features, window), ends with the hour that is predicted
targets = y_norm[window - 1 :, 0]
n_train = 1000


class ConvForecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(7, 16, 3), nn.ReLU(), nn.Conv1d(16, 16, 3), nn.ReLU(), nn.Flatten())
        self.dense = nn.Sequential(nn.Linear(16 * 20, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.dense(self.conv(x)).squeeze(1)


model = ConvForecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4)
with nv.watch(model, optimizer) as watch:
    for epoch in range(10):
        for i in torch.randperm(n_train).split(32):
            loss = nn.functional.mse_loss(model(blocks[i]), targets[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():  # a real forecast: the demand of the hour that is predicted is not known yet
    test = blocks[n_train:].clone()
    test[:, 6, -1] = 0
    score = 1 - float((model(test) - targets[n_train:]).pow(2).mean() / targets[n_train:].var())
learned = score > 0.3
