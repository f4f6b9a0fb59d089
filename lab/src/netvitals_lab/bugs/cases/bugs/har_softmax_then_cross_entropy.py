"""Activity recognition from sensors: F.softmax in forward and nn.CrossEntropyLoss in the loop.

source: https://github.com/jindongwang/Deep-learning-activity-recognition/issues/10
catalogue: github
field: activity recognition
cause: double-softmax
observable: yes
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

import netvitals as nv

frequencies = torch.tensor([0.02, 0.05, 0.09, 0.14, 0.2, 0.28])


def recordings(n, length=64):
    y = torch.randint(0, 6, (n,))
    t = torch.arange(length).float()
    phase = torch.rand(n, 9, 1) * 6.28
    x = torch.sin(2 * torch.pi * frequencies[y][:, None, None] * t + phase) + 0.8 * torch.randn(n, 9, length)
    return x, y


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv1d(9, 16, 9), nn.ReLU(), nn.MaxPool1d(2))
        self.conv2 = nn.Sequential(nn.Conv1d(16, 24, 9), nn.ReLU(), nn.MaxPool1d(2))
        self.fc1, self.fc2 = nn.Linear(24 * 10, 64), nn.Linear(64, 6)

    def forward(self, x):
        out = self.conv2(self.conv1(x)).flatten(1)
        out = self.fc2(F.relu(self.fc1(out)))
        return F.softmax(out, 1)  # bug
        # fix: return out


model = Network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
criterion = nn.CrossEntropyLoss()
x_train, y_train = recordings(1000)
with nv.watch(model, optimizer) as watch:
    for e in range(10):
        for i in torch.randperm(1000).split(64):
            output = model(x_train[i])
            loss = criterion(output, y_train[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

x, y = recordings(500)
score = float((model(x).argmax(1) == y).float().mean())
learned = score > 0.8
