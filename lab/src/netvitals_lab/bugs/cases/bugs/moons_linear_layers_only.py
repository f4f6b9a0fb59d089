"""Three linear layers and not one ReLU between them: the moons are cut by a straight line.

source: https://github.com/mortendahl/tf-encrypted/issues/248
catalogue: humbatova
field: toy classification
cause: missing-nonlinearity
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import make_moons
from torch import nn

import netvitals as nv

xy, moon = make_moons(1500, noise=0.1)
xy = torch.tensor((xy - xy.mean(0)) / xy.std(0), dtype=torch.float32)
moon = torch.tensor(moon)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(2, 64)
        self.layer2 = nn.Linear(64, 64)
        self.layer3 = nn.Linear(64, 2)

    def forward(self, x):
        x = self.layer1(x)
        # fix: x = x.relu()
        x = self.layer2(x)
        # fix: x = x.relu()
        return self.layer3(x)


network = Network()
optimizer = torch.optim.Adam(network.parameters(), lr=0.005)
with nv.watch(network, optimizer) as watch:
    for epoch in range(12):
        for batch in torch.randperm(1200).split(48):
            output = network(xy[batch])
            loss = F.cross_entropy(output, moon[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float((network(xy[1200:]).argmax(1) == moon[1200:]).float().mean())
learned = score > 0.96
