"""A recommender: user and item embeddings with biases, weight decay instead of dropout.

source: Koren, Bell & Volinsky, Matrix Factorization Techniques for Recommender Systems (2009)
field: recommender
unusual: only embedding tables, a fixed global mean as a buffer, most rows get no gradient in a step
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import netvitals as nv

USERS, ITEMS, RANK = 200, 120, 4
p, q = torch.randn(USERS, RANK) * 0.6, torch.randn(ITEMS, RANK) * 0.6
user_bias, item_bias = 0.3 * torch.randn(USERS), 0.5 * torch.randn(ITEMS)
u = torch.randint(0, USERS, (10000,))
i = torch.randint(0, ITEMS, (10000,))
stars = 3.4 + user_bias[u] + item_bias[i] + (p[u] * q[i]).sum(1) + 0.2 * torch.randn(10000)
train, test = random_split(TensorDataset(u, i, stars), [9000, 1000])


class Factorisation(nn.Module):
    def __init__(self, mean):
        super().__init__()
        self.register_buffer("mean", mean)
        self.user, self.item = nn.Embedding(USERS, 8), nn.Embedding(ITEMS, 8)
        self.user_bias, self.item_bias = nn.Embedding(USERS, 1), nn.Embedding(ITEMS, 1)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.1)
        for table in (self.user_bias, self.item_bias):
            nn.init.zeros_(table.weight)

    def forward(self, u, i):
        return self.mean + (self.user_bias(u) + self.item_bias(i)).squeeze(1) + (self.user(u) * self.item(i)).sum(1)


model = Factorisation(stars.mean())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.05)
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        for users, items, target in DataLoader(train, batch_size=128, shuffle=True):
            loss = nn.functional.mse_loss(model(users, items), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

users, items, target = next(iter(DataLoader(test, batch_size=1000)))
with torch.no_grad():
    score = 1 - float((model(users, items) - target).pow(2).mean() / target.var())
learned = score > 0.7
