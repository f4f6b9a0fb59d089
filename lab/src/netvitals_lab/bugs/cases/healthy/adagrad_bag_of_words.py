"""Logistic regression on sparse bags of words with Adagrad, whose steps shrink all the time.

source: Duchi, Hazan & Singer, Adaptive Subgradient Methods (JMLR 2011)
field: text classification
unusual: a rate of 0.5, EmbeddingBag as a linear layer, many rare words with hardly any gradient
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

VOCAB = 400
zipf = 1 / torch.arange(1, VOCAB + 1).float() ** 0.9
meaning = torch.randn(VOCAB) * (torch.rand(VOCAB) < 0.3)


def documents(n, words=40):
    text = torch.multinomial(zipf, n * words, replacement=True).view(n, words)
    opinion = meaning[text].sum(1)
    return text, (opinion > meaning @ (zipf / zipf.sum()) * words).float()


class BagOfWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.EmbeddingBag(VOCAB, 1, mode="sum")
        nn.init.zeros_(self.weight.weight)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, text):
        return self.weight(text).squeeze(1) + self.bias


model = BagOfWords()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.5)
text, label = documents(3000)
with nv.watch(model, optimizer) as watch:
    for epoch in range(6):
        for rows in torch.randperm(3000).split(50):
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(text[rows]), label[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)

text, label = documents(1000)
with torch.no_grad():
    score = float(((model(text) > 0).float() == label).float().mean())
learned = score > 0.88
