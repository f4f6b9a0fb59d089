"""Attention-based multiple instance learning: one label per bag, one bag per step, gated attention over its instances.

source: https://arxiv.org/abs/1802.04712
field: multiple instance learning
unusual: batches of a single bag of varying size; the label belongs to none of the rows; a softmax over instances
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16, torch.tensor(digits.target)
nines, others = (labels == 9).nonzero().squeeze(1), (labels != 9).nonzero().squeeze(1)


def bag():
    """Is there a nine among the digits?"""
    size, y = int(torch.randint(5, 12, ())), int(torch.randint(0, 2, ()))
    rows = others[torch.randint(0, len(others), (size,))]
    if y:
        rows[: int(torch.randint(1, 3, ()))] = nines[torch.randint(0, len(nines), ())]
    return images[rows], torch.tensor([float(y)])


class GatedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.v, self.u, self.w = nn.Linear(32, 24), nn.Linear(32, 24), nn.Linear(24, 1)
        self.classifier = nn.Linear(32, 1)

    def forward(self, x):
        h = self.features(x)
        a = self.w(self.v(h).tanh() * self.u(h).sigmoid()).softmax(0)
        return self.classifier((a * h).sum(0))


model = GatedAttention()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=1e-4)
with nv.watch(model, optimizer) as watch:
    for step in range(2400):
        x, y = bag()
        loss = F.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    hits = [((model(x) > 0) == (y > 0)).float() for x, y in (bag() for _ in range(500))]
score = float(torch.cat(hits).mean())
learned = score > 0.8
