"""Data parallel replicas: the gradient hooks sit on parameters that a move to the CPU and back replaced.

source: https://github.com/pytorch/pytorch/issues/104336
catalogue: traincheck
field: data parallel image classification
cause: replicas-differ
observable: yes
silent: yes
"""
import copy

import torch
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
y = torch.tensor(digits.target)


class DDP:
    """Averages the gradients of the parameters that the replicas had when it was made."""

    def __init__(self, replicas):
        self.replicas = replicas
        self.buckets = list(zip(*(r.parameters() for r in replicas)))

    def loss(self, images, labels):
        shards = zip(self.replicas, images.chunk(len(self.replicas)), labels.chunk(len(self.replicas)))
        return sum(nn.functional.cross_entropy(r(i), t) for r, i, t in shards) / len(self.replicas)

    def synchronize(self):
        for bucket in self.buckets:
            if all(p.grad is not None for p in bucket):
                mean = torch.stack([p.grad for p in bucket]).sum(0)
                for p in bucket:
                    p.grad.copy_(mean)


def offload_and_reload(module):
    for child in module.modules():
        for name, p in list(child.named_parameters(recurse=False)):
            setattr(child, name, nn.Parameter(p.detach().cpu().clone()))


net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(),
                    nn.Linear(64, 10))
replicas = nn.ModuleList([net, copy.deepcopy(net)])
ddp = DDP(replicas)
for replica in replicas:
    offload_and_reload(replica)  # makes room for a validation model, then comes back
# fix: ddp = DDP(replicas)
optimizer = torch.optim.SGD(replicas.parameters(), lr=0.05, momentum=0.9)
with nv.watch(replicas, optimizer) as watch:
    for epoch in range(10):
        for batch in torch.randperm(1536).split(64):
            optimizer.zero_grad()
            loss = ddp.loss(x[batch], y[batch])
            loss.backward()
            ddp.synchronize()
            optimizer.step()
            watch.step(loss)

accuracy = float((replicas[0](x[1536:]).argmax(1) == y[1536:]).float().mean())
apart = max(float((a - b).abs().max()) for a, b in zip(*(r.parameters() for r in replicas)))
score = -apart
learned = apart < 1e-5 and accuracy > 0.85
