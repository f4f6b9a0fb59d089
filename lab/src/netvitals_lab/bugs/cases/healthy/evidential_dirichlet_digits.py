"""Evidential classification: the outputs are Dirichlet parameters, with an annealed KL term.

source: Sensoy, Kaplan & Kandemir, Evidential Deep Learning to Quantify Classification Uncertainty (NeurIPS 2018)
field: uncertainty
unusual: the weight of a second loss term grows during training, so that the loss may rise; outputs are not probabilities
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
known = digits.target < 8
x = torch.tensor(digits.data[known] / 16, dtype=torch.float32)
y = F.one_hot(torch.tensor(digits.target[known]), 8).float()
model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 8), nn.Softplus())
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)


def kl_to_uniform(alpha):
    ones = torch.ones_like(alpha)
    return torch.distributions.kl_divergence(torch.distributions.Dirichlet(alpha), torch.distributions.Dirichlet(ones))


EPOCHS = 12
with nv.watch(model, optimizer) as watch:
    for epoch in range(EPOCHS):
        for rows in torch.randperm(1200).split(40):
            alpha = model(x[rows]) + 1
            strength = alpha.sum(1, keepdim=True)
            p = alpha / strength
            risk = ((y[rows] - p) ** 2 + p * (1 - p) / (strength + 1)).sum(1)
            misleading = y[rows] + (1 - y[rows]) * alpha
            loss = (risk + min(1.0, epoch / 10) * 0.1 * kl_to_uniform(misleading)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

unknown = torch.tensor(digits.data[~known] / 16, dtype=torch.float32)
with torch.no_grad():
    score = float(((model(x[1200:])).argmax(1) == y[1200:].argmax(1)).float().mean())
    evidence_known, evidence_unknown = model(x[1200:]).sum(1).mean(), model(unknown).sum(1).mean()
learned = score > 0.84 and bool(evidence_known > evidence_unknown)
