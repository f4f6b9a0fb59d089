"""Dropout with p=0.9, meant as 'keep 90 percent', in every hidden layer of a small classifier.

source: https://github.com/BerkeleyHCI/umlaut (error "High dropout rate")
catalogue: umlaut
field: tabular classification
cause: dropout-too-high
observable: yes
"""
import torch
from sklearn.datasets import load_wine
from torch import nn

import netvitals as nv

wine = load_wine()
x = torch.tensor((wine.data - wine.data.mean(0)) / wine.data.std(0)).float()
x = torch.cat([x, torch.randn(len(x), 7)], dim=1)
y = torch.tensor(wine.target)
keep_prob = 0.9
p = keep_prob  # bug
# fix: p = 1 - keep_prob


class WineNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.ModuleList([nn.Linear(20, 24), nn.Linear(24, 24), nn.Linear(24, 24)])
        self.drop = nn.Dropout(p)
        self.out = nn.Linear(24, 3)

    def forward(self, t):
        for layer in self.hidden:
            t = self.drop(torch.relu(layer(t)))
        return self.out(t)


net = WineNet()
optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
criterion = nn.CrossEntropyLoss()
with nv.watch(net, optimizer) as watch:
    for epoch in range(25):
        for rows in torch.randperm(len(x)).split(16):
            optimizer.zero_grad()
            loss = criterion(net(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)

net.eval()
with torch.no_grad():
    score = -float(criterion(net(x), y))
learned = score > -0.15
