"""DPO: a small language model learns from pairs which of two answers is liked better, held near its reference.

source: https://arxiv.org/abs/2305.18290
field: preference optimisation (DPO)
unusual: the loss begins at exactly log 2; a frozen copy runs in each step; tiny rate of change at first
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

WORDS, LENGTH = 16, 7


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS + 1, 24)
        self.rnn, self.head = nn.LSTM(24, 48, batch_first=True), nn.Linear(48, WORDS)

    def forward(self, tokens):
        before = torch.cat([torch.full((len(tokens), 1), WORDS), tokens[:, :-1]], 1)
        return self.head(self.rnn(self.embed(before))[0])

    def log_prob(self, tokens):
        return -F.cross_entropy(self(tokens).transpose(1, 2), tokens, reduction="none").sum(1)

    @torch.no_grad()
    def sample(self, n):
        tokens = torch.zeros(n, LENGTH, dtype=torch.long)
        for t in range(LENGTH):
            tokens[:, t] = self(tokens)[:, t].softmax(1).multinomial(1).squeeze(1)
        return tokens


def liked(tokens):
    """Each word should be larger than the one before."""
    return (tokens[:, 1:] > tokens[:, :-1]).sum(1).float()


policy = Model()
reference = copy.deepcopy(policy).eval().requires_grad_(False)
a, b = reference.sample(3000), reference.sample(3000)
first = (liked(a) > liked(b)).unsqueeze(1)
chosen, rejected = torch.where(first, a, b), torch.where(first, b, a)
optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3, weight_decay=0.01)
with nv.watch({"policy": policy, "reference": reference}, optimizer) as watch:
    for step in range(300):
        i = torch.randint(0, 3000, (48,))
        ratio = [policy.log_prob(x[i]) - reference.log_prob(x[i]) for x in (chosen, rejected)]
        loss = -F.logsigmoid(0.2 * (ratio[0] - ratio[1])).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

score = float(liked(policy.sample(1000)).mean() - liked(reference.sample(1000)).mean())
learned = score > 0.8
