"""Skip-gram embeddings with sparse gradients and SparseAdam; only a few rows move in each step.

source: https://pytorch.org/docs/stable/generated/torch.optim.SparseAdam.html; Mikolov et al. 2013 (negative sampling)
field: word embeddings
unusual: sparse gradients, most rows have no gradient in a step, no bias, sums of two losses
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

WORDS, TOPICS = 200, 8
topic_of = torch.arange(WORDS) % TOPICS


class SkipGram(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.centre = nn.Embedding(WORDS, dim, sparse=True)
        self.context = nn.Embedding(WORDS, dim, sparse=True)
        nn.init.uniform_(self.centre.weight, -0.5 / dim, 0.5 / dim)
        nn.init.normal_(self.context.weight, std=0.1)

    def forward(self, centre, context):
        return (self.centre(centre).unsqueeze(1) * self.context(context)).sum(-1)


def pairs(n):
    word = torch.randint(0, WORDS, (n,))
    same_topic = topic_of[word] + TOPICS * torch.randint(0, WORDS // TOPICS, (n,))
    negative = torch.randint(0, WORDS, (n, 5))
    return word, same_topic.unsqueeze(1), negative


model = SkipGram()
optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.02)
with nv.watch(model, optimizer) as watch:
    for step in range(400):
        word, positive, negative = pairs(64)
        optimizer.zero_grad()
        loss = -F.logsigmoid(model(word, positive)).mean() - F.logsigmoid(-model(word, negative)).sum(1).mean()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    unit = F.normalize(model.centre.weight, dim=1)
    similar = unit @ unit.T - 2 * torch.eye(WORDS)
    neighbour = similar.argmax(1)
score = float((topic_of[neighbour] == topic_of).float().mean())
learned = score > 0.8
