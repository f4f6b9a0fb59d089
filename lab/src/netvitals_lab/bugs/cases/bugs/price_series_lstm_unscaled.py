"""An LSTM forecasts a price series around 900; without scaling the gates saturate and it predicts the mean.

source: https://stackoverflow.com/questions/53914450
catalogue: humbatova
field: time series
cause: inputs-not-scaled, targets-not-scaled
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

t = torch.arange(900).float()
series = 900 + 120 * torch.sin(t / 9) + 60 * torch.sin(t / 23) + 6 * torch.randn(900)
# fix: series = (series - series.mean()) / series.std()
window = 16
inputs = series.unfold(0, window, 1)[:-1].unsqueeze(-1)
targets = series[window:].unsqueeze(-1)
cut = 700


class Forecaster(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, x):
        _, (h, _) = self.lstm(x)
        return self.linear(h[-1])


model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = nn.MSELoss()
with nv.watch(model, optimizer) as watch:
    for epoch in range(12):
        for part in torch.randperm(cut).split(35):
            optimizer.zero_grad()
            loss = criterion(model(inputs[part]), targets[part])
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    error = model(inputs[cut:]) - targets[cut:]
    score = 1 - float((error ** 2).mean() / targets[cut:].var())
learned = score > 0.85
