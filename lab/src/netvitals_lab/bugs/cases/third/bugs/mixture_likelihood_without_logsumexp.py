"""Mixture of parts: the log-probabilities are exponentiated, summed and logged again; far from all parts that is log 0.

source: https://github.com/mlberkeley/scae-pytorch/pull/4
catalogue: github
field: density estimation (mixture of parts)
cause: bad-values
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

PARTS, DIM = 5, 24
prototype = 3 * torch.randn(PARTS, DIM)


def shapes(n):
    """Outlines of twenty-four numbers, drawn after one of five prototypes, of any size."""
    which = torch.randint(0, PARTS, (n,))
    return prototype[which] * (0.7 + 0.6 * torch.rand(n, 1)) + 0.2 * torch.randn(n, DIM)


class PartDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.size = nn.Sequential(nn.Linear(DIM, 32), nn.ReLU(), nn.Linear(32, PARTS))
        self.templates = nn.Parameter(torch.randn(PARTS, DIM))
        self.presence = nn.Sequential(nn.Linear(DIM, 32), nn.ReLU(), nn.Linear(32, PARTS))

    def log_prob(self, x):
        means = (1 + self.size(x)).unsqueeze(2) * self.templates
        distance = (x.unsqueeze(1) - means) / 0.5
        log_part = -0.5 * distance.pow(2).sum(2) + self.presence(x).log_softmax(1)
        return torch.log(torch.exp(log_part).sum(1))  # bug
        # fix: return torch.logsumexp(log_part, 1)


model = PartDecoder()
optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(500):
        loss = -model.log_prob(shapes(96)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 50.0)
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    score = float(model.log_prob(shapes(1000)).mean())
learned = score > -300
