"""The whole model is cast to float16 and trained by Adam: its epsilon of 1e-8 is zero there, weights become NaN.

source: https://stackoverflow.com/questions/42064941
catalogue: humbatova
field: regression
cause: low-precision
observable: yes
"""
import torch
from sklearn.datasets import load_diabetes
from torch import nn

import netvitals as nv

dtype = torch.float16  # bug
# fix: dtype = torch.float32
data = load_diabetes()
x = torch.tensor(data.data)
x = (x / x.std(0)).to(dtype)
y = torch.tensor((data.target - data.target.mean()) / data.target.std()).to(dtype).unsqueeze(1)

net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)).to(dtype)
adam = torch.optim.Adam(net.parameters(), lr=0.002)
with nv.watch(net, adam) as watch:
    for epoch in range(15):
        for rows in torch.randperm(len(x)).split(32):
            adam.zero_grad()
            loss = ((net(x[rows]) - y[rows]) ** 2).mean()
            loss.backward()
            adam.step()
            watch.step(loss)

with torch.no_grad():
    score = 1 - float(((net(x) - y) ** 2).float().mean() / y.float().var())
learned = score > 0.45
