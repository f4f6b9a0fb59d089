"""A captured optimizer step: parameters whose gradient was None for a while are never updated again.

source: https://github.com/pytorch/pytorch/issues/115607
catalogue: traincheck
field: image classification with stages frozen for some steps
cause: frozen-by-mistake, stale-parameters
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)


class CapturedMomentum(torch.optim.Optimizer):
    """SGD with momentum whose list of work is captured at the first step and again whenever a guard fails."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "momentum": 0.9})
        self.captured = None

    @torch.no_grad()
    def step(self):
        params = [p for group in self.param_groups for p in group["params"]]
        guard_failed = self.captured is None or any(p.grad is None for p in self.captured)
        # fix: guard_failed = self.captured is None or len(self.captured) != sum(p.grad is not None for p in params)
        if guard_failed:
            self.captured = [p for p in params if p.grad is not None]
        for p in self.captured:
            state = self.state[p]
            buffer = state.setdefault("momentum_buffer", torch.zeros_like(p))
            buffer.mul_(0.9).add_(p.grad)
            p.add_(buffer, alpha=-self.param_groups[0]["lr"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.classifier = nn.Linear(32, 10)

    def forward(self, x):
        return self.classifier(self.features(x))


model = Net()
optimizer = CapturedMomentum(model.parameters(), lr=0.02)
with nv.watch(model, optimizer) as watch:
    step = 0
    for epoch in range(14):
        for batch in torch.randperm(1500).split(64):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            if 5 <= step < 25:  # the features rest while the classifier settles
                for p in model.features.parameters():
                    p.grad = None
            optimizer.step()
            watch.step(loss)
            step += 1

score = float((model(images[1500:]).argmax(1) == labels[1500:]).float().mean())
learned = score > 0.8
