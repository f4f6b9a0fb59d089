"""MADE: masks on the weights make the outputs autoregressive; pixels are predicted from those before them.

source: https://arxiv.org/abs/1502.03509
field: density estimation (autoregressive)
unusual: half of all weights are masked and never get a gradient; the first output depends on nothing but its bias
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

images = (torch.tensor(load_digits().images, dtype=torch.float32).flatten(1) > 7).float()


class MaskedLinear(nn.Linear):
    def __init__(self, degree_in, degree_out, strict=False):
        super().__init__(len(degree_in), len(degree_out))
        allowed = degree_out.unsqueeze(1) > degree_in if strict else degree_out.unsqueeze(1) >= degree_in
        self.register_buffer("mask", allowed.float())

    def forward(self, x):
        return F.linear(x, self.weight * self.mask, self.bias)


pixels = torch.arange(1, 65)
hidden = torch.arange(192) % 63 + 1
made = nn.Sequential(MaskedLinear(pixels, hidden), nn.ReLU(), MaskedLinear(hidden, hidden), nn.ReLU(), MaskedLinear(hidden, pixels, strict=True))
optimizer = torch.optim.Adam(made.parameters(), lr=2e-3)
with nv.watch(made, optimizer) as watch:
    for step in range(450):
        x = images[torch.randint(0, 1300, (64,))]
        loss = F.binary_cross_entropy_with_logits(made(x), x, reduction="none").sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x = images[1300:]
    p = images[:1300].mean(0).clamp(0.01, 0.99)
    alone = F.binary_cross_entropy(p.expand_as(x), x, reduction="none").sum(1).mean()
    score = 1 - float(F.binary_cross_entropy_with_logits(made(x), x, reduction="none").sum(1).mean() / alone)
learned = score > 0.12
