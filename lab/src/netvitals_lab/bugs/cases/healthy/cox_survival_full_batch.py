"""DeepSurv: a network trained with the Cox partial likelihood on the whole cohort, most subjects censored.

source: https://bmcmedresmethodol.biomedcentral.com/articles/10.1186/s12874-018-0482-1
field: survival analysis
unusual: the loss couples all samples; it stays large; targets are no argument of the loss, only their order; last layer without bias
"""
import torch
from torch import nn

import netvitals as nv


def cohort(n):
    x = torch.randn(n, 8)
    risk = x[:, 0] - x[:, 1] + x[:, 2] * (x[:, 3] > 0)
    time = -torch.rand(n).log() / (0.5 * risk.exp())
    limit = torch.rand(n) * 1.5
    return x, torch.minimum(time, limit), time <= limit, risk


x, time, event, _ = cohort(800)
order = time.argsort(descending=True)
x, event = x[order], event[order]
net = nn.Sequential(nn.Linear(8, 32), nn.SELU(), nn.AlphaDropout(0.1), nn.Linear(32, 16), nn.SELU(), nn.Linear(16, 1, bias=False))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3, weight_decay=1e-3)
with nv.watch(net, optimizer) as watch:
    for epoch in range(150):
        net.train()
        risk = net(x).squeeze(1)
        loss = -(risk - torch.logcumsumexp(risk, 0))[event].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

net.eval()
x, time, event, risk = cohort(600)
with torch.no_grad():
    h = net(x).squeeze(1)
comparable = (time.unsqueeze(1) < time.unsqueeze(0)) & event.unsqueeze(1)
score = float((h.unsqueeze(1) > h.unsqueeze(0))[comparable].float().mean())  # concordance
learned = score > 0.68
