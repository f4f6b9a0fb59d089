"""MAML whose inner update writes through .data of a copy: the query loss has no path back to the meta-parameters.

source: https://github.com/KanishJebaMathewM/Truxify/issues/13118
catalogue: github
field: meta-learning (MAML)
cause: detached-graph
observable: yes
"""
import copy

import torch
from torch import nn
from torch.func import functional_call

import netvitals as nv


def tasks(n, k=10):
    """Sine waves with random amplitude and phase."""
    for _ in range(n):
        amplitude, phase = 0.5 + 2 * torch.rand(1), 3.14 * torch.rand(1)
        x = torch.rand(2 * k, 1) * 10 - 5
        y = amplitude * torch.sin(x + phase)
        yield x[:k], y[:k], x[k:], y[k:]


class MAML:
    def __init__(self, model, inner_lr=0.03):
        self.model, self.inner_lr, self.criterion = model, inner_lr, nn.MSELoss()

    def inner_update(self, x, y, steps=2):
        adapted = copy.deepcopy(self.model)  # bug
        # fix: params = dict(self.model.named_parameters())
        for _ in range(steps):
            loss = self.criterion(adapted(x), y)  # bug
            grads = torch.autograd.grad(loss, adapted.parameters(), create_graph=True)  # bug
            for param, grad in zip(adapted.parameters(), grads):  # bug
                param.data -= self.inner_lr * grad  # bug
            # fix: loss = self.criterion(functional_call(self.model, params, x), y)
            # fix: grads = torch.autograd.grad(loss, params.values(), create_graph=True)
            # fix: params = {name: p - self.inner_lr * g for (name, p), g in zip(params.items(), grads)}
        return adapted  # bug
        # fix: return lambda x: functional_call(self.model, params, (x,))

    def query_loss(self, n):
        losses = [self.criterion(self.inner_update(sx, sy)(qx), qy) for sx, sy, qx, qy in tasks(n)]
        return torch.stack(losses).mean()


model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
maml = MAML(model)
before = float(maml.query_loss(100))
meta_optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, meta_optimizer) as watch:
    for iteration in range(200):
        loss = maml.query_loss(4)
        meta_optimizer.zero_grad()
        loss.backward()
        meta_optimizer.step()
        watch.step(loss)

score = 1 - float(maml.query_loss(100)) / before
learned = score > 0.3
