"""Cox partial likelihood indexed with an integer tensor of events: it picks the first two subjects again and again.

source: https://github.com/Novartis/torchsurv/issues/117
catalogue: github
field: survival analysis
cause: reduction-wrong
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


def cohort(n):
    x = torch.randn(n, 6)
    risk = x[:, 0] + (x[:, 1] * x[:, 2]).tanh() - 0.5 * x[:, 3]
    time = -torch.rand(n).log() / risk.exp()
    censoring = 3 * torch.rand(n)
    event = (time <= censoring).long()
    return x, torch.minimum(time, censoring), event, risk


def neg_partial_log_likelihood(log_hz, event, time):
    order = torch.argsort(time)
    log_hz_sorted, event_sorted = log_hz[order], event[order]
    log_denominator = torch.logcumsumexp(log_hz_sorted.flip(0), dim=0).flip(0)
    pll = (log_hz_sorted - log_denominator)[event_sorted]  # bug
    # fix: pll = (log_hz_sorted - log_denominator)[event_sorted.bool()]
    return -pll.mean()


model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
x, time, event, _ = cohort(1000)
with nv.watch(model, optimizer) as watch:
    for epoch in range(25):
        for i in torch.randperm(1000).split(100):
            optimizer.zero_grad()
            loss = neg_partial_log_likelihood(model(x[i]).squeeze(1), event[i], time[i])
            loss.backward()
            optimizer.step()
            watch.step(loss)

x, _, _, risk = cohort(1000)
with torch.no_grad():
    score = float(torch.corrcoef(torch.stack([model(x).squeeze(1), risk]))[0, 1])
learned = score > 0.85
