"""Driving from video with an LSTM: file names are shuffled first and cut into sequences afterwards.

source: https://github.com/driving-behavior/DBNet/issues/6
catalogue: github
field: behaviour cloning (driving video)
cause: layout-mixed, labels-wrong
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

STEPS = 8


def drive(length=4000):
    """What the camera sees is where the lane is; the wheel answers to how fast it moves."""
    t = torch.arange(length) * 0.05
    lane = (t * 1.3).sin() + 0.6 * (t * 2.9 + 1).sin() + 0.2 * torch.randn(length).cumsum(0) / 20
    speed = 20 * (lane - lane.roll(2)) / 2
    camera = torch.stack([lane, lane.pow(2), (3 * lane).sin()], 1) + 0.005 * torch.randn(length, 3)
    return camera[2:], speed[2:].unsqueeze(1)


def sequences(frames, wheel):
    n = len(frames) // STEPS * STEPS
    return frames[:n].reshape(-1, STEPS, 3), wheel[:n].reshape(-1, STEPS, 1)[:, -1]


frames, wheel = drive()
test_x, test_y = sequences(*drive(1600))
order = torch.randperm(len(frames))  # bug
frames, wheel = frames[order], wheel[order]  # bug
train_x, train_y = sequences(frames, wheel)


class Driver(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye = nn.Sequential(nn.Linear(3, 24), nn.ReLU())
        self.lstm = nn.LSTM(24, 32, batch_first=True)
        self.wheel = nn.Linear(32, 1)

    def forward(self, x):
        return self.wheel(self.lstm(self.eye(x))[0][:, -1])


model = Driver()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(40):
        for i in torch.randperm(len(train_x)).split(32):
            loss = (model(train_x[i]) - train_y[i]).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = 1 - float((model(test_x) - test_y).pow(2).mean() / test_y.var())
learned = score > 0.5
