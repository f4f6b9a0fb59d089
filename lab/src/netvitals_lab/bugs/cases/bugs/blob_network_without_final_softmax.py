"""The last layer of the blob classifier ends in ReLU and the softmax line is commented out: NLL of raw values.

source: https://github.com/shiningrain/AUTOTRAINER (demo Improper_Activation_case)
catalogue: autotrainer
field: toy classification
cause: missing-log-softmax, output-activation
observable: yes
"""
import torch
from sklearn.datasets import make_blobs
from torch import nn

import netvitals as nv

x, y = make_blobs(n_samples=1500, n_features=2, centers=[[0, 3], [3, -2], [-3, -2]], cluster_std=1.2)
x, y = torch.tensor(x, dtype=torch.float32) / 3, torch.tensor(y)


def he(n_in, n_out):
    layer = nn.Linear(n_in, n_out)
    nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
    return layer


model = nn.Sequential(
    he(2, 50), nn.ReLU(),
    he(50, 50), nn.ReLU(),
    he(50, 50), nn.ReLU(),
    nn.Linear(50, 3),
    nn.ReLU(),  # bug
    # fix: nn.LogSoftmax(dim=1),
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
nll = nn.NLLLoss()
with nv.watch(model, optimizer) as watch:
    for epoch in range(30):
        for rows in torch.randperm(1200).split(64):
            loss = nll(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float((model(x[1200:]).argmax(1) == y[1200:]).float().mean())
learned = score > 0.93
