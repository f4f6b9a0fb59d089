"""DPO with beta = 0: the loss is log 2 at every step, the rewards of chosen and rejected stay at zero.

source: https://github.com/huggingface/trl/issues/1627
catalogue: github
field: preference optimisation (DPO)
cause: detached-graph, lr-too-low
observable: yes
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

WORDS, LENGTH = 12, 6


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS + 1, 24)
        self.rnn, self.head = nn.GRU(24, 48, batch_first=True), nn.Linear(48, WORDS)

    def forward(self, tokens):
        start = torch.full((len(tokens), 1), WORDS)
        return self.head(self.rnn(self.embed(torch.cat([start, tokens[:, :-1]], 1)))[0])

    def log_prob(self, tokens):
        return self(tokens).log_softmax(2).gather(2, tokens.unsqueeze(2)).sum((1, 2))

    @torch.no_grad()
    def sample(self, n):
        tokens = torch.zeros(n, LENGTH, dtype=torch.long)
        for t in range(LENGTH):
            tokens[:, t] = torch.distributions.Categorical(logits=self(tokens)[:, t]).sample()
        return tokens


def taste(tokens):
    """People like few different words."""
    return -F.one_hot(tokens, WORDS).amax(1).sum(1).float()


policy = Policy()
reference = copy.deepcopy(policy).requires_grad_(False)
first, second = reference.sample(4000), reference.sample(4000)
better = (taste(first) > taste(second)).unsqueeze(1)
chosen, rejected = torch.where(better, first, second), torch.where(better, second, first)
beta = 0.0  # bug
# fix: beta = 0.3
optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3, weight_decay=0.0)
with nv.watch(policy, optimizer) as watch:
    for step in range(250):
        i = torch.randint(0, 4000, (64,))
        margin = policy.log_prob(chosen[i]) - reference.log_prob(chosen[i])
        margin = margin - policy.log_prob(rejected[i]) + reference.log_prob(rejected[i])
        loss = -F.logsigmoid(beta * margin).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

score = float(taste(policy.sample(1000)).mean() - taste(reference.sample(1000)).mean())
learned = score > 0.5
