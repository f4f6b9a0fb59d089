"""Language-model accumulation over micro-batches: each token-mean loss is added without dividing by the number of micro-batches.

source: https://unsloth.ai/blog/gradient
catalogue: blog
field: language modelling
cause: accumulation-not-scaled
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

VOCAB, STEPS = 16, 8
table = torch.stack([torch.randperm(VOCAB) for _ in range(4)])


def documents(n):
    """An automaton: the next token depends on the last one and on the mode in the first token; lengths vary."""
    x = torch.zeros(n, 20, dtype=torch.long)
    x[:, 0] = torch.randint(0, 4, (n,))
    x[:, 1] = torch.randint(0, VOCAB, (n,))
    for t in range(2, 20):
        x[:, t] = table[x[:, 0], x[:, t - 1]]
    lengths = torch.randint(4, 21, (n, 1))
    target = x[:, 1:].clone()
    target[torch.arange(19) >= lengths] = -100
    target[:, 0] = -100
    return x[:, :-1], target


class LM(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.embed, self.mode = nn.Embedding(VOCAB, d), nn.Embedding(VOCAB, d)
        self.gru, self.head = nn.GRU(d, d, batch_first=True), nn.Linear(d, VOCAB)

    def forward(self, x):
        return self.head(self.gru(self.embed(x) + self.mode(x[:, :1]))[0])


model = LM()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
with nv.watch(model, optimizer) as watch:
    for step in range(80):
        optimizer.zero_grad()
        batches = [documents(4) for _ in range(STEPS)]
        tokens = sum(int((t != -100).sum()) for _, t in batches)
        total = 0.0
        for x, t in batches:
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), t.flatten())  # bug
            # fix: loss = nn.functional.cross_entropy(model(x).flatten(0, 1), t.flatten(), reduction="sum") / tokens
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        watch.step(total)

x, t = documents(300)
known = t != -100
score = float((model(x).argmax(-1) == t)[known].float().mean())
learned = score > 0.9
