"""MAML with second-order gradients on sine waves, inner updates with functional_call and create_graph.

source: https://arxiv.org/abs/1703.03400
field: meta-learning (MAML)
unusual: gradients of gradients; the network's own forward is only called functionally, with parameters that are no leaves; the loss of new tasks at each step
"""
import torch
from torch import nn
from torch.func import functional_call

import netvitals as nv

model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
mse = nn.functional.mse_loss


def task(k=10):
    amplitude, phase = 0.5 + 2 * torch.rand(1), 3.14 * torch.rand(1)
    x = torch.rand(2 * k, 1) * 10 - 5
    y = amplitude * torch.sin(x + phase)
    return x[:k], y[:k], x[k:], y[k:]


def adapt_and_test(sx, sy, qx, qy, steps=2, alpha=0.03):
    params = dict(model.named_parameters())
    for _ in range(steps):
        loss = mse(functional_call(model, params, (sx,)), sy)
        grads = torch.autograd.grad(loss, params.values(), create_graph=True)
        params = {name: p - alpha * g for (name, p), g in zip(params.items(), grads)}
    return mse(functional_call(model, params, (qx,)), qy)


before = float(torch.stack([adapt_and_test(*task()).detach() for _ in range(60)]).mean())
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for iteration in range(230):
        loss = torch.stack([adapt_and_test(*task()) for _ in range(4)]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

after = float(torch.stack([adapt_and_test(*task()).detach() for _ in range(60)]).mean())
score = 1 - after / before
learned = score > 0.3
