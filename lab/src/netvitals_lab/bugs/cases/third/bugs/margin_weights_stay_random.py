"""ArcFace: the class centres belong to the margin module, and only the backbone's parameters go to the optimizer.

source: https://github.com/wujiyang/Face_Pytorch/issues/10
catalogue: github
field: face recognition (ArcFace)
cause: parameters-not-in-optimizer
observable: yes
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

PEOPLE = 30
face = torch.randn(PEOPLE, 10)


def photos(n):
    who = torch.randint(0, PEOPLE, (n,))
    return (face[who] + 0.35 * torch.randn(n, 10)) @ mixing, who


mixing = torch.randn(10, 24)


class ArcMarginProduct(nn.Module):
    def __init__(self, n_in, n_out, s=16.0, m=0.3):
        super().__init__()
        self.s, self.m = s, m
        self.weight = nn.Parameter(torch.empty(n_out, n_in))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, label):
        cosine = F.linear(F.normalize(x), F.normalize(self.weight)).clamp(-1 + 1e-6, 1 - 1e-6)
        phi = cosine * math.cos(self.m) - (1 - cosine**2).sqrt() * math.sin(self.m)
        one_hot = F.one_hot(label, cosine.shape[1])
        return self.s * torch.where(one_hot > 0, phi, cosine)


net = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 3))
margin = ArcMarginProduct(3, PEOPLE)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
# fix: optimizer.add_param_group({"params": margin.parameters()})
with nv.watch({"net": net, "margin": margin}, optimizer) as watch:
    for step in range(400):
        x, y = photos(64)
        loss = F.cross_entropy(margin(net(x / 5), y), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x, y = photos(1000)
    cosine = F.linear(F.normalize(net(x / 5)), F.normalize(margin.weight))
score = float((cosine.argmax(1) == y).float().mean())
learned = score > 0.76
