"""Forward-forward: each layer has a loss of its own, nothing is propagated from layer to layer; the label is in the input.

source: https://arxiv.org/abs/2212.13345
field: local learning (forward-forward)
unusual: every layer is cut off from the next on purpose; wrong labels as negative data; one optimizer per layer
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16, torch.tensor(digits.target)


def with_label(x, y):
    return torch.cat([x, 1.0 * F.one_hot(y, 10)], 1)


class Layer(nn.Linear):
    def forward(self, x):
        return F.relu(super().forward(x / (x.norm(dim=1, keepdim=True) + 1e-4)))


layers = nn.ModuleList([Layer(74, 200), Layer(200, 200)])
optimizers = [torch.optim.Adam(layer.parameters(), lr=3e-2) for layer in layers]
with nv.watch(layers, optimizers) as watch:
    for step in range(700):
        i = torch.randint(0, 1300, (128,))
        x, y = images[i], labels[i]
        good, bad = with_label(x, y), with_label(x, (y + torch.randint(1, 10, (128,))) % 10)
        total = 0
        for layer, optimizer in zip(layers, optimizers):
            good, bad = layer(good.detach()), layer(bad.detach())
            loss = F.softplus(2 - good.pow(2).mean(1)).mean() + F.softplus(bad.pow(2).mean(1) - 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = total + loss.detach()
        watch.step(total)

with torch.no_grad():
    goodness = []
    for d in range(10):
        h, g = with_label(images[1300:], torch.full((497,), d)), 0
        for layer in layers:
            h = layer(h)
            g = g + h.pow(2).mean(1)
        goodness.append(g)
score = float((torch.stack(goodness).argmax(0) == labels[1300:]).float().mean())
learned = score > 0.7
