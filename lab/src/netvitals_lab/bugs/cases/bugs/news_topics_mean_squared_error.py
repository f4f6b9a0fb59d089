"""Forty news topics: softmax outputs and one-hot targets with mean squared error over all of them, plain SGD.

source: https://github.com/shiningrain/AUTOTRAINER (problem IL, improper loss, Reuters dataset)
catalogue: autotrainer
field: text classification
cause: loss-mismatch
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

TOPICS, VOCAB = 40, 300
profile = torch.distributions.Gamma(0.3, 1.0).sample((TOPICS, VOCAB)) + 0.02


def articles(n):
    topic = torch.randint(0, TOPICS, (n,))
    words = torch.multinomial(profile[topic], 40, replacement=True)
    counts = torch.zeros(n, VOCAB).scatter_add_(1, words, torch.ones(n, 40))
    return counts.clamp(max=1.0), topic


x_train, topic = articles(2400)
x_test, topic_test = articles(600)
model = nn.Sequential(
    nn.Linear(VOCAB, 128), nn.ReLU(), nn.Linear(128, TOPICS),
    nn.Softmax(dim=1),  # bug
)
sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
with nv.watch(model, sgd) as watch:
    for epoch in range(6):
        for rows in torch.randperm(2400).split(48):
            out = model(x_train[rows])
            loss = F.mse_loss(out, F.one_hot(topic[rows], TOPICS).float())  # bug
            # fix: loss = F.cross_entropy(out, topic[rows])
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            watch.step(loss)

with torch.no_grad():
    score = float((model(x_test).argmax(1) == topic_test).float().mean())
learned = score > 0.85
