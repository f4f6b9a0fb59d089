"""Parameter groups with separate rates: the group of the tagging head is built but never appended to the list.

source: https://github.com/zjunlp/HVPNeT/issues/5
catalogue: github
field: named entity recognition
cause: parameters-not-in-optimizer
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

TAGS = 5


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.lstm = nn.LSTM(32, 24, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(48, TAGS)
        self.crf_transitions = nn.Parameter(torch.randn(TAGS, TAGS) * 2)

    def forward(self, x):
        return self.fc(self.lstm(self.embedding(x))[0])

    def nll(self, emissions, tags):
        """Negative log-likelihood of a linear-chain CRF."""
        n, length, _ = emissions.shape
        gold = emissions.gather(2, tags.unsqueeze(2)).sum((1, 2)) + self.crf_transitions[tags[:, :-1], tags[:, 1:]].sum(1)
        alpha = emissions[:, 0]
        for t in range(1, length):
            alpha = torch.logsumexp(alpha.unsqueeze(2) + self.crf_transitions, 1) + emissions[:, t]
        return (torch.logsumexp(alpha, 1) - gold).mean()


def sentences(n):
    tags = torch.zeros(n, 12, dtype=torch.long)
    tags[:, 0] = torch.randint(0, TAGS, (n,))
    for t in range(1, 12):
        tags[:, t] = torch.where(torch.rand(n) < 0.8, (tags[:, t - 1] + 1) % TAGS, torch.randint(0, TAGS, (n,)))
    words = tags * 10 + torch.randint(0, 10, (n, 12))
    return torch.where(torch.rand(n, 12) < 0.3, torch.randint(0, 50, (n, 12)), words), tags


model = Tagger()
start = model.crf_transitions.detach().clone()
parameters = []
params = {"lr": 3e-3, "weight_decay": 1e-2, "params": []}
for name, param in model.named_parameters():
    if "embedding" in name or "lstm" in name:
        params["params"].append(param)
parameters.append(params)
params = {"lr": 2e-2, "weight_decay": 1e-2, "params": []}
for name, param in model.named_parameters():
    if "crf" in name or name.startswith("fc"):
        params["params"].append(param)
# fix: parameters.append(params)
optimizer = torch.optim.AdamW(parameters)
with nv.watch(model, optimizer) as watch:
    for step in range(200):
        words, tags = sentences(32)
        loss = model.nll(model(words), tags)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

words, tags = sentences(300)
score = -float(model.nll(model(words), tags).detach()) / 12
learned = score > -0.75 and not torch.equal(start, model.crf_transitions)
