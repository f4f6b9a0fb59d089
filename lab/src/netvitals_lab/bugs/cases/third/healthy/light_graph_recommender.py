"""LightGCN: embeddings are averaged over the user-item graph without weights or activations, trained by BPR.

source: https://arxiv.org/abs/2002.02126
field: recommenders (LightGCN)
unusual: a network without any activation or weight matrix; the loss ends near half of log 2; regulariser on a batch's rows
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

USERS, ITEMS = 120, 80
taste, style = torch.randint(0, 6, (USERS,)), torch.randint(0, 6, (ITEMS,))
chance = torch.where(taste.unsqueeze(1) == style, 0.6, 0.03)
liked = torch.rand(USERS, ITEMS) < chance
hidden = liked & (torch.rand(USERS, ITEMS) < 0.25)
known = (liked & ~hidden).float()
du, di = known.sum(1, keepdim=True).clamp(min=1), known.sum(0, keepdim=True).clamp(min=1)
norm = known / (du * di).sqrt()
pairs = known.nonzero()


class LightGCN(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.user, self.item = nn.Embedding(USERS, dim), nn.Embedding(ITEMS, dim)
        nn.init.normal_(self.user.weight, std=0.1), nn.init.normal_(self.item.weight, std=0.1)

    def forward(self):
        u, i = self.user.weight, self.item.weight
        us, its = [u], [i]
        for _ in range(2):
            u, i = norm @ its[-1], norm.T @ us[-1]
            us.append(u), its.append(i)
        return torch.stack(us).mean(0), torch.stack(its).mean(0)


model = LightGCN()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
with nv.watch(model, optimizer) as watch:
    for epoch in range(40):
        for batch in pairs[torch.randperm(len(pairs))].split(256):
            u, i = batch.T
            j = torch.randint(0, ITEMS, (len(u),))
            users, items = model()
            score = (users[u] * (items[i] - items[j])).sum(1)
            penalty = (model.user(u).pow(2).sum() + model.item(i).pow(2).sum() + model.item(j).pow(2).sum()) / len(u)
            loss = F.softplus(-score).mean() + 1e-4 * penalty
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    users, items = model()
    s = users @ items.T
    both = hidden[:, :, None] & ~liked[:, None, :]
    score = float((s[:, :, None] > s[:, None, :])[both].float().mean())
learned = score > 0.77
