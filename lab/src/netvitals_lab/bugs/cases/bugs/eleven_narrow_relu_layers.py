"""Nine extra Dense(10, relu) layers were stacked for accuracy: the signal dies out on the way.

source: https://stackoverflow.com/questions/46995209
catalogue: deepfd
field: tabular classification
cause: vanishing-gradients
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import make_classification
from torch import nn

import netvitals as nv

X, y = make_classification(n_samples=2000, n_features=16, n_informative=8, n_redundant=0,
                           n_clusters_per_class=2, class_sep=1.6, flip_y=0.01)
X = (X - X.mean(0)) / X.std(0)
X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
input_dim = X.shape[1]

layers = [nn.Linear(input_dim, 10), nn.Tanh()]
widths = [90, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10]  # bug
# fix: widths = [25]
n_in = 10
for width in widths:
    layers += [nn.Linear(n_in, width), nn.ReLU()]
    n_in = width
model = nn.Sequential(*layers, nn.Linear(n_in, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        for i in torch.randperm(1600).split(32):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X[i]), y[i])
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float((model(X[1600:]).argmax(1) == y[1600:]).float().mean())
learned = score > 0.84
