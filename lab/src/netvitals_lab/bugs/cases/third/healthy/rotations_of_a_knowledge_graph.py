"""RotatE: relations are rotations of complex entity vectors, negatives weigh more the better they fit.

source: https://arxiv.org/abs/1902.10197
field: knowledge graph embedding
unusual: only rows of embeddings that occur are changed; angles as parameters; self-adversarial weights without gradient
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

ENTITIES, DIM, GAMMA = 60, 16, 6.0
h, r = torch.meshgrid(torch.arange(ENTITIES), torch.arange(3), indexing="ij")
h, r = h.flatten(), r.flatten()
t = torch.where(r == 0, (h + 1) % ENTITIES, torch.where(r == 1, (h + 7) % ENTITIES, (h - 7) % ENTITIES))  # next, week later, week before
triples = torch.stack([h, r, t], 1)[torch.randperm(3 * ENTITIES)]
train, test = triples[:140], triples[140:]


class RotatE(nn.Module):
    def __init__(self):
        super().__init__()
        self.entity = nn.Embedding(ENTITIES, 2 * DIM)
        self.phase = nn.Embedding(3, DIM)
        nn.init.uniform_(self.entity.weight, -0.5, 0.5)
        nn.init.uniform_(self.phase.weight, -3.14, 3.14)

    def forward(self, h, r, t):
        a, b = self.entity(h).chunk(2, -1)
        c, d = self.entity(t).chunk(2, -1)
        cos, sin = self.phase(r).cos(), self.phase(r).sin()
        return GAMMA - ((a * cos - b * sin - c).pow(2) + (a * sin + b * cos - d).pow(2) + 1e-9).sqrt().sum(-1)


model = RotatE()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
with nv.watch(model, optimizer) as watch:
    for step in range(700):
        h, r, t = train[torch.randint(0, len(train), (64,))].T
        wrong = torch.randint(0, ENTITIES, (64, 24))
        good = model(h, r, t)
        bad = model(h.unsqueeze(1), r.unsqueeze(1), wrong)
        weight = bad.detach().softmax(1)
        loss = -F.logsigmoid(good).mean() - (weight * F.logsigmoid(-bad)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    h, r, t = test.T
    every = model(h.unsqueeze(1), r.unsqueeze(1), torch.arange(ENTITIES).unsqueeze(0))
    rank = (every > every.gather(1, t.unsqueeze(1))).sum(1) + 1
score = float((1 / rank).mean())
learned = score > 0.4
