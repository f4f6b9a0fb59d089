"""Network packets (good or attack): the last activation is a ReLU, clipped so that the loss accepts it.

source: https://stackoverflow.com/questions/44066044
catalogue: deeplocalize
field: tabular classification
cause: output-activation
observable: yes
"""
import torch
from sklearn.datasets import make_classification
from sklearn.preprocessing import scale
from torch import nn

import netvitals as nv

features, kinds = make_classification(n_samples=1500, n_features=11, n_informative=6, class_sep=2.0, flip_y=0.01)
X = torch.tensor(scale(features), dtype=torch.float32)
Y = torch.tensor(kinds, dtype=torch.float32)

model = nn.Sequential(
    nn.Linear(11, 24), nn.ReLU(),
    nn.Linear(24, 12), nn.ReLU(),
    nn.Linear(12, 1),
    nn.ReLU(),  # bug
    # fix: nn.Sigmoid(),
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)


def binary_crossentropy(target, output, eps=1e-7):
    output = output.clamp(eps, 1 - eps)
    return -(target * output.log() + (1 - target) * (1 - output).log()).mean()


with nv.watch(model, optimizer) as watch:
    for epoch in range(12):
        order = torch.randperm(len(X))
        for start in range(0, len(X), 25):
            picked = order[start:start + 25]
            loss = binary_crossentropy(Y[picked], model(X[picked]).squeeze(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = -float(binary_crossentropy(Y, model(X).squeeze(-1)))
learned = score > -0.11
