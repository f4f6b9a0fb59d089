"""Click prediction with a transformer encoder: tiny initial weights keep the loss at 0.693 for very long.

source: https://discuss.pytorch.org/t/bce-loss-stuck-at-0-693-in-the-beginnng-of-training-and-then-started-to-decrease-why/183958
catalogue: pytorch-forum
field: recommenders (click-through rate)
cause: init-too-small
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

ITEMS = 30
kind = torch.arange(ITEMS) % 3


def clicks(n, length=8):
    """A user clicks when the item is of the kind that he has seen most."""
    history = torch.randint(0, ITEMS, (n, length))
    candidate = torch.randint(0, ITEMS, (n, 1))
    seen = (kind[history] == kind[candidate]).float().sum(1)
    return torch.cat([history, candidate], 1), (seen >= 3).float()


class CTR(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.embedding = nn.Embedding(ITEMS, d)
        self.position = nn.Parameter(torch.randn(9, d) * 0.1)
        self.encoder = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.out = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 16), nn.ReLU(), nn.Linear(16, 1))
        for p in self.parameters():  # bug
            if p.dim() > 1:  # bug
                nn.init.normal_(p, std=1e-5)  # bug

    def forward(self, x):
        h = self.encoder(self.embedding(x) + self.position)
        return self.out(h[:, -1]).squeeze(-1)


model = CTR()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98))
warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 50))
with nv.watch(model, optimizer) as watch:
    for step in range(350):
        x, y = clicks(64)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warm_up.step()
        watch.step(loss)

x, y = clicks(1000)
score = float(((model(x) > 0).float() == y).float().mean())
learned = score > 0.75
