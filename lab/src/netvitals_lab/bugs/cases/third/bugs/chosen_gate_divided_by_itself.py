"""MoE language model, one expert per token, top-k weights normalised to sum one: the only weight is g / g = 1.

source: https://github.com/jingyaogong/minimind/issues/858
catalogue: github
field: mixture of experts (language model)
cause: detached-graph, softmax-over-one-class
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

WORDS, DIM, EXPERTS, LENGTH = 32, 24, 8, 12
rules = torch.stack([torch.randperm(WORDS) for _ in range(8)])


def text(n):
    """Eight languages; the first word says which, it decides how each word is followed."""
    x = torch.randint(0, WORDS, (n, LENGTH))
    for t in range(2, LENGTH):
        x[:, t] = rules[x[:, 0] % 8, x[:, t - 1]]
    return x


class MOEFeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        self.up, self.down = nn.Parameter(torch.randn(EXPERTS, DIM, 8) / 5), nn.Parameter(torch.randn(EXPERTS, 8, DIM) / 5)

    def forward(self, h):
        scores = self.gate(h).softmax(-1)
        weight, index = scores.topk(1, dim=-1)
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)  # bug
        load = F.one_hot(index[..., 0], EXPERTS).float().mean((0, 1))
        self.aux_loss = EXPERTS * (load * scores.mean((0, 1))).sum()
        hidden = torch.einsum("btd,edh->bteh", h, self.up).relu()
        out = torch.einsum("bteh,ehd->bted", hidden, self.down)
        return weight * out.gather(2, index.unsqueeze(3).expand(-1, -1, -1, DIM)).squeeze(2)


class MiniMoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.moe, self.head = nn.Embedding(WORDS, DIM), MOEFeedForward(), nn.Linear(DIM, WORDS)
        self.language, self.norm = nn.Linear(DIM, DIM), nn.LayerNorm(DIM)

    def forward(self, x):
        h = self.embed(x) + self.language(self.embed(x[:, :1]))
        return self.head(h + self.moe(self.norm(h)))


model = MiniMoE()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(600):
        x = text(64)
        loss = F.cross_entropy(model(x[:, :-1])[:, 1:].flatten(0, 1), x[:, 2:].flatten()) + 0.01 * model.moe.aux_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x = text(400)
    score = float((model(x[:, :-1]).argmax(2)[:, 1:] == x[:, 2:]).float().mean())
learned = score > 0.95
