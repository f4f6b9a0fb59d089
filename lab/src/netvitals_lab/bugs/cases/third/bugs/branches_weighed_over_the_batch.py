"""Selective kernels: weights of shape (branch, batch, channel) get their softmax over dim 1, the batch.

source: https://github.com/xmu-xiaoma666/External-Attention-pytorch/issues/18
catalogue: github
field: selective kernels (signal classification)
cause: softmax-wrong-dimension
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

t = torch.arange(64) / 64.0


def signals(n):
    """Slow or quick oscillations, each rising or falling in strength."""
    y = torch.randint(0, 4, (n,))
    rate = torch.where(y % 2 == 0, 3.0, 12.0).unsqueeze(1) * (0.8 + 0.4 * torch.rand(n, 1))
    envelope = torch.where((y < 2).unsqueeze(1), t, 1 - t)
    return (envelope * (6.2832 * rate * t + 6 * torch.rand(n, 1)).sin() + 0.25 * torch.randn(n, 64)).unsqueeze(1), y


class SKAttention(nn.Module):
    def __init__(self, channels=24, kernels=(3, 7, 15)):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(channels, channels, k, padding=k // 2) for k in kernels)
        self.fc = nn.Linear(channels, 12)
        self.fcs = nn.ModuleList(nn.Linear(12, channels) for _ in kernels)
        self.softmax = nn.Softmax(dim=1)  # bug
        # fix: self.softmax = nn.Softmax(dim=0)

    def forward(self, x):
        feats = torch.stack([F.relu(conv(x)) for conv in self.convs])  # branch, batch, channel, time
        z = self.fc(feats.sum(0).mean(2))
        weights = self.softmax(torch.stack([fc(z) for fc in self.fcs]))
        return (weights.unsqueeze(3) * feats).sum(0)


net = nn.Sequential(nn.Conv1d(1, 24, 5, padding=2), nn.ReLU(), SKAttention(), nn.AvgPool1d(8), nn.Flatten(), nn.Linear(192, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(300):
        x, y = signals(48)
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():  # one signal at a time, as in use
    x, y = signals(400)
    guess = torch.cat([net(one.unsqueeze(0)).argmax(1) for one in x])
score = float((guess == y).float().mean())
learned = score > 0.94
