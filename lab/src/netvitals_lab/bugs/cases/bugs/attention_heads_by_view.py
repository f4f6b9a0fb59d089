"""Multi-head attention that reshapes (batch, length, heads, d) to (batch, heads, length, d) with view instead of transpose.

source: https://github.com/zhouhaoyi/Informer2020/issues/59
catalogue: github
field: forecasting (transformer)
cause: layout-mixed
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class Attention(nn.Module):
    def __init__(self, d=32, heads=4):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x):
        B, L, d = x.shape
        H = self.heads
        q, k, v = self.q(x).view(B, L, H, -1), self.k(x).view(B, L, H, -1), self.v(x).view(B, L, H, -1)
        q, k, v = q.view(B, H, L, -1), k.view(B, H, L, -1), v.view(B, H, L, -1)  # bug
        # fix: q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        a = torch.softmax(q @ k.transpose(-2, -1) / (d // H) ** 0.5, dim=-1) @ v
        return self.out(a.transpose(1, 2).reshape(B, L, d))


class Forecaster(nn.Module):
    def __init__(self, d=32, length=13):
        super().__init__()
        self.embed = nn.Linear(13, d)
        self.position = nn.Parameter(0.02 * torch.randn(length, d))
        self.attention, self.norm1, self.norm2 = Attention(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.ff = nn.Sequential(nn.Linear(d, 64), nn.GELU(), nn.Linear(64, d))
        self.head = nn.Linear(d, 1)

    def forward(self, x):
        h = self.embed(x) + self.position
        h = h + self.attention(self.norm1(h))
        h = h + self.ff(self.norm2(h))
        return self.head(h[:, -1]).squeeze(-1)


def series(n):
    """Each past day has a kind of weather and a demand; tomorrow's demand is the one of the day with the same weather."""
    kind = torch.rand(n, 12).argsort(1)
    kind = torch.cat([kind, torch.randint(0, 12, (n, 1))], 1)
    demand = torch.randn(n, 12).gather(1, kind)
    x = torch.cat([3 * F.one_hot(kind, 12).float(), demand.unsqueeze(-1)], -1)
    x[:, -1, -1] = 0
    return x, demand[:, -1]


model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(450):
        x, y = series(64)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x, y = series(1000)
score = 1 - float(F.mse_loss(model(x), y) / y.var())
learned = score > 0.9
