"""Matrix factorisation by alternating blocks: users are updated while the items stand still, then the other way round.

source: https://datajobs.com/data-science-repo/Recommender-Systems-[Netflix].pdf
field: recommenders (matrix factorisation)
unusual: two optimizers of which only one steps at a time; requires_grad switched back and forth; sparse ratings; L2 by hand
"""
import torch
from torch import nn

import netvitals as nv

users, items, rank = 80, 60, 4
truth = torch.randn(users, rank) @ torch.randn(rank, items) / rank**0.5
known = torch.rand(users, items) < 0.5
u_all, i_all = known.nonzero(as_tuple=True)


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(users, rank), nn.Embedding(items, rank)
        nn.init.normal_(self.user.weight, std=0.3)
        nn.init.normal_(self.item.weight, std=0.3)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(1)


model = Factors()
optimizers = {"user": torch.optim.Adam(model.user.parameters(), lr=0.05), "item": torch.optim.Adam(model.item.parameters(), lr=0.05)}
with nv.watch(model, list(optimizers.values())) as watch:
    for sweep in range(16):
        side = "user" if sweep % 2 == 0 else "item"
        model.user.weight.requires_grad_(side == "user")
        model.item.weight.requires_grad_(side == "item")
        for _ in range(30):
            b = torch.randint(0, len(u_all), (512,))
            u, i = u_all[b], i_all[b]
            penalty = model.user(u).pow(2).sum(1).mean() + model.item(i).pow(2).sum(1).mean()
            loss = (model(u, i) - truth[u, i]).pow(2).mean() + 2e-3 * penalty
            optimizers[side].zero_grad()
            loss.backward()
            optimizers[side].step()
            watch.step(loss)

with torch.no_grad():
    predicted = model.user.weight @ model.item.weight.T
score = 1 - float((predicted - truth)[~known].pow(2).mean() / truth[~known].var())
learned = score > 0.7
