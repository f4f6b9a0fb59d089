"""Bidirectional LSTM that predicts the next value at each step: the backward half has already seen the answers.

source: https://discuss.pytorch.org/t/one-layer-bilstm-is-not-learning/175731
catalogue: pytorch-forum
field: forecasting (LSTM)
cause: future-leak
observable: yes
"""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

signal = [0.3]
for _ in range(1200):  # a chaotic series
    signal.append(3.8 * signal[-1] * (1 - signal[-1]))
windows = (torch.tensor(signal) * 2 - 1).unfold(0, 31, 1)
train, test = windows[:900], windows[900:]


class LSTMModel(nn.Module):
    def __init__(self, input_dim=1, hidden_dim=32, output_dim=1):
        super().__init__()
        self.hidden_dim = hidden_dim
        self.directions = 2
        self.lstm = nn.LSTM(input_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(hidden_dim, output_dim)

    def forward(self, x):
        batch, seq_len, _ = x.shape
        out, _ = self.lstm(x)
        out = out.view(batch, seq_len, self.directions, self.hidden_dim)
        out = out[:, :, 0, :] + out[:, :, 1, :]  # bug
        # fix: out = out[:, :, 0, :]
        return self.fc(out)


model = LSTMModel()
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
loader = DataLoader(TensorDataset(train), batch_size=32, shuffle=True)
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        for (w,) in loader:
            x, y = w[:, :-1].unsqueeze(-1), w[:, 1:].unsqueeze(-1)
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():  # only the last prediction is a forecast
    forecast = model(test[:, :-1].unsqueeze(-1))[:, -1, 0]
score = 1 - float(criterion(forecast, test[:, -1]) / test[:, -1].var())
learned = score > 0.9
