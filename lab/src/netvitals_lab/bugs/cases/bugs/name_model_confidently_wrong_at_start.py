"""Character model with weights from randn: the first loss is near 20 instead of log 27 and tanh units are saturated.

source: https://github.com/karpathy/nn-zero-to-hero (makemore part 3, activations and gradients)
catalogue: blog
field: language modelling
cause: init-too-large, saturated-units
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

LETTERS, BLOCK, EMBED, HIDDEN = 27, 3, 10, 100
transition = torch.softmax(2 * torch.randn(LETTERS, LETTERS), dim=1)


def names(n, length=8):
    text = torch.randint(0, LETTERS, (n, 1))
    for _ in range(length):
        text = torch.cat([text, torch.multinomial(transition[text[:, -1]], 1)], dim=1)
    windows = text.unfold(1, BLOCK + 1, 1).reshape(-1, BLOCK + 1)
    return windows[:, :BLOCK], windows[:, BLOCK]


class CharMlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Parameter(torch.randn(LETTERS, EMBED))
        self.w1 = nn.Parameter(torch.randn(BLOCK * EMBED, HIDDEN))  # bug
        # fix: self.w1 = nn.Parameter(torch.randn(BLOCK * EMBED, HIDDEN) * (5 / 3) / (BLOCK * EMBED) ** 0.5)
        self.b1 = nn.Parameter(torch.zeros(HIDDEN))
        self.w2 = nn.Parameter(torch.randn(HIDDEN, LETTERS))  # bug
        # fix: self.w2 = nn.Parameter(torch.randn(HIDDEN, LETTERS) * 0.01)
        self.b2 = nn.Parameter(torch.zeros(LETTERS))

    def forward(self, idx):
        h = torch.tanh(self.c[idx].flatten(1) @ self.w1 + self.b1)
        return h @ self.w2 + self.b2


X, Y = names(3000)
model = CharMlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with nv.watch(model, optimizer) as watch:
    for step in range(600):
        ix = torch.randint(0, len(X), (64,))
        loss = F.cross_entropy(model(X[ix]), Y[ix])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

X, Y = names(500)
best = -(transition * transition.log()).sum(1).mean()
with torch.no_grad():
    score = -float(F.cross_entropy(model(X), Y) - best)
learned = score > -0.9
