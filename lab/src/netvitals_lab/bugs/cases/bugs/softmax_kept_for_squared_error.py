"""A network builder that ends every network with a softmax, also when the cost is a mean squared error.

source: https://github.com/blackecho/Deep-Learning-TensorFlow/commit/20d1b59e69d4ae56ff9bf0c7263d3f2e47d4cdc9 (gDefects4DL deep-learning-tensorflow0)
catalogue: gdefects4dl
field: regression
cause: output-activation
observable: yes
"""
import torch
from sklearn.datasets import make_regression
from torch import nn

import netvitals as nv


class DeepBelief(nn.Module):
    def __init__(self, sizes, loss_func="cross_entropy"):
        super().__init__()
        self.loss_func = loss_func
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-2], sizes[1:-1]))
        self.last = nn.Linear(sizes[-2], sizes[-1])

    def forward(self, x):
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        x = self.last(x)
        x = torch.softmax(x, dim=1)  # bug
        # fix: x = torch.softmax(x, dim=1) if self.loss_func == "cross_entropy" else x
        return x

    def cost(self, output, target):
        if self.loss_func == "cross_entropy":
            return -(target * output.clamp_min(1e-10).log()).sum(1).mean()
        return (output - target).pow(2).mean()


features, targets = make_regression(1000, 12, n_informative=6, n_targets=3, noise=5.0, random_state=None)
x = torch.tensor(features, dtype=torch.float32)
y = torch.tensor((targets - targets.mean(0)) / targets.std(0), dtype=torch.float32)

model = DeepBelief([12, 48, 32, 3], loss_func="mse")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
with nv.watch(model, optimizer) as watch:
    for epoch in range(40):
        for batch in torch.randperm(800).split(50):
            optimizer.zero_grad()
            loss = model.cost(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    rest = y[800:]
    score = 1 - float((model(x[800:]) - rest).pow(2).sum() / (rest - rest.mean(0)).pow(2).sum())
learned = score > 0.8
