"""RQ-VAE: the quantiser hands out its embedding detached, and the loss that should move the codebook uses that copy.

source: https://github.com/EdoardoBotta/RQ-VAE-Recommender/issues/24
catalogue: github
field: recommenders (semantic ids, RQ-VAE)
cause: detached-graph
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

topic, flavour = 2 * torch.randn(8, 10), 2 * torch.randn(8, 10)


def items(n):
    return topic[torch.randint(0, 8, (n,))] + flavour[torch.randint(0, 8, (n,))] + 0.1 * torch.randn(n, 10)


class Quantize(nn.Module):
    def __init__(self, codes=8, dim=6):
        super().__init__()
        self.embedding = nn.Embedding(codes, dim)
        nn.init.uniform_(self.embedding.weight, -0.5, 0.5)

    def forward(self, x):
        ids = torch.cdist(x.detach(), self.embedding.weight.detach()).argmin(1)
        emb = self.embedding(ids)
        return x + (emb - x).detach(), (emb.detach() - x).pow(2).sum(1) * 0.25 + (emb.detach() - x.detach()).pow(2).sum(1)  # bug
        # fix: return x + (emb - x).detach(), (emb.detach() - x).pow(2).sum(1) * 0.25 + (emb - x.detach()).pow(2).sum(1)


class RqVae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 6))
        self.decoder = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 10))
        self.layers = nn.ModuleList(Quantize() for _ in range(2))

    def forward(self, x):
        residual, total, loss = self.encoder(x), 0, 0
        for layer in self.layers:
            emb, rqvae_loss = layer(residual)
            residual, total, loss = residual - emb.detach(), total + emb, loss + rqvae_loss
        x_hat = self.decoder(total)
        return x_hat, ((x_hat - x).pow(2).sum(1) + loss).mean()


model = RqVae()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(1400):
        _, loss = model(items(128))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x = items(1000)
    score = 1 - float((model(x)[0] - x).pow(2).mean() / x.var())
learned = score > 0.74
