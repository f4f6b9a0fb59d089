"""Domain-adversarial training whose gradient-reversal layer was forgotten: features become easier, not harder, to tell apart.

source: https://github.com/zou-longkun/GAST/issues/3
catalogue: github
field: domain adaptation
cause: wrong-sign
observable: no, the domain classifier succeeds, which looks like success
"""
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
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
    """The label sits in three coordinates, the domain in the others."""
    y = torch.randint(0, 2, (n,))
    x = torch.randn(n, 6)
    x[:, :3] += 1.2 * (2 * y - 1).unsqueeze(1)
    x[:, 3:] += 1.0 if target else -1.0
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
    for step in range(650):
        (xs, ys), (xt, _) = domain(128, False), domain(128, True)
        label, source = model(xs)
        _, target = model(xt)
        loss = F.cross_entropy(label, ys)
        loss = loss + F.cross_entropy(source, torch.zeros(128, dtype=torch.long)) + F.cross_entropy(target, torch.ones(128, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

(xs, _), (xt, yt) = domain(1000, False), domain(1000, True)
with torch.no_grad():
    f, accuracy = model.features(torch.cat([xs, xt])), float((model(xt)[0].argmax(1) == yt).float().mean())
probe = LogisticRegression(max_iter=500).fit(f, torch.arange(2000) // 1000).score(f, torch.arange(2000) // 1000)
score = 2 - 2 * float(probe)  # one: the domains cannot be told apart by the features
learned = score > 0.2 and accuracy > 0.9
