"""A small network whose weights live in a ParameterDict and are modulated per task by an embedding, run with functional_call.

source: https://docs.pytorch.org/docs/stable/generated/torch.func.functional_call.html
field: multi-task learning (hyper-network)
unusual: the module that computes holds no trained parameters of its own; all weights come from outside and are no leaves when used; task embeddings are trained along
"""
import torch
from torch import nn
from torch.func import functional_call

import netvitals as nv

TASKS = 4
body = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))


class Meta(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.ParameterDict({n.replace(".", "_"): p.detach().clone() for n, p in body.named_parameters()})
        self.task = nn.Embedding(TASKS, 6)
        self.gain = nn.ModuleDict({n: nn.Linear(6, p.shape[0]) for n, p in self.shared.items()})

    def forward(self, x, task):
        e = self.task(torch.tensor(task))
        weights = {}
        for n, p in self.shared.items():
            factor = 1 + self.gain[n](e)
            weights[n.replace("_", ".")] = p * (factor.unsqueeze(1) if p.dim() == 2 else factor)
        return functional_call(body, weights, (x,))


def target(x, task):
    a, b = x[:, :1], x[:, 1:]
    return [torch.sin(2 * a), a * b, a.abs() - b, torch.cos(a + b)][task]


model = Meta()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(600):
        x = torch.rand(64, 2) * 4 - 2
        loss = sum((model(x, k) - target(x, k)).pow(2).mean() for k in range(TASKS)) / TASKS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x = torch.rand(500, 2) * 4 - 2
score = min(1 - float((model(x, k) - target(x, k)).pow(2).mean() / target(x, k).var()) for k in range(TASKS))
learned = score > 0.7
