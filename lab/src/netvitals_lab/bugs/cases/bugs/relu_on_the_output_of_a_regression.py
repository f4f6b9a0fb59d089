"""Joint-angle regression with the same ReLU on the last layer as everywhere else: negative targets cannot be reached.

source: http://theorangeduck.com/page/neural-network-not-working
catalogue: blog
field: character animation (regression)
cause: output-activation
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


def poses(n):
    """Two-link arm: positions of elbow and hand from the joint angles; find the angles' sines and cosines."""
    a, b = torch.rand(2, n) * 4 - 2
    elbow = torch.stack([a.cos(), a.sin()], 1)
    hand = elbow + torch.stack([(a + b).cos(), (a + b).sin()], 1)
    return torch.cat([elbow, hand], 1), torch.stack([a.sin(), a.cos(), b.sin(), b.cos()], 1)


layers = []
for i, o in [(4, 64), (64, 64), (64, 4)]:
    layers += [nn.Linear(i, o), nn.ReLU()]
# fix: layers.pop()
network = nn.Sequential(*layers)
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
x, y = poses(4000)
with nv.watch(network, optimizer) as watch:
    for step in range(700):
        i = torch.randint(0, 4000, (64,))
        cost = (network(x[i]) - y[i]).abs().mean()
        optimizer.zero_grad()
        cost.backward()
        optimizer.step()
        watch.step(cost)

x, y = poses(500)
score = 1 - float((network(x) - y).pow(2).mean() / y.var(0).mean())
learned = score > 0.9
