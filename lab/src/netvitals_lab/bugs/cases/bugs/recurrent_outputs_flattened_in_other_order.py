"""LSTM outputs are time first; they are flattened against targets that are batch first.

source: https://github.com/astooke/rlpyt/issues/27 (gDefects4DL rlpyt27)
catalogue: gdefects4dl
field: behaviour cloning with an LSTM policy
cause: layout-mixed
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class MujocoLstmModel(nn.Module):
    def __init__(self, observation_size, hidden_size, action_size):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(observation_size, 32), nn.Tanh())
        self.lstm = nn.LSTM(32, hidden_size)
        self.head = nn.Linear(hidden_size, 2 * action_size)

    def forward(self, observation):
        B, T = observation.shape[:2]
        features = self.mlp(observation.reshape(B * T, -1)).view(B, T, -1)
        lstm_out, _ = self.lstm(features.transpose(0, 1))
        outputs = self.head(lstm_out.reshape(B * T, -1))  # bug
        # fix: outputs = self.head(lstm_out.transpose(0, 1).reshape(B * T, -1))
        mu, log_std = outputs.chunk(2, -1)
        return mu, log_std.clamp(-3, 1)


def demonstrations(n, steps=12):
    """The expert damps the position with a speed it has to work out from two positions."""
    position = torch.cumsum(torch.randn(n, steps, 2) * 0.3, 1) + torch.randn(n, 1, 2)
    speed = torch.diff(position, dim=1, prepend=position[:, :1])
    return position, -position - 0.5 * speed


observations, actions = demonstrations(600)
test_observations, test_actions = demonstrations(200)
model = MujocoLstmModel(2, 48, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(15):
        for rows in torch.randperm(600).split(24):
            mu, log_std = model(observations[rows])
            target = actions[rows].reshape(-1, 2)
            loss = (0.5 * ((target - mu) / log_std.exp()) ** 2 + log_std).sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    mu, _ = model(test_observations)
    target = test_actions.reshape(-1, 2)
    score = 1 - float((mu - target).square().sum() / (target - target.mean(0)).square().sum())
learned = score > 0.8
