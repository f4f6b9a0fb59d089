"""A bonus for the spread of the predictions is subtracted from the loss; it outweighs the error, and the predictions explode.

source: https://discuss.pytorch.org/t/loss-function-finding-extreme-local-minimum/188664
catalogue: pytorch-forum
field: sequence regression
cause: loss-term-dominates
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


def profiles(n, length=20):
    """Sequences of letters; a few positions have large labels, most have zero."""
    x = torch.randint(0, 4, (n, length))
    motif = (x[:, :-1] == 2) & (x[:, 1:] == 3)
    y = torch.zeros(n, length)
    y[:, :-1] = motif.float() * 0.7
    return x, y


def my_loss(y_pred, y, phi=100):
    return torch.sum(torch.square(y - y_pred)) - torch.std(y_pred) * phi  # bug
    # fix: return torch.sum(torch.square(y - y_pred))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4, 8)
        self.conv = nn.Sequential(nn.Conv1d(8, 24, 5, padding=2), nn.ReLU(), nn.Conv1d(24, 24, 5, padding=2), nn.ReLU(), nn.Conv1d(24, 1, 1))

    def forward(self, x):
        return self.conv(self.embed(x).transpose(1, 2)).squeeze(1)


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(400):
        x, y = profiles(8)
        loss = my_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x, y = profiles(300)
score = 1 - float((model(x) - y).pow(2).mean() / y.var())
learned = score > 0.9
