"""Deep Sets with padded sets of different sizes: sums of embeddings, then a readout.

source: https://arxiv.org/abs/1703.06114
field: sets
unusual: masked sums, large range of activations between small and large sets, many padded rows
"""
import torch
from torch import nn

import netvitals as nv


def sets(n, largest=12):
    """How many different digits are in the set?"""
    x = torch.randint(0, 10, (n, largest))
    mask = torch.arange(largest) < torch.randint(1, largest + 1, (n, 1))
    seen = torch.zeros(n, 10).scatter_reduce(1, x, mask.float(), "amax")
    return x, mask, seen.sum(1)


class DeepSets(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 32)
        self.phi = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
        self.rho = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x, mask):
        h = self.phi(self.embed(x)) * mask.unsqueeze(-1)
        return self.rho(h.sum(1)).squeeze(1)


model = DeepSets()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(700):
        x, mask, y = sets(64)
        loss = nn.functional.mse_loss(model(x, mask), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x, mask, y = sets(500)
score = 1 - float((model(x, mask) - y).pow(2).mean() / y.var())
learned = score > 0.75
