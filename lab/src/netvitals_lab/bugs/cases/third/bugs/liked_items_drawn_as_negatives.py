"""BPR draws its negatives from all items without looking whether the user likes them.

source: https://github.com/benfred/implicit/pull/103
catalogue: github
field: recommenders (BPR)
cause: labels-wrong
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

USERS, ITEMS = 200, 40
taste, style = torch.randn(USERS, 3), torch.randn(ITEMS, 3)
fame = torch.linspace(3.0, -1.5, ITEMS)  # some items are liked by nearly everybody
chance = torch.sigmoid(1.2 * taste @ style.T + fame)
liked = torch.rand(USERS, ITEMS) < chance
held_out = liked & (torch.rand(USERS, ITEMS) < 0.2)
known = liked & ~held_out
pairs = known.nonzero()


class BPR(nn.Module):
    def __init__(self, factors=12):
        super().__init__()
        self.user, self.item, self.bias = nn.Embedding(USERS, factors), nn.Embedding(ITEMS, factors), nn.Embedding(ITEMS, 1)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(1) + self.bias(i).squeeze(1)


model = BPR()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-5)
with nv.watch(model, optimizer) as watch:
    for epoch in range(30):
        for batch in pairs[torch.randperm(len(pairs))].split(128):
            u, i = batch.T
            j = torch.randint(0, ITEMS, (len(u),))
            # fix: while known[u, j].any():
            # fix:     j = torch.where(known[u, j], torch.randint(0, ITEMS, (len(u),)), j)
            loss = -F.logsigmoid(model(u, i) - model(u, j)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():  # how well are known favourites told from what the user passed over?
    scores = model.user.weight @ model.item.weight.T + model.bias.weight.T
    good, bad = scores[:, :, None], scores[:, None, :]
    both = known[:, :, None] & ~liked[:, None, :]
    score = float((good > bad)[both].float().mean())
learned = score > 0.956
