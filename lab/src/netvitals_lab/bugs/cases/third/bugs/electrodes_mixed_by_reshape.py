"""EEG of shape (trial, time, electrode) is reshaped, not transposed, to (trial, electrode, time).

source: https://github.com/AniketRajpoot/Emotion-Recognition-Transformers/issues/4
catalogue: github
field: EEG decoding
cause: layout-mixed
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

ELECTRODES, SAMPLES = 10, 96
t = torch.arange(SAMPLES) / 96.0


def trials(n):
    """Three states of mind: the rhythm is strong over the front, the back, or both in turn; any phase and speed."""
    y = torch.randint(0, 3, (n,))
    phase, rate = 6.28 * torch.rand(n, 1, 1), 9 + 3 * torch.rand(n, 1, 1)
    wave = (6.2832 * rate * t.view(1, -1, 1) + phase).sin()
    place = torch.linspace(1, 0, ELECTRODES)
    strength = torch.stack([place, 1 - place, 0.5 * torch.ones(ELECTRODES)])[y].unsqueeze(1)
    return strength * wave + 0.8 * torch.randn(n, SAMPLES, ELECTRODES), y


def prepare(x):
    return x.reshape(-1, ELECTRODES, SAMPLES)  # bug
    # fix: return x.transpose(1, 2)


class EEGNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.temporal = nn.Conv1d(ELECTRODES, 4 * ELECTRODES, 15, padding=7, groups=ELECTRODES)
        self.power = nn.BatchNorm1d(4 * ELECTRODES)
        self.head = nn.Linear(4 * ELECTRODES, 3)

    def forward(self, x):
        return self.head(self.power(self.temporal(x).pow(2).mean(2).clamp(min=1e-6).log()))


x_train, y_train = trials(600)
model = EEGNet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
with nv.watch(model, optimizer) as watch:
    for epoch in range(15):
        for i in torch.randperm(600).split(40):
            loss = F.cross_entropy(model(prepare(x_train[i])), y_train[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
x, y = trials(500)
score = float((model(prepare(x)).argmax(1) == y).float().mean())
learned = score > 0.8
