"""Domain-adversarial training whose gradient-reversal layer was forgotten: features become easier, not harder, to tell apart.

source: https://github.com/zou-longkun/GAST/issues/3
catalogue: github
field: domain adaptation
cause: wrong-sign
observable: no, the domain classifier succeeds, which looks like success
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function

import netvitals as nv


class GradReverse(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad


def domain(n, target):
    """The label sits in three coordinates; the source has an even clearer, but misleading cue that the target lacks."""
    y = torch.randint(0, 2, (n,))
    x = torch.randn(n, 6)
    x[:, :3] += 0.9 * (2 * y - 1).unsqueeze(1)
    cue = (2 * y - 1).float() if not target else torch.full((n,), 2.5)
    x[:, 3:] = 3 * cue.unsqueeze(1) * torch.tensor([1.0, 0.0, 0.0]) + 0.3 * torch.randn(n, 3) + (2.0 if target else 0.0)
    return x, y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 8))
        self.label = nn.Linear(8, 2)
        self.domain = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))

    def forward(self, x):
        f = self.features(x)
        return self.label(f), self.domain(f)  # bug
        # fix: return self.label(f), self.domain(GradReverse.apply(f))


model = Model()
groups = [{"params": model.features.parameters()}, {"params": model.label.parameters()}, {"params": model.domain.parameters(), "lr": 5e-3}]
optimizer = torch.optim.Adam(groups, lr=1e-3, betas=(0.5, 0.99))
with nv.watch(model, optimizer) as watch:
    for step in range(800):
        (xs, ys), (xt, _) = domain(128, False), domain(128, True)
        label, source = model(xs)
        _, target = model(xt)
        loss = F.cross_entropy(label, ys)
        loss = loss + F.cross_entropy(source, torch.zeros(128, dtype=torch.long)) + F.cross_entropy(target, torch.ones(128, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x, y = domain(1000, True)
score = float((model(x)[0].argmax(1) == y).float().mean())
learned = score > 0.8
